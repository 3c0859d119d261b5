// Products of few rows with weights of 16 bits: half_rows, and what is on either side of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/cuda_device.h"
#include "support/case.h"
#include "support/cases/routings.h"
#include "support/execute.h"

namespace conclave::test {
namespace {

constexpr DType kHalves[] = {DType::f16, DType::bf16};

class CudaHalfRows : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
    gpu_ = std::make_unique<CudaDevice>();
  }
  void expect_the_cpus_bits(const Case& one) {
    EXPECT_EQ(execute(one, *gpu_).outputs.at("out"), execute(one, cpu_).outputs.at("out")) << one.name;
  }

  CpuDevice cpu_{{.threads = 2}};
  std::unique_ptr<CudaDevice> gpu_;
};

TEST_F(CudaHalfRows, OfWholeMatrices) {
  struct Sizes {
    std::int64_t n;
    std::int64_t k;
  };
  // Eight columns a warp and twice eight; one step, fewer than a ring holds, many; four rows a block, and fewer.
  for (const auto& [n, k] :
       {Sizes{2048, 64}, Sizes{2050, 256}, Sizes{2100, 1024}, Sizes{2048, 8256}, Sizes{17001, 192}, Sizes{2048, 96}}) {
    for (const std::int64_t rows : {1, 2, 8, 17}) {
      for (const DType type : kHalves) {
        CaseBuilder b(static_cast<std::uint64_t>(rows), Layout::dense);
        const Matmul op{.x = b.values(DType::f32, {rows, k}),
                        .w = b.weights(type, {n, k}),
                        .bias = b.values(DType::bf16, {n}),
                        .live = b.live(rows > 2 ? rows - 1 : rows),
                        .out = b.output(rows % 2 == 0 ? DType::f16 : DType::f32, {rows, n})};
        expect_the_cpus_bits(b.finish(fmt::format("{} [{}, {}] of {} rows", dtype_info(type).name, n, k, rows), op));
      }
    }
  }
}

TEST_F(CudaHalfRows, OfExperts) {
  struct Sizes {
    std::int64_t n;
    std::int64_t k;
  };
  for (const auto& [n, k] : {Sizes{100, 2048}, Sizes{70, 64}, Sizes{41, 5120}, Sizes{40, 8256}}) {
    for (const std::int64_t tokens : {1, 3, 33}) {
      for (const DType type : kHalves) {
        // Few experts, whose lists are long, and more than are looked at together.
        for (const std::int64_t n_experts : {6, 300}) {
          if (n_experts > 6 && n * k > 10000) continue;
          const RoutingShape routing{.n_tokens = tokens, .top_k = 4, .n_experts = n_experts};
          const std::string name =
              fmt::format("{} [{}, {}, {}], {} tokens", dtype_info(type).name, n_experts, n, k, tokens);
          CaseBuilder b(static_cast<std::uint64_t>(tokens), Layout::dense);
          const GroupInputs groups = group_inputs(b, routing, make_ids(b.rng, routing));
          const std::int64_t pairs = tokens * routing.top_k;
          expect_the_cpus_bits(b.finish("gate and up, " + name, MoeGateUp{.x = b.values(DType::f32, {tokens, k}),
                                                                          .gate = b.weights(type, {n_experts, n, k}),
                                                                          .up = b.weights(type, {n_experts, n, k}),
                                                                          .offsets = groups.offsets,
                                                                          .row_pair = groups.row_pair,
                                                                          .top_k = routing.top_k,
                                                                          .out = b.output(DType::f32, {pairs, n})}));
          CaseBuilder d(static_cast<std::uint64_t>(tokens), Layout::dense);
          const GroupInputs again = group_inputs(d, routing, make_ids(d.rng, routing));
          expect_the_cpus_bits(d.finish("down, " + name, MoeDown{.x = d.values(DType::f32, {pairs, k}),
                                                                 .down = d.weights(type, {n_experts, n, k}),
                                                                 .offsets = again.offsets,
                                                                 .out = d.output(DType::bf16, {pairs, n})}));
        }
      }
    }
  }
}

}  // namespace
}  // namespace conclave::test
