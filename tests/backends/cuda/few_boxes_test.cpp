// Products of experts' few rows where there are tiles enough for few_boxes, with the CPU's bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/on_device.h"
#include "support/case.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

class CudaFewBoxes : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
    gpu_ = std::make_unique<CudaDevice>();
  }
  // With prepared weights.
  void expect_the_cpus_bits(const Case& one, Tensor MoeDown::*weights) {
    OnDevice on(one, *gpu_);
    auto& op = std::get<MoeDown>(on.op);
    op.*weights = gpu_->prepare(std::span(&(op.*weights), 1))[0];
    gpu_->run(op);
    std::vector<std::uint32_t> bits;
    for (const float x : on.floats(op.out)) bits.push_back(std::bit_cast<std::uint32_t>(x));
    EXPECT_EQ(bits, execute(one, cpu_).outputs.at("out")) << one.name;
  }
  void expect_the_cpus_bits(const Case& one) {
    EXPECT_EQ(execute(one, *gpu_).outputs.at("out"), execute(one, cpu_).outputs.at("out")) << one.name;
  }
  static RoutingShape routing(std::int64_t tokens) { return {.n_tokens = tokens, .top_k = 3, .n_experts = 8}; }

  CpuDevice cpu_{{.threads = 2}};
  std::unique_ptr<CudaDevice> gpu_;
};

// One box a tile, several, and more than rows are staged for; columns past the last one; lists of one tile of rows, of two
// and of more.
TEST_F(CudaFewBoxes, OfGateAndUp) {
  constexpr std::int64_t n = 1100;
  for (const std::int64_t k : {512, 768, 2048, 2560}) {
    for (const std::int64_t tokens : {5, 13, 20, 60}) {
      const RoutingShape shape = routing(tokens);
      CaseBuilder b(static_cast<std::uint64_t>(tokens), Layout::dense);
      const GroupInputs groups = group_inputs(b, shape, make_ids(b.rng, shape));
      expect_the_cpus_bits(b.finish(fmt::format("k {}, {} tokens", k, tokens),
                                    MoeGateUp{.x = b.values(DType::f32, {tokens, k}),
                                              .gate = b.weights(DType::q4_k, {shape.n_experts, n, k}),
                                              .up = b.weights(DType::q4_k, {shape.n_experts, n, k}),
                                              .offsets = groups.offsets,
                                              .row_pair = groups.row_pair,
                                              .top_k = shape.top_k,
                                              .out = b.output(DType::f32, {tokens * shape.top_k, n})}));
    }
  }
}

TEST_F(CudaFewBoxes, OfDown) {
  constexpr std::int64_t n = 2130;
  for (const DType type : {DType::q4_k, DType::q6_k}) {
    for (const std::int64_t k : {512, 768}) {
      for (const std::int64_t tokens : {5, 13, 20, 60}) {
        const RoutingShape shape = routing(tokens);
        CaseBuilder b(static_cast<std::uint64_t>(tokens), Layout::dense);
        const GroupInputs groups = group_inputs(b, shape, make_ids(b.rng, shape));
        const std::int64_t pairs = tokens * shape.top_k;
        expect_the_cpus_bits(b.finish(fmt::format("{}, k {}, {} tokens", dtype_info(type).name, k, tokens),
                                      MoeDown{.x = b.values(DType::f32, {pairs, k}),
                                              .down = b.weights(type, {shape.n_experts, n, k}),
                                              .offsets = groups.offsets,
                                              .out = b.output(DType::f32, {pairs, n})}),
                             &MoeDown::down);
      }
    }
  }
}

}  // namespace
}  // namespace conclave::test
