// Products of rows that are neither few nor many with whole matrices: dense_rows, and what is on either side of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "backends/cpu/cpu_device.h"
#include "backends/cuda/on_device.h"
#include "ops/matmul.h"
#include "ops/moe_shared_expert.h"

namespace conclave::test {
namespace {

class CudaDense : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  }
};

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), [](float x) { return std::bit_cast<std::uint32_t>(x); });
  return without_payloads(std::move(bits));
}

TEST_F(CudaDense, ProductsHaveTheBitsOfTheCpu) {
  CudaDevice gpu;
  CpuDevice cpu({.threads = 2});
  struct Kind {
    DType type;
    std::int64_t n;
    std::int64_t k;
  };
  // One superblock, some, eight; rounds of eight, whole and not; more parts than multiprocessors; many columns. The last
  // two are those that 64 rows of wgmma have 40 columns of, or 32.
  for (const Kind& kind : {Kind{DType::q5_k, 100, 256}, Kind{DType::q5_k, 40, 768}, Kind{DType::q4_k, 1, 1280},
                           Kind{DType::q4_k, 200, 2048}, Kind{DType::q6_k, 130, 2816}, Kind{DType::q4_k, 2100, 4096},
                           Kind{DType::q4_k, 48, 6400}, Kind{DType::q6_k, 5000, 2048}, Kind{DType::q6_k, 17000, 512},
                           Kind{DType::q4_k, 4101, 2048}, Kind{DType::q6_k, 2500, 2048}}) {
    for (const std::int64_t rows : {2, 5, 8, 16, 17, 61, 64, 128, 129}) {
      CaseBuilder b(static_cast<std::uint64_t>(rows), Layout::dense);
      std::vector<float> x(static_cast<std::size_t>(rows * kind.k));
      for (float& v : x) v = static_cast<float>(b.rng.normal());
      x[static_cast<std::size_t>(rows / 2 * kind.k + 7)] = NAN;  // a row that has no int8 form
      const Matmul op{.x = b.floats(DType::f32, {rows, kind.k}, x),
                      .w = b.weights(kind.type, {kind.n, kind.k}),
                      .bias = b.values(DType::f32, {kind.n}),
                      .live = b.live(rows - 1),
                      .out = b.output(DType::f32, {rows, kind.n})};
      const Case one = b.finish("dense", op);
      const std::vector<std::uint32_t> want = without_payloads(execute(one, cpu).outputs.at("out"));
      OnDevice on(one, gpu);
      auto product = std::get<Matmul>(on.op);
      product.w = gpu.prepare(std::span(&product.w, 1))[0];
      gpu.run(product);
      EXPECT_EQ(bits_of(on.floats(product.out)), want)
          << dtype_info(kind.type).name << " [" << kind.n << ", " << kind.k << "], " << rows << " rows";
    }
  }
}

TEST_F(CudaDense, ATokensSharedExpertIsTheSameInAnyBatch) {
  CudaDevice device;
  constexpr std::int64_t kTokens = 200;
  constexpr std::int64_t kModel = 2048;
  for (const DType type : {DType::q4_k, DType::q5_k}) {
    for (const std::int64_t d_shared : {768, 4352}) {
      CaseBuilder b(3, Layout::dense);
      const MoeSharedExpert op{.x = b.values(DType::f32, {kTokens, kModel}),
                               .gate = b.weights(type, {d_shared, kModel}),
                               .up = b.weights(type, {d_shared, kModel}),
                               .down = b.weights(type, {kModel, d_shared}),
                               .hidden = b.output(DType::f32, {kTokens, d_shared}),
                               .out = b.output(DType::f32, {kTokens, kModel})};
      OnDevice on(b.finish("shared", op), device);
      const auto whole = std::get<MoeSharedExpert>(on.op);
      device.run(whole);
      const std::vector<float> want = on.floats(whole.out);
      for (const std::int64_t count : {1, 4, 5, 16, 17, 64, 128}) {
        MoeSharedExpert part = whole;
        for (Tensor* t : {&part.x, &part.hidden, &part.out}) *t = slice(*t, 0, 60, count);
        on.put(part.out, std::vector<std::byte>(static_cast<std::size_t>(count * kModel * 4)));
        device.run(part);
        EXPECT_EQ(on.floats(whole.out), want) << dtype_info(type).name << ", " << count << " tokens of " << d_shared;
      }
    }
  }
}

}  // namespace
}  // namespace conclave::test
