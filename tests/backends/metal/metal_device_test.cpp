#include "backends/metal/metal_device.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "backends/cpu/cpu_device.h"
#include "backends/metal/shim/executor_gpu.h"
#include "base/error.h"
#include "ops/host_access.h"
#include "support/execute.h"
#include "support/layer.h"
#include "support/suite.h"

namespace conclave::test {
namespace {

using Products = metal::Target::Products;

MetalDevice device_with(const metal::ExecutorOptions& gpu, Products products = Products::by_rows) {
  return MetalDevice(metal::make_executor_gpu(gpu), {.products = products});
}

void expect_every_case(MetalDevice& device, const SuiteOptions& options) {
  for (const OpReport& report : run_suite(device, options)) {
    EXPECT_EQ(report.failed, 0) << report.op << ": " << (report.failures.empty() ? "" : report.failures.front());
    EXPECT_GT(report.cases, 0) << report.op;
  }
}

TEST(MetalDevice, PassesEveryCase) {
  MetalDevice device;
  expect_every_case(device, {.arithmetic = kFloatArithmetic});
}

// Each kind of product kernel takes every product, whatever its size; and the order of threads does not matter.
TEST(MetalDevice, EveryProductPassesWithEitherKindOfKernel) {
  for (const Products products : {Products::few_rows, Products::many_rows}) {
    MetalDevice device = device_with({.threads = 2, .seed = 7}, products);
    for (const char* op :
         {"matmul", "moe_matmul", "moe_gate_up", "moe_down", "moe_shared_expert", "moe_ffn", "attention"}) {
      expect_every_case(device, {.seed = 3, .random = 5, .op = op, .arithmetic = kFloatArithmetic});
    }
  }
}

TEST(MetalDevice, TheLayerPassesWithoutADeviceFence) {
  for (const Products products : {Products::few_rows, Products::many_rows}) {
    MetalDevice device = device_with({.threads = 2, .has_device_fence = false}, products);
    expect_every_case(device, {.random = 5, .op = "moe_ffn", .arithmetic = kFloatArithmetic});
  }
}

// Where a kernel leaves room for few threads, those that can do with fewer do.
TEST(MetalDevice, PassesWithSmallThreadgroups) {
  MetalDevice device = device_with({.threads = 2, .max_threads = 140});
  expect_every_case(device, {.random = 5, .small_only = true, .arithmetic = kFloatArithmetic});
  MetalDevice too_few = device_with({.threads = 1, .max_threads = 96});
  EXPECT_NE(
      execute(Layer{}.make(1), too_few).fault.find("96 threads in a threadgroup for few_gate_up_q4_k, 128 are needed"),
      std::string::npos);
}

TEST(MetalDevice, TheOrderOfThreadsChangesNoBit) {
  const Case layer = Layer{}.make(40);
  MetalDevice first = device_with({.threads = 2, .seed = 1});
  const Outcome want = execute(layer, first);
  ASSERT_EQ(want.fault, "");
  for (const std::uint64_t seed : {2, 3, 4}) {
    MetalDevice other = device_with({.threads = 1 + static_cast<int>(seed % 2), .seed = seed});
    EXPECT_EQ(execute(layer, other).outputs, want.outputs) << seed;
  }
}

// Of one kind of kernel: a token's result does not depend on what it shares a batch with.
TEST(MetalDevice, ATokenHasTheSameBitsAloneAndInABatchOfTheSameKernels) {
  MetalDevice device = device_with({.threads = 2}, Products::few_rows);
  const Case whole = Layer{}.make(20);
  const Outcome want = execute(whole, device);
  for (const std::int64_t t : {0, 7, 19}) {
    Case part = whole;
    part.op = part_of(std::get<MoeFfn>(whole.op), t, 1);
    const Outcome got = execute(part, device);
    ASSERT_EQ(got.fault, "");
    const std::vector<std::uint32_t>& all = want.outputs.at("normed");
    const std::vector<std::uint32_t> mine(all.begin() + t * 512, all.begin() + (t + 1) * 512);
    EXPECT_EQ(got.outputs.at("normed"), mine) << t;
  }
}

std::int64_t dispatches(const Op& op, bool has_device_fence = true) {
  const metal::Target target{.has_device_fence = has_device_fence};
  return static_cast<std::int64_t>(
      std::visit([&](const auto& o) { return metal::make_metal_op(o, target); }, op).steps.size());
}

TEST(MetalDevice, ALayerIsThreeDispatchesInDecodeAndFourInPrefill) {
  EXPECT_EQ(dispatches(Layer{}.make(1).op), 3);
  EXPECT_EQ(dispatches(Layer{}.make(32).op), 3);
  EXPECT_EQ(dispatches(Layer{}.make(64).op), 3);
  EXPECT_EQ(dispatches(Layer{}.make(65).op), 4);
  EXPECT_EQ(dispatches(Layer{}.make(1).op, false), 4);
  EXPECT_EQ(dispatches(Layer{}.make(65).op, false), 5);
}

// A token does not see what comes after it, whatever that is.
TEST(MetalDevice, NoTokenOfAPrefillNoticesALaterOne) {
  constexpr std::int64_t kTokens = 40;
  const auto attend = [](float last_value) {
    CaseBuilder b(5, Layout::dense);
    std::vector<float> values(kTokens * 2 * 64);
    for (float& v : values) v = static_cast<float>(b.rng.normal());
    for (std::size_t i = values.size() - 128; i < values.size(); ++i) values[i] = last_value;
    std::vector<std::int32_t> positions(kTokens);
    for (std::int64_t t = 0; t < kTokens; ++t) positions[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(t);
    const Attention op{.q = b.values(DType::f32, {kTokens, 8, 64}),
                       .kv = {.k = b.floats(DType::f32, {1, kTokens, 2, 64}, values),
                              .v = b.floats(DType::f32, {1, kTokens, 2, 64}, values),
                              .pages = b.ints(DType::i32, {1, 1}, {0})},
                       .lengths = b.ints(DType::i32, {1}, {kTokens}),
                       .seqs = b.ints(DType::i32, {kTokens}, std::vector<std::int32_t>(kTokens, 0)),
                       .positions = b.ints(DType::i32, {kTokens}, positions),
                       .scale = 0.125F,
                       .out = b.output(DType::f32, {kTokens, 8, 64})};
    MetalDevice device = device_with({.threads = 2});
    EXPECT_EQ(device.select(op).plan, "metal attention_tiles");
    const Outcome outcome = execute(b.finish("prefill", op), device);
    EXPECT_EQ(outcome.fault, "");
    return outcome.outputs.at("out");
  };
  const std::vector<std::uint32_t> want = attend(1.0F);
  for (const float strange : {NAN, INFINITY}) {
    const std::vector<std::uint32_t> got = attend(strange);
    // Rounding may differ where values are added up row by row: numbers, within a few units.
    for (std::size_t i = 0; i < (kTokens - 1) * 8 * 64; ++i) {
      ASSERT_NEAR(std::bit_cast<float>(got[i]), std::bit_cast<float>(want[i]), 1e-5F) << i;
    }
  }
}

TEST(MetalDevice, ChoosesTheExpertsOfTheCpu) {
  MetalDevice gpu = device_with({.threads = 2});
  CpuDevice cpu({.threads = 1});
  constexpr std::int64_t kRows = 500;
  for (const std::int64_t n_experts : {40, 128, 300}) {
    for (int round = 0; round < 2; ++round) {
      CaseBuilder b(static_cast<std::uint64_t>(round), Layout::dense);
      std::vector<float> logits(static_cast<std::size_t>(kRows * n_experts));
      for (float& x : logits) {
        const std::int64_t kind = b.rng.integer(0, 99);
        x = kind == 0 ? NAN : kind == 1 ? -INFINITY : kind == 2 ? INFINITY : static_cast<float>(b.rng.normal());
        if (round == 1) x = std::round(x * 4) / 4;  // coarse values tie often
      }
      MoeRoute op{.logits = b.floats(DType::f32, {kRows, n_experts}, logits),
                  .rule = {.top_k = 8, .renormalize = true},
                  .out = {.experts = b.output(DType::i32, {kRows, 8}), .weights = b.output(DType::f32, {kRows, 8})}};
      if (n_experts == 40) op.rule.score = Score::sigmoid;
      if (n_experts == 300) {
        op.rule.score = Score::sqrt_softplus;
        op.rule.n_groups = 50;
        op.rule.top_groups = 7;
        op.rule.group_score = GroupScore::sum_of_two;
      }
      const Case one = b.finish("rows", op);
      ASSERT_EQ(execute(one, gpu).outputs.at("experts"), execute(one, cpu).outputs.at("experts")) << n_experts;
    }
  }
}

TEST(MetalDevice, UsesWeightsOfAMappedFileInPlace) {
  MetalDevice device = device_with({.threads = 1});
  alignas(65536) static std::byte page[65536];
  BorrowedBuffer whole(page, sizeof page);
  BorrowedBuffer inside(page + 64, 1024);
  const auto host = HostBuffer::make(64);
  EXPECT_TRUE(device.reaches(whole));
  EXPECT_FALSE(device.reaches(inside));
  EXPECT_FALSE(device.reaches(*host));
  EXPECT_TRUE(device.reaches(*device.allocate(64)));
}

TEST(MetalDevice, RefusesInOneLineWhatItCannotDo) {
  MetalDevice device = device_with({.threads = 1});
  CaseBuilder b(1, Layout::dense);
  Attention op{.q = b.values(DType::f32, {1, 1, 9000}),
               .kv = {.k = b.values(DType::f32, {1, 4, 1, 9000}),
                      .v = b.values(DType::f32, {1, 4, 1, 9000}),
                      .pages = b.ints(DType::i32, {1, 1}, {0})},
               .lengths = b.ints(DType::i32, {1}, {1}),
               .seqs = b.ints(DType::i32, {1}, {0}),
               .positions = b.ints(DType::i32, {1}, {0}),
               .out = b.output(DType::f32, {1, 1, 9000})};
  EXPECT_NE(device.select(op).refusal.find("threadgroup memory"), std::string::npos);
  const Selection layer = device.select(Layer{}.make(1).op);
  EXPECT_TRUE(layer.supported());
  EXPECT_EQ(layer.plan, "metal moe_route_group few_gate_up_q4_k few_finish_q6_k");
}

TEST(MetalDevice, HostCopiesCannotBeCaptured) {
  MetalDevice device = device_with({.threads = 1});
  CaseBuilder b(1, Layout::dense);
  const MoeRoutingUpload op{
      .from = {.experts = b.ints(DType::i32, {1, 1}, {0}), .weights = b.values(DType::f32, {1, 1})},
      .to = {.experts = b.output(DType::i32, {1, 1}), .weights = b.output(DType::f32, {1, 1})}};
  const Case one = b.finish("upload", op);
  std::map<const Buffer*, Buffer*> to;
  std::vector<std::shared_ptr<Buffer>> kept;
  for (const auto& buffer : one.buffers) {
    kept.push_back(device.allocate(buffer->bytes()));
    to[buffer.get()] = kept.back().get();
  }
  Program program;
  program.record(rebind(one.op, to));
  EXPECT_THROW(device.compile(program, {.capture = true}), Error);
  device.compile(program)->run();
}

}  // namespace
}  // namespace conclave::test
