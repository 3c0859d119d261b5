#include "backends/cuda/cuda_device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/on_device.h"
#include "base/error.h"
#include "ops/host_access.h"
#include "support/execute.h"
#include "support/layer.h"
#include "support/suite.h"

namespace conclave::test {
namespace {

// Machines without a GPU build these tests and skip them.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  }
};

TEST(CudaAbsence, IsToldInOneLine) {
  const std::string absence = cuda_absence(4711);
  EXPECT_NE(absence.find("no CUDA device"), std::string::npos) << absence;
  EXPECT_THROW(CudaDevice({.device = 4711}), Error);
}

void expect_every_case(const std::string& path) {
  CudaDevice device({.path = path});
  for (const OpReport& report : run_suite(device, {.arithmetic = kCudaArithmetic})) {
    EXPECT_EQ(report.failed, 0) << report.op << ": " << (report.failures.empty() ? "" : report.failures.front());
    EXPECT_GT(report.cases, 0) << report.op;
  }
}

TEST_F(CudaTest, PassesEveryCase) {
  expect_every_case("");
}
TEST_F(CudaTest, PassesEveryCaseAsGpusBeforeHopperDo) {
  expect_every_case("sm80");
}
TEST_F(CudaTest, RefusesAPathThatIsNone) {
  EXPECT_THROW(CudaDevice({.path = "sm17"}), Error);
}

TEST_F(CudaTest, ProductsHaveTheBitsOfTheCpu) {
  CudaDevice gpu;
  CpuDevice cpu({.threads = 2});
  for (const OpCases& cases : all_op_cases()) {
    if (cases.op != "matmul" && cases.op != "moe_matmul" && cases.op != "moe_down") continue;
    std::vector<CaseSpec> specs = cases.list();
    for (int i = 0; i < 100; ++i) specs.push_back(random_spec(cases, 99, i));
    for (const CaseSpec& spec : specs) {
      const Case one = spec.make(Layout::dense);
      const Outcome got = execute(one, gpu);
      const Outcome want = execute(one, cpu);
      ASSERT_EQ(got.fault, "") << cases.op << " [" << spec.name << "]";
      for (const auto& [name, bits] : want.outputs) {
        EXPECT_EQ(without_payloads(got.outputs.at(name)), without_payloads(bits))
            << cases.op << " [" << spec.name << "]: " << name;
      }
    }
  }
}

TEST_F(CudaTest, EqualLogitsChooseEqualExpertsOnAMillionRows) {
  CudaDevice gpu;
  CpuDevice cpu;
  constexpr std::int64_t kRows = 100'000;
  for (int round = 0; round < 10; ++round) {
    CaseBuilder b(static_cast<std::uint64_t>(round), Layout::dense);
    std::vector<float> logits(kRows * 128);
    for (float& x : logits) {
      // Coarse values tie often, fine ones differ in their lowest bits; now and then there is no number at all.
      const std::int64_t kind = b.rng.integer(0, 999);
      x = kind == 0 ? NAN : kind == 1 ? -INFINITY : kind == 2 ? INFINITY : static_cast<float>(b.rng.normal());
      if (round % 3 == 1) x = std::round(x * 4) / 4;
      if (round % 3 == 2 && std::isfinite(x)) x = 1 + 0x1p-23F * static_cast<float>(b.rng.integer(0, 3000));
    }
    const MoeRoute op{
        .logits = b.floats(DType::f32, {kRows, 128}, logits),
        .rule = {.top_k = 8, .renormalize = true},
        .out = {.experts = b.output(DType::i32, {kRows, 8}), .weights = b.output(DType::f32, {kRows, 8})}};
    const Case one = b.finish("rows", op);
    ASSERT_EQ(execute(one, gpu).outputs.at("experts"), execute(one, cpu).outputs.at("experts")) << round;
  }
}

class CudaPhase : public CudaTest, public testing::WithParamInterface<Phase> {};
INSTANTIATE_TEST_SUITE_P(Phases, CudaPhase, testing::Values(Phase::decode, Phase::prefill),
                         [](const auto& test) { return std::string(name(test.param)); });

TEST_P(CudaPhase, ATokensMoeOutputIsTheSameAloneAndInAnyBatch) {
  CudaDevice device;
  constexpr std::int64_t kTokens = 300;
  for (const Layer& layer :
       {Layer{}, Layer{.d_model = 2560, .d_ff = 512, .down = DType::q4_k},
        Layer{.d_model = 1024, .d_ff = 768, .down = DType::q4_k}, Layer{.gate = DType::q5_k, .down = DType::q8_0}}) {
    Case whole = layer.make(kTokens);
    std::get<MoeFfn>(whole.op).phase = GetParam();
    const Outcome want = execute(whole, device);
    for (const std::int64_t count : {1, 2, 3, 8, 9, 33, 64, 65, 256}) {
      for (std::int64_t first = 0; first + count <= kTokens; first += std::max<std::int64_t>(count, 97)) {
        Case part = whole;
        part.op = part_of(std::get<MoeFfn>(whole.op), first, count);
        const Outcome got = execute(part, device);
        for (const std::string name : {"residual", "normed"}) {
          ASSERT_EQ(rows_of(got, name, 0, count, layer.d_model), rows_of(want, name, first, count, layer.d_model))
              << name << " of tokens " << first << " and " << count - 1 << " more";
        }
      }
    }
  }
}

TEST_P(CudaPhase, OneGraphGivesTheEagerBitsForAThousandRoutings) {
  CudaDevice device;
  constexpr std::int64_t kTokens = 40;
  Case layer = Layer{}.make(kTokens);
  std::get<MoeFfn>(layer.op).phase = GetParam();
  OnDevice captured(layer, device);
  OnDevice eager(layer, device);
  const auto& one = std::get<MoeFfn>(captured.op);
  const auto& other = std::get<MoeFfn>(eager.op);
  Program program;
  program.record(one);
  const auto graph = device.compile(program, {.capture = true});
  Rng rng(5);
  std::vector<float> logits(kTokens * Layer::kExperts);
  std::vector<float> residual(kTokens * 512, 1.0F);
  for (int round = 0; round < 1000; ++round) {
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto expert = static_cast<std::int64_t>(i) % Layer::kExperts;
      // Uniform; all on the first experts; rows without a number; some experts never.
      logits[i] = static_cast<float>(rng.normal());
      if (round % 4 == 1) logits[i] = expert < Layer::kTopK ? 10.0F : -10.0F;
      if (round % 4 == 2 && rng.integer(0, 4) == 0) logits[i] = NAN;
      if (round % 4 == 3 && expert > 4) logits[i] = -INFINITY;
    }
    for (OnDevice* side : {&captured, &eager}) {
      const auto& op = std::get<MoeFfn>(side->op);
      side->put(op.logits, std::as_bytes(std::span<const float>(logits)));
      side->put(op.residual, std::as_bytes(std::span<const float>(residual)));
    }
    graph->run();
    device.run(other);
    ASSERT_EQ(without_payloads([&] {
                std::vector<std::uint32_t> bits;
                for (const float x : captured.floats(one.next.out)) bits.push_back(std::bit_cast<std::uint32_t>(x));
                return bits;
              }()),
              without_payloads([&] {
                std::vector<std::uint32_t> bits;
                for (const float x : eager.floats(other.next.out)) bits.push_back(std::bit_cast<std::uint32_t>(x));
                return bits;
              }()))
        << round;
  }
}

