#include "backends/ref/ref_device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/op_test_support.h"

namespace conclave::test {
namespace {

using Values = std::vector<float>;

// The text and code of the Error that `act` throws.
template <class Act>
std::pair<std::string, std::optional<ErrorCode>> error_of(Act&& act) {
  try {
    act();
  } catch (const Error& error) {
    return {error.what(), error.code()};
  }
  return {"(none)", std::nullopt};
}

TEST(RefDevice, HasAName) {
  EXPECT_EQ(RefDevice().name(), "ref");
}

TEST(RefDevice, RunsAProgramInOrder) {
  Host b;
  // (x + 1) * w, then the largest column: each op reads what the one before it wrote.
  const Tensor x = b.f32({2, 2}, {0, 1, 2, 3});
  const Tensor product = b.out_f32({2, 3});
  const Tensor ids = b.out_i32({2});
  Program program;
  program.add({.a = x, .b = b.f32({2}, {1, 1}), .out = x});
  program.matmul({.x = x, .w = b.f32({3, 2}, {1, 0, 0, 1, -1, 2}), .out = product});
  program.argmax({.x = product, .ids = ids});
  RefDevice device;
  device.compile(program)->run();
  EXPECT_EQ(floats_of(x), (Values{1, 2, 3, 4}));
  EXPECT_EQ(floats_of(product), (Values{1, 2, 3, 3, 4, 5}));
  EXPECT_EQ(ints_of(ids), (std::vector<std::int32_t>{2, 2}));
}

TEST(RefDevice, CompilesWithoutRunning) {
  Host b;
  const Tensor out = b.out_f32({1, 2});
  Program program;
  program.add({.a = b.f32({1, 2}, {1, 2}), .b = b.f32({2}, {1, 1}), .out = out});
  RefDevice device;
  const auto executable = device.compile(program);
  EXPECT_TRUE(untouched(out));
  executable->run();
  EXPECT_EQ(floats_of(out), (Values{2, 3}));
}

TEST(RefDevice, RunsAgainWithTheSameBitsAndWithNewInputs) {
  Host b(3);
  const Tensor x = b.values(DType::f32, {5, 64});
  const Tensor normed = b.out_f32({5, 64});
  const Tensor logits = b.out_f32({5, 16});
  Program program;
  program.rms_norm({.x = x, .weight = b.values(DType::f32, {64}), .out = normed});
  program.matmul({.x = normed, .w = b.weights(DType::q4_0, {16, 64}), .out = logits});
  program.softmax({.x = logits, .out = logits});
  RefDevice device;
  const auto executable = device.compile(program);
  executable->run();
  const auto first = dense_bits(logits);
  executable->run();
  EXPECT_EQ(dense_bits(logits), first);
  const float other = 123;
  device.upload(*x.buffer, x.byte_offset, std::as_bytes(std::span(&other, 1)));
  executable->run();
  EXPECT_NE(dense_bits(logits), first);
}

TEST(RefDevice, RunsAnEmptyProgram) {
  RefDevice device;
  EXPECT_NO_THROW(device.compile(Program())->run());
}

TEST(RefDevice, RefusesAnOpThatIsNotValidWithItsReason) {
  Host b;
  Program program;
  program.add({.a = b.f32({1, 2}, {1, 2}), .b = b.f32({2}, {1, 1}), .out = b.out_f32({1, 2})});
  program.matmul({.x = b.values(DType::f32, {5, 64}), .w = b.values(DType::f32, {3, 32}), .out = b.out_f32({5, 3})});
  RefDevice device;
  const auto [text, code] = error_of([&] { device.compile(program); });
  EXPECT_EQ(text, "matmul: x is [5,64], w is [3,32]: inner dimensions differ");
  EXPECT_EQ(code, ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { device.run(program.ops()[1]); }).first, text);
}

TEST(RefDevice, RefusesMemoryItCannotReach) {
  Host b;
  DeviceOnlyBuffer elsewhere(1000);
  RefDevice device;
  EXPECT_FALSE(device.reaches(elsewhere));
  Argmax op{.x = b.values(DType::f32, {2, 4}), .ids = dense(elsewhere, 0, DType::i32, {2})};
  const auto [text, code] = error_of([&] { device.run(op); });
  EXPECT_EQ(text, "argmax: ids is not in the memory of ref");
  EXPECT_EQ(code, ErrorCode::invalid_argument);
  op = {.x = dense(elsewhere, 0, DType::f32, {2, 4}), .ids = b.out_i32({2})};
  EXPECT_EQ(error_of([&] { device.run(op); }).first, "argmax: x is not in the memory of ref");
  EXPECT_TRUE(untouched(op.ids));
}

TEST(RefDevice, NeedsHostMemoryForAHostRouting) {
  Host b;
  DeviceOnlyBuffer elsewhere(1000);
  RefDevice device;
  const MoeRouteToHost op{.logits = b.values(DType::f32, {2, 4}),
                          .rule = {.top_k = 2},
                          .out = {.experts = dense(elsewhere, 0, DType::i32, {2, 2}), .weights = b.out_f32({2, 2})}};
  EXPECT_EQ(error_of([&] { device.run(op); }).first, "moe_route_to_host: experts is not in host memory");
}

// A device that has no plan for argmax.
class PickyDevice final : public Device {
 public:
  std::string_view name() const override { return "picky"; }
  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override { return HostBuffer::make(bytes); }
  void upload(Buffer&, std::int64_t, std::span<const std::byte>) override {}
  void download(const Buffer&, std::int64_t, std::span<std::byte>) override {}
  bool reaches(const Buffer&) const override { return true; }
  Selection select(const Op& op) const override {
    return op_name(op) == "argmax" ? Selection{.refusal = "no plan for rows of 4"} : Selection{.plan = "plain"};
  }
  int built = 0;

