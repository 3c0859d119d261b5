#include "model/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/memory.h"
#include "model/model_fixture.h"
#include "ops/host_transfer.h"

namespace conclave::testing {
namespace {

// A device that reaches the host's memory or has only its own, and writes down what it was asked to prepare.
class RecordingDevice final : public Device {
 public:
  explicit RecordingDevice(bool reaches_host) : reaches_host_(reaches_host) {}

  std::string_view name() const override { return "recording"; }
  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override { return HostBuffer::make(bytes); }
  void upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) override {
    host_upload(to, offset, bytes);
  }
  void download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) override {
    host_download(from, offset, bytes);
  }
  bool reaches(const Buffer& buffer) const override {
    return reaches_host_ || dynamic_cast<const HostBuffer*>(&buffer) != nullptr;
  }
  std::vector<Tensor> prepare(std::span<const Tensor> weights) override {
    groups.emplace_back(weights.begin(), weights.end());
    return groups.back();
  }
  Selection select(const Op&) const override { return {.refusal = "it runs nothing"}; }
  std::optional<std::int64_t> available_bytes() const override { return room; }

  std::vector<std::vector<Tensor>> groups;
  std::optional<std::int64_t> room;

 protected:
  std::unique_ptr<Executable> build(const Program&, CompileOptions) override { return nullptr; }

 private:
  bool reaches_host_;
};

class WeightsTest : public ::testing::Test {
 protected:
  gguf::File write(const ModelFixture& model) {
    std::uint8_t next = 1;
    model.write(folder_.path() / "m.gguf", {}, [&](const FixtureTensor&, std::vector<std::byte>& bytes) {
      for (std::byte& b : bytes) b = static_cast<std::byte>(next++ % 100);  // no NaN in any format
    });
    return gguf::File::open(folder_.path() / "m.gguf");
  }
  static const std::byte* address(const Tensor& t) { return t.buffer->host() + t.byte_offset; }

  TempDir folder_;
};

TEST_F(WeightsTest, AreTheBytesOfTheMappedFile) {
  const gguf::File file = write(tiny_model("qwen2moe"));
  RecordingDevice device(true);
  const ModelWeights w = load_weights(file, describe_model(file), device);
  ASSERT_EQ(w.layers.size(), static_cast<std::size_t>(kTinyLayers));
  const auto data = [&](const char* name) { return file.data(*file.find_tensor(name)).data(); };
  EXPECT_EQ(address(w.token_embd), data("token_embd.weight"));
  EXPECT_EQ(address(w.output), data("output.weight"));
  EXPECT_EQ(address(w.layers[1].moe.down), data("blk.1.ffn_down_exps.weight"));
  EXPECT_EQ(address(w.layers[0].attention.v_bias), data("blk.0.attn_v.bias"));
  EXPECT_EQ(address(w.layers[0].moe.shared.gate_inp), data("blk.0.ffn_gate_inp_shexp.weight"));
  EXPECT_FALSE(w.layers[0].attention.q_norm.defined());
  EXPECT_EQ(w.layers[0].moe.gate.shape()[0], kTinyExperts);
  EXPECT_EQ(w.layers[0].moe.gate.shape()[1], kTinyWidth);
}

TEST_F(WeightsTest, AreCopiedToADeviceThatDoesNotReachTheFile) {
  const gguf::File file = write(tiny_model("olmoe"));
  RecordingDevice device(false);
  const ModelWeights w = load_weights(file, describe_model(file), device);
  const auto expect_copy = [&](const Tensor& t, const char* name) {
    const std::span<const std::byte> data = file.data(*file.find_tensor(name));
    ASSERT_NE(address(t), data.data());
    EXPECT_TRUE(device.reaches(*t.buffer));
    EXPECT_EQ(std::memcmp(address(t), data.data(), data.size()), 0) << name;
  };
  expect_copy(w.output_norm, "output_norm.weight");
  expect_copy(w.layers[1].attention.k_norm, "blk.1.attn_k_norm.weight");
  expect_copy(w.layers[0].moe.up, "blk.0.ffn_up_exps.weight");
}

TEST_F(WeightsTest, AreRefusedBeforeTheFirstOneIsCopiedToADeviceWithoutRoom) {
  const gguf::File file = write(tiny_model("olmoe"));
  const ModelDescription model = describe_model(file);
  std::uint64_t bytes = 0;
  std::uint64_t calls = 0;
  const LoadProgress progress = [&](std::uint64_t done, std::uint64_t total) {
    EXPECT_LE(done, total);
    bytes = done;
    ++calls;
  };
  RecordingDevice device(false);
  load_weights(file, model, device, progress);
  EXPECT_EQ(calls, file.tensors().size());

  const auto refusal = [&](std::int64_t room) -> std::string {
    device.room = room;
    calls = 0;
    try {
      load_weights(file, model, device, progress);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      return error.what();
    }
    return "";
  };
  const auto all = static_cast<std::int64_t>(bytes);
  EXPECT_EQ(refusal(all), "");
  const std::string text = refusal(all - 1);
  EXPECT_NE(text.find("recording: the weights take " + size_text(bytes)), std::string::npos) << text;
  EXPECT_EQ(calls, 0U);
  RecordingDevice near(true);
  near.room = 0;
  EXPECT_NO_THROW(load_weights(file, model, near, progress));
  EXPECT_EQ(calls, 0U);
}

TEST_F(WeightsTest, ArePreparedInTheGroupsTheyAreUsedIn) {
  ModelFixture model = tiny_model("qwen3moe");
  model.drop_tensor("output.weight");
  const gguf::File file = write(model);
  RecordingDevice device(true);
  const ModelWeights w = load_weights(file, describe_model(file), device);
  EXPECT_EQ(w.output, w.token_embd);
  const LayerWeights& layer = w.layers[0];
  const std::vector<std::vector<Tensor>> wanted = {{w.token_embd},  // once: it is the head as well
                                                   {layer.attention.q, layer.attention.k, layer.attention.v},
                                                   {layer.attention.out},
                                                   {layer.moe.gate, layer.moe.up},
                                                   {layer.moe.down}};
  ASSERT_EQ(device.groups.size(), 1 + 4 * static_cast<std::size_t>(kTinyLayers));
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(device.groups[i], wanted[i]) << i;
}

}  // namespace
}  // namespace conclave::testing