TEST_F(CudaTest, PreparedWeightsGiveTheBitsOfStoredOnes) {
  CudaDevice device;
  for (const auto& [type, k] : {std::pair{DType::q4_k, 768},
                                {DType::q6_k, 768},
                                {DType::q8_0, 768},
                                {DType::q8_0, 2880},
                                {DType::q4_0, 2880},
                                {DType::mxfp4, 768},
                                {DType::mxfp4, 2880}}) {
    for (const std::int64_t rows : {1, 3, 9, 70, 200}) {
      CaseBuilder b(11, Layout::dense);
      const Matmul op{.x = b.values(DType::f32, {rows, k}),
                      .w = b.weights(type, {200, k}),
                      .out = b.output(DType::f32, {rows, 200})};
      OnDevice stored(b.finish("product", op), device);
      auto one = std::get<Matmul>(stored.op);
      device.run(one);
      const std::vector<float> want = stored.floats(one.out);
      one.w = device.prepare(std::span(&one.w, 1))[0];
      device.run(one);
      EXPECT_EQ(stored.floats(one.out), want) << dtype_info(type).name << ", " << rows << " rows";
      // A slice of what was prepared, too.
      one.w = slice(one.w, 0, 16, 100);
      one.out = slice(one.out, 1, 16, 100);
      device.run(one);
      one.out = std::get<Matmul>(stored.op).out;
      EXPECT_EQ(stored.floats(one.out), want) << dtype_info(type).name << ", a slice";
    }
  }
}