 protected:
  std::unique_ptr<Executable> build(const Program&, CompileOptions) override {
    ++built;
    return nullptr;
  }
};

TEST(AnyDevice, CompilesByWhatItSelects) {
  Host b;
  PickyDevice device;
  Program program;
  program.softmax({.x = b.values(DType::f32, {2, 4}), .out = b.out_f32({2, 4})});
  device.compile(program);
  EXPECT_EQ(device.built, 1);
  program.argmax({.x = b.values(DType::f32, {2, 4}), .ids = b.out_i32({2})});
  const auto [text, code] = error_of([&] { device.compile(program); });
  EXPECT_EQ(text, "argmax on picky: no plan for rows of 4");
  EXPECT_EQ(code, ErrorCode::unsupported);
  EXPECT_EQ(device.built, 1) << "nothing is built of a program with an op that is refused";
}

TEST(AnyDevice, PreparesWeightsByLeavingThemAsStored) {
  Host b;
  RefDevice device;
  const std::vector<Tensor> weights = {b.weights(DType::q4_k, {2, 256}), b.values(DType::f32, {3})};
  EXPECT_EQ(device.prepare(weights), weights);
}

TEST(RefDevice, UploadsAndDownloadsInsideABuffer) {
  RefDevice device;
  const auto buffer = device.allocate(10);
  EXPECT_EQ(buffer->bytes(), 10);
  const std::array<std::byte, 4> sent = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  device.upload(*buffer, 6, sent);
  std::array<std::byte, 4> got{};
  device.download(*buffer, 6, got);
  EXPECT_EQ(got, sent);
  device.download(*buffer, 4, got);
  EXPECT_EQ(got, (std::array<std::byte, 4>{std::byte{0}, std::byte{0}, std::byte{1}, std::byte{2}}));
  EXPECT_NO_THROW(device.upload(*buffer, 10, {}));
  EXPECT_NO_THROW(device.download(*buffer, 10, {}));
}

TEST(RefDevice, RefusesBytesOutsideABuffer) {
  RefDevice device;
  const auto buffer = device.allocate(10);
  std::array<std::byte, 4> four{};
  std::array<std::byte, 11> eleven{};
  const auto up = [&](std::int64_t at, std::span<std::byte> bytes) {
    return error_of([&] { device.upload(*buffer, at, bytes); });
  };
  const auto down = [&](std::int64_t at, std::span<std::byte> bytes) {
    return error_of([&] { device.download(*buffer, at, bytes); });
  };
  EXPECT_EQ(up(7, four).first, "4 bytes at 7 are outside a buffer of 10");
  EXPECT_EQ(up(7, four).second, ErrorCode::invalid_argument);
  EXPECT_EQ(up(-1, four).first, "4 bytes at -1 are outside a buffer of 10");
  EXPECT_EQ(up(0, eleven).first, "11 bytes at 0 are outside a buffer of 10");
  EXPECT_EQ(up(INT64_MAX, four).first, "4 bytes at 9223372036854775807 are outside a buffer of 10");
  EXPECT_EQ(up(11, {}).first, "0 bytes at 11 are outside a buffer of 10");
  EXPECT_EQ(down(7, four).first, "4 bytes at 7 are outside a buffer of 10");
  EXPECT_EQ(down(-1, four).first, "4 bytes at -1 are outside a buffer of 10");
  EXPECT_EQ(down(0, eleven).first, "11 bytes at 0 are outside a buffer of 10");
}

class RouteToHost : public testing::Test {
 protected:
  MoeRouteToHost op(std::int64_t n_tokens, std::int64_t top_k) {
    return {.logits = host_.values(DType::f32, {n_tokens, 8}),
            .rule = {.top_k = top_k},
            .out = {.experts = host_.out_i32({n_tokens, top_k}), .weights = host_.out_f32({n_tokens, top_k})}};
  }
  std::string captured(const MoeRouteToHost& route) {
    Program program;
    program.moe_route_to_host(route);
    return error_of([&] { device_.compile(program, {.capture = true}); }).first;
  }

