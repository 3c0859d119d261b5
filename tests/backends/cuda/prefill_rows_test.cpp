// Products of prefill rows: bf16, the same bits in any number of rows.
#include <gtest/gtest.h>

#include "backends/cuda/on_device.h"
#include "backends/ref/ref_device.h"
#include "ops/matmul.h"
#include "ops/moe_ffn.h"

namespace conclave::test {
namespace {

class CudaPrefill : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  }
};

TEST_F(CudaPrefill, ProductsOfAnyNumberOfRowsHaveTheSameBits) {
  CudaDevice gpu;
  RefDevice reference;
  constexpr std::int64_t kRows = 600;
  struct Kind {
    DType type;
    std::int64_t n;
    std::int64_t k;
  };
  for (const Kind& kind : {Kind{DType::q4_k, 200, 2048}, Kind{DType::q4_k, 64, 256}, Kind{DType::q4_k, 513, 4096},
                           Kind{DType::q4_k, 96, 768}, Kind{DType::q5_k, 100, 768}, Kind{DType::q6_k, 130, 2816},
                           Kind{DType::q6_k, 1, 512}, Kind{DType::q8_0, 200, 2048}, Kind{DType::q4_0, 70, 2880},
                           Kind{DType::mxfp4, 130, 2880}}) {
    CaseBuilder b(3, Layout::dense);
    const Matmul op{.x = b.values(DType::f32, {kRows, kind.k}),
                    .w = b.weights(kind.type, {kind.n, kind.k}),
                    .bias = b.values(DType::f32, {kind.n}),
                    .phase = Phase::prefill,
                    .out = b.output(DType::f32, {kRows, kind.n})};
    const Case one = b.finish("prefill", op);
    OnDevice on(one, gpu);
    auto whole = std::get<Matmul>(on.op);
    whole.w = gpu.prepare(std::span(&whole.w, 1))[0];
    gpu.run(whole);
    const std::vector<float> want = on.floats(whole.out);
    // bf16 moves a number by 2^-9 of itself at most; scales and minimums are many times as large as what is left of
    // them in a weight of random bits.
    EXPECT_LT(off_by(want, execute(one, reference).outputs.at("out")), 1e-4) << dtype_info(kind.type).name;
    for (const std::int64_t count : {1, 2, 7, 8, 9, 16, 17, 31, 33, 64, 65, 96, 127, 129, 192, 256, 257, 400}) {
      for (const std::int64_t first : {std::int64_t{0}, std::int64_t{37}, kRows - count}) {
        Matmul part = whole;
        for (Tensor* t : {&part.x, &part.out}) *t = slice(*t, 0, first, count);
        on.put(part.out, std::vector<std::byte>(static_cast<std::size_t>(count * kind.n * 4)));
        gpu.run(part);
        ASSERT_EQ(on.floats(whole.out), want) << dtype_info(kind.type).name << " [" << kind.n << ", " << kind.k
                                              << "], rows " << first << " and " << count - 1 << " more";
      }
    }
  }
}

// Lists of many lengths, none, and more than a tile has.
TEST_F(CudaPrefill, ExpertsOfManyLengthsAreRight) {
  CudaDevice gpu;
  RefDevice reference;
  constexpr std::int64_t kPairs = 900;
  const std::vector<std::int32_t> offsets = {0, 0, 1, 9, 9, 25, 58, 123, 251, 511, 899};
  const auto n_experts = static_cast<std::int64_t>(offsets.size()) - 1;
  for (const DType type : {DType::q4_k, DType::q5_k, DType::q6_k, DType::q8_0, DType::mxfp4}) {
    CaseBuilder b(5, Layout::dense);
    std::vector<std::int32_t> pairs(kPairs);
    for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = static_cast<std::int32_t>(i * 7 % kPairs);
    const MoeGateUp op{.x = b.values(DType::f32, {kPairs / 2, 512}),
                       .gate = b.weights(type, {n_experts, 200, 512}),
                       .up = b.weights(type, {n_experts, 200, 512}),
                       .offsets = b.ints(DType::i32, {n_experts + 1}, offsets),
                       .row_pair = b.ints(DType::i32, {kPairs}, pairs),
                       .top_k = 2,
                       .phase = Phase::prefill,
                       .out = b.output(DType::f32, {kPairs, 200})};
    const Case one = b.finish("lists", op);
    OnDevice on(one, gpu);
    auto lists = std::get<MoeGateUp>(on.op);
    for (Tensor* w : {&lists.gate, &lists.up}) *w = gpu.prepare(std::span(w, 1))[0];
    gpu.run(lists);
    std::vector<float> values = on.floats(lists.out);
    values.resize(899 * 200);  // the last pair is in no list
    EXPECT_LT(off_by(values, execute(one, reference).outputs.at("out")), 2e-4) << dtype_info(type).name;
  }
}