// By pairs, in short lists and in long ones; a token has no int8 form.
TEST_F(CudaTest, PreparedLayersGiveTheBitsOfStoredOnes) {
  CudaDevice device;
  for (const Layer& layer : {Layer{.d_model = 2880, .d_ff = 480, .gate = DType::mxfp4, .down = DType::mxfp4},
                             Layer{.d_model = 4352, .d_ff = 512, .gate = DType::mxfp4, .down = DType::q8_0},
                             Layer{.d_model = 2048, .d_ff = 768, .gate = DType::q8_0, .down = DType::q4_0},
                             Layer{.d_model = 2048, .d_ff = 768},
                             Layer{.d_model = 512, .d_ff = 768, .gate = DType::q5_k, .down = DType::q5_k},
                             Layer{.d_model = 1024, .d_ff = 512, .gate = DType::q4_0, .down = DType::q6_k}}) {
    for (const std::int64_t tokens : {1, 4, 20, 60, 300}) {
      const Case one = layer.make(tokens);
      OnDevice stored(one, device);
      OnDevice other(one, device);
      auto& prepared = std::get<MoeFfn>(other.op);
      for (Tensor* w : {&prepared.gate, &prepared.up, &prepared.down}) *w = device.prepare(std::span(w, 1))[0];
      const std::vector<float> spoiled{NAN};
      for (OnDevice* side : {&stored, &other}) {
        side->put(std::get<MoeFfn>(side->op).x, std::as_bytes(std::span(spoiled)));
        device.run(std::get<MoeFfn>(side->op));
      }
      const auto bits = [&](OnDevice& side, const Tensor& t) {
        std::vector<std::uint32_t> words;
        for (const float x : side.floats(t)) words.push_back(std::bit_cast<std::uint32_t>(x));
        return without_payloads(std::move(words));
      };
      EXPECT_EQ(bits(other, prepared.next.out), bits(stored, std::get<MoeFfn>(stored.op).next.out))
          << dtype_info(layer.gate).name << ", " << tokens << " tokens";
    }
  }
}

// Lists that overlap, or are more than there are rows: the last list that names a row has it.
TEST_F(CudaTest, OffsetsOfNonsenseLoseNoRow) {
  CudaDevice device;
  CpuDevice cpu({.threads = 1});
  for (const DType type : {DType::q4_k, DType::q8_0}) {
    for (const std::int32_t rows : {1, 100}) {
      CaseBuilder b(13, Layout::dense);
      const MoeDown op{.x = b.values(DType::f32, {rows, 512}),
                       .down = b.weights(type, {8, 64, 512}),
                       .offsets = b.ints(DType::i32, {9}, {0, rows, 0, rows, 0, rows, 0, rows, 0}),
                       .out = b.output(DType::f32, {rows, 64})};
      const Case one = b.finish("down", op);
      EXPECT_EQ(execute(one, device).outputs.at("out"), execute(one, cpu).outputs.at("out")) << rows << " rows";
    }
  }
}

TEST_F(CudaTest, RowsOfNothingAreAsOnTheCpu) {
  CudaDevice device;
  CpuDevice cpu({.threads = 1});
  for (const std::int64_t rows : {0, 1, 70}) {
    CaseBuilder b(17, Layout::dense);
    const Matmul op{.x = b.values(DType::f32, {rows, 0}),
                    .w = b.weights(DType::q4_k, {40, 0}),
                    .out = b.output(DType::f32, {rows, 40})};
    const Case one = b.finish("empty", op);
    const Outcome want = execute(one, cpu);
    const Outcome got = execute(one, device);
    EXPECT_EQ(got.fault.empty(), want.fault.empty()) << got.fault << want.fault;
    EXPECT_EQ(got.outputs.at("out"), want.outputs.at("out")) << rows << " rows";
  }
}

