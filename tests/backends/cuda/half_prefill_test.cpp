// Products of prefill rows with weights of 16 bits: the same bits in any number of rows, whatever the rows beside them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "backends/cuda/on_device.h"
#include "backends/ref/ref_device.h"
#include "ops/host_access.h"
#include "ops/matmul.h"
#include "ops/moe_down.h"
#include "ops/moe_gate_up.h"

namespace conclave::test {
namespace {

constexpr DType kHalfTypes[] = {DType::f16, DType::bf16};
// What rounded rows move a product by, of its square: 2^-9 of bf16, 2^-12 of f16 at most, with room to spare.
double reach(DType type) {
  return type == DType::f16 ? 1e-7 : 1e-5;
}

class CudaHalfPrefill : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
    gpu_ = std::make_unique<CudaDevice>();
  }
  std::unique_ptr<CudaDevice> gpu_;
  RefDevice reference_;
};

TEST_F(CudaHalfPrefill, ProductsOfAnyNumberOfRowsHaveTheSameBits) {
  constexpr std::int64_t kRows = 400;
  struct Sizes {
    std::int64_t n;
    std::int64_t k;
  };
  for (const auto& [n, k] : {Sizes{200, 2048}, Sizes{64, 256}, Sizes{513, 768}, Sizes{70, 2888}, Sizes{1, 72},
                             Sizes{260, 8}, Sizes{2048, 128}}) {
    for (const DType type : kHalfTypes) {
      CaseBuilder b(3, Layout::dense);
      const Matmul op{.x = b.values(DType::f32, {kRows, k}),
                      .w = b.weights(type, {n, k}),
                      .bias = b.values(DType::f32, {n}),
                      .phase = Phase::prefill,
                      .out = b.output(DType::f32, {kRows, n})};
      const Case one = b.finish("prefill", op);
      OnDevice on(one, *gpu_);
      const auto whole = std::get<Matmul>(on.op);
      gpu_->run(whole);
      const std::vector<float> want = on.floats(whole.out);
      const std::string name = fmt::format("{} [{}, {}]", dtype_info(type).name, n, k);
      EXPECT_LT(off_by(want, execute(one, reference_).outputs.at("out")), reach(type)) << name;
      for (const std::int64_t count : {1, 2, 9, 16, 17, 33, 64, 65, 97, 129, 161, 257}) {
        for (const std::int64_t first : {std::int64_t{0}, std::int64_t{37}, kRows - count}) {
          Matmul part = whole;
          for (Tensor* t : {&part.x, &part.out}) *t = slice(*t, 0, first, count);
          on.put(part.out, std::vector<std::byte>(static_cast<std::size_t>(count * n * 4)));
          gpu_->run(part);
          ASSERT_EQ(on.floats(whole.out), want) << name << ", rows " << first << " and " << count - 1 << " more";
        }
      }
    }
  }
}

// Rows that are large, small, or no numbers at all, among others.
TEST_F(CudaHalfPrefill, RowsAreForThemselves) {
  constexpr std::int64_t kRows = 70;
  constexpr std::int64_t kColumns = 140;
  constexpr std::int64_t kDepth = 520;
  for (const DType type : kHalfTypes) {
    CaseBuilder b(4, Layout::dense);
    const Matmul op{.x = b.values(DType::f32, {kRows, kDepth}),
                    .w = b.weights(type, {kColumns, kDepth}),
                    .phase = Phase::prefill,
                    .out = b.output(DType::f32, {kRows, kColumns})};
    const Case one = b.finish("rows", op);
    OnDevice before(one, *gpu_);
    gpu_->run(before.op);
    const std::vector<float> plain = before.floats(std::get<Matmul>(before.op).out);
    const auto scale_row = [&](std::int64_t row, double by) {
      for (std::int64_t d = 0; d < kDepth; ++d) store(op.x, {row, d}, by * static_cast<double>(load(op.x, {row, d})));
    };
    scale_row(3, 0x1p20);
    scale_row(20, 0x1p60);
    scale_row(21, 0x1p-60);
    store(op.x, {40, 17}, std::numeric_limits<double>::quiet_NaN());
    store(op.x, {41, 18}, std::numeric_limits<double>::infinity());
    scale_row(69, 0);
    OnDevice after(one, *gpu_);
    gpu_->run(after.op);
    const std::vector<float> got = after.floats(std::get<Matmul>(after.op).out);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t row = i / kColumns;
      if (row == 40 || row == 41) {
        EXPECT_FALSE(std::isfinite(got[i])) << row;
      } else {
        const float by = row == 3 ? 0x1p20F : row == 20 ? 0x1p60F : row == 21 ? 0x1p-60F : row == 69 ? 0.0F : 1.0F;
        ASSERT_EQ(got[i], by * plain[i]) << dtype_info(type).name << ", row " << row;
      }
    }
  }
}

// Lists of many lengths, none, and more than a tile has.
TEST_F(CudaHalfPrefill, ExpertsOfManyLengthsAreRight) {
  constexpr std::int64_t kPairs = 900;
  constexpr std::int64_t kListed = 899;  // the last pair is in no list
  const std::vector<std::int32_t> offsets = {0, 0, 1, 9, 9, 25, 58, 123, 251, 511, kListed};
  const auto n_experts = static_cast<std::int64_t>(offsets.size()) - 1;
  std::vector<std::int32_t> pairs(kPairs);
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = static_cast<std::int32_t>(i * 7 % kPairs);
  for (const DType type : kHalfTypes) {
    for (const std::int64_t n : {200, 44, 131}) {
      for (const DType out : {DType::f32, DType::bf16}) {
        CaseBuilder b(5, Layout::dense);
        const Case both = b.finish("gate and up", MoeGateUp{.x = b.values(DType::f32, {kPairs / 2, 520}),
                                                            .gate = b.weights(type, {n_experts, n, 520}),
                                                            .up = b.weights(type, {n_experts, n, 520}),
                                                            .offsets = b.ints(DType::i32, {n_experts + 1}, offsets),
                                                            .row_pair = b.ints(DType::i32, {kPairs}, pairs),
                                                            .top_k = 2,
                                                            .phase = Phase::prefill,
                                                            .out = b.output(out, {kPairs, n})});
        CaseBuilder d(6, Layout::dense);
        const Case down = d.finish("down", MoeDown{.x = d.values(DType::f32, {kPairs, 392}),
                                                   .down = d.weights(type, {n_experts, n, 392}),
                                                   .offsets = d.ints(DType::i32, {n_experts + 1}, offsets),
                                                   .phase = Phase::prefill,
                                                   .out = d.output(out, {kPairs, n})});
        for (const Case* one : {&both, &down}) {
          const std::vector<std::uint32_t> bits = execute(*one, *gpu_).outputs.at("out");
          std::vector<float> values;
          for (const std::uint32_t word : bits) values.push_back(std::bit_cast<float>(word));
          EXPECT_LT(off_by(std::span(values).first(static_cast<std::size_t>(kListed * n)),
                           execute(*one, reference_).outputs.at("out")),
                    2 * reach(type) + (out == DType::bf16 ? 1e-5 : 0))
              << one->name << ", " << dtype_info(type).name << ", " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace conclave::test