  Host host_;
  RefDevice device_;
};

TEST_F(RouteToHost, GivesWhatMoeRouteGives) {
  const MoeRouteToHost route = op(5, 3);
  device_.run(route);
  MoeRoute plain = route.route();
  plain.out = {.experts = host_.out_i32({5, 3}), .weights = host_.out_f32({5, 3})};
  device_.run(plain);
  EXPECT_EQ(ints_of(route.out.experts), ints_of(plain.out.experts));
  EXPECT_EQ(dense_bits(route.out.weights), dense_bits(plain.out.weights));
}

TEST_F(RouteToHost, GrowsItsScratchAndKeepsIt) {
  EXPECT_EQ(device_.host_copy_bytes(), 0);
  device_.run(op(5, 3));
  EXPECT_EQ(device_.host_copy_bytes(), 5 * 3 * 8);
  device_.run(op(2, 1));
  EXPECT_EQ(device_.host_copy_bytes(), 5 * 3 * 8) << "it never shrinks";
  device_.run(op(15, 2));
  EXPECT_EQ(device_.host_copy_bytes(), 15 * 2 * 8);
  device_.run(op(0, 2));
  EXPECT_EQ(device_.host_copy_bytes(), 15 * 2 * 8);
}

TEST_F(RouteToHost, LeavesTokensPastLiveAloneWhateverTheScratchHolds) {
  device_.run(op(4, 2));
  MoeRouteToHost route = op(4, 2);
  route.live = host_.live(1);
  device_.run(route);
  for (std::int64_t t = 0; t < 4; ++t) {
    EXPECT_EQ(untouched(select_outer(route.out.experts, t)), t >= 1);
    EXPECT_EQ(untouched(select_outer(route.out.weights, t)), t >= 1);
  }
}

TEST_F(RouteToHost, MayNotGrowWhileAGraphIsCaptured) {
  EXPECT_EQ(
      captured(op(5, 3)),
      "moe_route_to_host: needs 120 bytes of scratch and has 0, and cannot grow while a graph is captured; run it once "
      "at this shape first");
  device_.run(op(5, 3));
  EXPECT_EQ(captured(op(5, 3)), "(none)");
  EXPECT_EQ(captured(op(2, 2)), "(none)");
  EXPECT_EQ(captured(op(5, 4)).substr(0, 58), "moe_route_to_host: needs 160 bytes of scratch and has 120,");
  EXPECT_EQ(device_.host_copy_bytes(), 120) << "a refusal grows nothing";
}

TEST_F(RouteToHost, RunsFromACapturedProgram) {
  device_.run(op(5, 3));
  const MoeRouteToHost route = op(5, 3);
  Program program;
  program.moe_route_to_host(route);
  device_.compile(program, {.capture = true})->run();
  EXPECT_FALSE(untouched(route.out.experts));
}

}  // namespace
}  // namespace conclave::test