TEST_P(CudaPhase, ActivationsUpToAMillionGiveNoInfinity) {
  CudaDevice device;
  Case layer = Layer{}.make(4);
  auto& op = std::get<MoeFfn>(layer.op);
  op.phase = GetParam();
  for (std::int64_t t = 0; t < 4; ++t) {
    for (std::int64_t d = 0; d < op.x.dim(1); ++d) store(op.x, {t, d}, 1e6 * static_cast<double>(load(op.x, {t, d})));
  }
  const Outcome outcome = execute(layer, device);
  for (const std::uint32_t bits : outcome.outputs.at("residual")) {
    ASSERT_TRUE(std::isfinite(std::bit_cast<float>(bits)));
  }
}

TEST_F(CudaTest, WhatWaitsForTheHostIsNoPartOfAGraph) {
  CudaDevice device;
  CaseBuilder b(3, Layout::dense);
  const MoeRouteToHost op{.logits = b.values(DType::f32, {4, 8}),
                          .rule = {.top_k = 2},
                          .out = {.experts = b.output(DType::i32, {4, 2}), .weights = b.output(DType::f32, {4, 2})}};
  const Case route = b.finish("route", op);
  OnDevice on(route, device);
  auto routed = std::get<MoeRouteToHost>(on.op);
  routed.out = op.out;  // in host memory
  Program program;
  program.record(routed);
  EXPECT_THROW(device.compile(program, {.capture = true}), Error);
  EXPECT_NO_THROW(device.compile(program)->run());
}

TEST_F(CudaTest, CopiesOfAnySizeArriveInTheOrderOfTheProgramsAroundThem) {
  CudaDevice device;
  constexpr std::int64_t kMost = 700'000;  // floats: some copies are larger than what copies go through
  const auto buffer = device.allocate(3 * kMost * 4);
  Rng rng(4);
  for (int i = 0; i < 60; ++i) {
    const std::int64_t n = i % 3 == 0 ? rng.integer(1, 40) : rng.integer(1, kMost);
    const auto part = [&](std::int64_t p) { return dense(*buffer, p * kMost * 4, DType::f32, {1, n}); };
    Program program;
    program.add({.a = part(0), .b = part(1), .out = part(2)});
    const auto sum = device.compile(program);
    std::vector<float> a(static_cast<std::size_t>(n));
    std::vector<float> b(a.size());
    for (int run = 0; run < 3; ++run) {  // the third as a graph
      for (std::size_t j = 0; j < a.size(); ++j) {
        a[j] = static_cast<float>(rng.integer(0, 1000));
        b[j] = static_cast<float>(rng.integer(0, 1000));
      }
      const std::vector<float> want = [&] {
        std::vector<float> sums(a.size());
        std::transform(a.begin(), a.end(), b.begin(), sums.begin(), std::plus<>());
        return sums;
      }();
      device.upload(*buffer, 0, std::as_bytes(std::span(a)));
      device.upload(*buffer, kMost * 4, std::as_bytes(std::span(b)));
      std::fill(b.begin(), b.end(), 0.0F);  // the caller's bytes may go
      sum->run();
      device.upload(*buffer, 0, std::as_bytes(std::span(b)));  // not before the program has read what was there
      device.download(*buffer, 2 * kMost * 4, std::as_writable_bytes(std::span(a)));
      ASSERT_EQ(a, want) << n;
    }
  }
}

TEST_F(CudaTest, MemoryThatIsNotThereIsAnError) {
  CudaDevice device;
  try {
    device.allocate(std::int64_t{1} << 50);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
  const auto small = device.allocate(16);
  std::byte bytes[32] = {};
  EXPECT_THROW(device.upload(*small, 0, bytes), Error);
  EXPECT_THROW(device.download(*small, 8, std::span(bytes).first(16)), Error);
}

}  // namespace
}  // namespace conclave::test
