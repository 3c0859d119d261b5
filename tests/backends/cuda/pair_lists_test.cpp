// Layers of few pairs of token and expert: pairs in lists give the bits of pairs one by one, which GPUs before Hopper
// multiply.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backends/cuda/on_device.h"
#include "ops/host_access.h"
#include "support/execute.h"
#include "support/layer.h"

namespace conclave::test {
namespace {

class CudaPairLists : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  }
  static void expect_the_bits_of_single_pairs(const Case& layer, const std::string& name) {
    CudaDevice lists;
    CudaDevice single({.path = "sm80"});
    const auto out_of = [&](CudaDevice& device) {
      OnDevice on(layer, device);
      auto& op = std::get<MoeFfn>(on.op);
      for (Tensor* w : {&op.gate, &op.up, &op.down}) *w = device.prepare(std::span(w, 1))[0];
      device.run(op);
      std::vector<std::uint32_t> bits;
      for (const float x : on.floats(op.next.out)) bits.push_back(std::bit_cast<std::uint32_t>(x));
      return without_payloads(std::move(bits));
    };
    EXPECT_EQ(out_of(lists), out_of(single)) << name;
  }
};

// Columns of one superblock, of some, of as many as there may be and of more; the last strip whole or not.
TEST_F(CudaPairLists, OfColumnsOfAnyLength) {
  for (const auto& [d_model, d_ff] : {std::pair{256, 256},
                                      {512, 1024},
                                      {2048, 768},
                                      {1792, 512},
                                      {768, 2304},
                                      {2560, 768},
                                      {4096, 256},
                                      {4352, 256}}) {
    for (const DType type : {DType::q4_k, DType::q5_k, DType::q6_k}) {
      const Layer layer{.d_model = d_model, .d_ff = d_ff, .gate = type, .down = type};
      expect_the_bits_of_single_pairs(layer.make(7), fmt::format("{} {} {}", dtype_info(type).name, d_model, d_ff));
    }
  }
}

// Lists of one row, of some, and several lists of an expert, up to as many pairs as go by lists and a few more.
TEST_F(CudaPairLists, OfAnyLength) {
  for (const DType down : {DType::q4_k, DType::q6_k}) {
    for (const std::int64_t tokens : {2, 3, 5, 8, 10, 11, 16, 32, 33, 42, 43}) {
      const Layer layer{.d_model = 2048, .d_ff = 768, .down = down};
      expect_the_bits_of_single_pairs(layer.make(tokens), fmt::format("{}, {} tokens", dtype_info(down).name, tokens));
    }
  }
}

// All tokens have the same experts, and one has no int8 form.
TEST_F(CudaPairLists, OfTokensThatAgree) {
  for (const std::int64_t tokens : {4, 16, 40}) {
    Case layer = Layer{.d_model = 2048, .d_ff = 768}.make(tokens);
    auto& op = std::get<MoeFfn>(layer.op);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t e = 0; e < Layer::kExperts; ++e) store(op.logits, {t, e}, static_cast<double>(e % 5));
    }
    store(op.x, {tokens / 2, 100}, NAN);
    expect_the_bits_of_single_pairs(layer, fmt::format("{} tokens", tokens));
  }
}

}  // namespace
}  // namespace conclave::test