// Layers of few tokens have tiles of their own, whose weights come in another way: whole superblocks of hidden values,
// and runs of them that end sooner.
TEST_F(CudaPrefill, LayersOfAnyNumberOfTokensHaveTheSameBits) {
  CudaDevice gpu;
  constexpr std::int64_t kTokens = 700;
  constexpr std::int64_t kExperts = 8;
  constexpr std::int64_t kTopK = 2;
  constexpr std::int64_t kPairs = kTokens * kTopK;
  struct Kind {
    std::int64_t d_model;
    std::int64_t d_ff;
    DType down;
  };
  for (const Kind& kind : {Kind{768, 768, DType::q4_k}, Kind{512, 256, DType::q6_k}, Kind{256, 96, DType::q8_0},
                           Kind{1280, 320, DType::q8_0}, Kind{512, 224, DType::q4_0}}) {
    const std::int64_t d = kind.d_model;
    CaseBuilder b(6, Layout::dense);
    const MoeFfn op{.x = b.values(DType::f32, {kTokens, d}),
                    .logits = b.values(DType::f32, {kTokens, kExperts}),
                    .rule = {.top_k = kTopK},
                    .phase = Phase::prefill,
                    .gate = b.weights(DType::q4_k, {kExperts, kind.d_ff, d}),
                    .up = b.weights(DType::q4_k, {kExperts, kind.d_ff, d}),
                    .down = b.weights(kind.down, {kExperts, d, kind.d_ff}),
                    .routing = {.experts = b.output(DType::i32, {kTokens, kTopK}),
                                .weights = b.output(DType::f32, {kTokens, kTopK})},
                    .groups = {.offsets = b.output(DType::i32, {kExperts + 1}),
                               .row_pair = b.output(DType::i32, {kPairs}),
                               .pair_row = b.output(DType::i32, {kTokens, kTopK})},
                    .hidden = b.output(DType::f32, {kPairs, kind.d_ff}),
                    .expert_out = b.output(DType::f32, {kPairs, d}),
                    .residual = b.values(DType::f32, {kTokens, d})};
    const Case one = b.finish("layer", op);
    OnDevice on(one, gpu);
    auto whole = std::get<MoeFfn>(on.op);
    for (Tensor* w : {&whole.gate, &whole.up, &whole.down}) *w = gpu.prepare(std::span(w, 1))[0];
    const std::vector<float> before = on.floats(whole.residual);
    gpu.run(whole);
    const std::vector<float> want = on.floats(whole.residual);
    for (const std::int64_t count : {1, 20, 65, 130, 300}) {
      const std::int64_t first = 37;
      MoeFfn part = whole;
      for (Tensor* t : {&part.x, &part.logits, &part.routing.experts, &part.routing.weights, &part.groups.pair_row,
                        &part.residual}) {
        *t = slice(*t, 0, first, count);
      }
      for (Tensor* t : {&part.groups.row_pair, &part.hidden, &part.expert_out}) *t = slice(*t, 0, 0, count * kTopK);
      on.put(whole.residual, std::as_bytes(std::span(before)));
      gpu.run(part);
      std::vector<float> expected = before;
      std::copy_n(want.begin() + first * d, count * d, expected.begin() + first * d);
      ASSERT_EQ(on.floats(whole.residual), expected)
          << "[" << d << ", " << kind.d_ff << "], " << count << " tokens, down " << dtype_info(kind.down).name;
    }
  }
}

}  // namespace
}  // namespace conclave::test
