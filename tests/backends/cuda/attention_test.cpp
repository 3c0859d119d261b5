#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backends/cuda/on_device.h"
#include "support/case.h"

namespace conclave::test {
namespace {

struct Shape {
  DType cache;
  std::int64_t d, n_heads, n_kv_heads;
  std::int32_t first = 1150;  // of a run of tokens
  Phase phase = Phase::decode;
};

// Attention over two sequences of a cache with scattered pages: a long run of one, then tokens of both in turns. A
// value of the longer one is NaN: tokens before it must not notice.
Case mixed_attention(const Shape& shape) {
  constexpr std::int64_t kPage = 16;
  constexpr std::int32_t kRun = 150;
  const auto& [cache, d, n_heads, n_kv_heads, first, phase] = shape;
  const std::int64_t n_pages = (first + kRun + 140) / kPage;  // of a sequence
  CaseBuilder b(7, Layout::dense);
  std::vector<std::int32_t> pages(2 * n_pages);
  std::iota(pages.begin(), pages.end(), 0);
  for (std::size_t i = pages.size(); i > 1; --i)
    std::swap(pages[i - 1], pages[static_cast<std::size_t>(b.rng.integer(0, static_cast<std::int64_t>(i) - 1))]);
  std::vector<float> values(static_cast<std::size_t>(2 * n_pages * kPage * n_kv_heads * d));
  for (float& v : values) v = static_cast<float>(b.rng.normal());
  const std::int32_t spoiled = first + 77;
  const std::int64_t row = pages[spoiled / kPage] * kPage + spoiled % kPage;
  values[static_cast<std::size_t>(row * n_kv_heads * d)] = NAN;
  pages[20] = -1;  // a page is missing
  std::vector<std::int32_t> seqs;
  std::vector<std::int32_t> positions;
  for (std::int32_t i = 0; i < kRun; ++i) seqs.push_back(0), positions.push_back(first + i);
  for (std::int32_t i = 0; i < 30; ++i) seqs.push_back(i % 2), positions.push_back(40 * i);
  const auto n = static_cast<std::int64_t>(seqs.size());
  const Attention op{.q = b.values(DType::f32, {n, n_heads, d}, 3),
                     .kv = {.k = b.weights(cache, {2 * n_pages, kPage, n_kv_heads, d}),
                            .v = b.floats(cache, {2 * n_pages, kPage, n_kv_heads, d}, values),
                            .pages = b.ints(DType::i32, {2, n_pages}, pages)},
                     .lengths = b.ints(DType::i32, {2}, {first + kRun, 1000}),
                     .seqs = b.ints(DType::i32, {n}, seqs),
                     .positions = b.ints(DType::i32, {n}, positions),
                     .scale = 0.3F,
                     .phase = phase,
                     .out = b.output(DType::f32, {n, n_heads, d})};
  return b.finish("attention", op);
}

TEST(CudaAttention, IsTheSameForATokenAloneAndInAnyBatch) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  // Contexts long enough for several ranges; of prompts, with rows so few that blocks share them and so many that not.
  for (const Shape& shape :
       {Shape{DType::f16, 128, 32, 4}, Shape{DType::f16, 64, 4, 4}, Shape{DType::f16, 80, 20, 1},
        Shape{DType::f16, 256, 8, 2}, Shape{DType::bf16, 128, 8, 1}, Shape{DType::f16, 128, 32, 4, 5000},
        Shape{DType::f16, 128, 32, 4, 8100}, Shape{DType::f16, 64, 6, 2, 8100},
        Shape{DType::f16, 128, 32, 4, 1150, Phase::prefill}, Shape{DType::f16, 128, 64, 8, 4400, Phase::prefill},
        Shape{DType::f16, 64, 4, 4, 4400, Phase::prefill}, Shape{DType::f16, 128, 20, 1, 4400, Phase::prefill},
        Shape{DType::f16, 80, 20, 1, 1150, Phase::prefill}}) {
    const Case whole = mixed_attention(shape);
    const auto& all = std::get<Attention>(whole.op);
    const std::int64_t n_tokens = all.q.dim(0);
    const std::int64_t width = shape.n_heads * shape.d;
    const Outcome want = execute(whole, device);
    for (const std::int64_t count : {1, 3, 16, 17, 64}) {
      for (std::int64_t first = 0; first + count <= n_tokens; first += count == 1 ? 7 : count) {
        Attention op = all;
        for (Tensor* t : {&op.q, &op.seqs, &op.positions, &op.out}) *t = slice(*t, 0, first, count);
        Case part = whole;
        part.op = op;
        ASSERT_EQ(without_payloads(rows_of(execute(part, device), "out", 0, count, width)),
                  without_payloads(rows_of(want, "out", first, count, width)))
            << shape.d << " wide, tokens " << first << " and " << count - 1 << " more";
      }
    }
  }
}

// Values that are not seen may be anything: the largest, which meet weights of 0 in the same instruction as small ones
// that are seen, or no numbers at all.
TEST(CudaAttention, DoesNotNoticeValuesThatATokenDoesNotSee) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  constexpr std::int64_t kPage = 16;
  constexpr std::int64_t kPages = 24;
  constexpr std::int32_t kFirst = 245;   // its tokens lie on both sides of position 256
  constexpr std::int64_t kTokens = 136;  // so many are taken together, be they prompts or not
  constexpr std::int64_t kLooked = 24;   // at so many
  CudaDevice device;
  for (const Phase phase : {Phase::decode, Phase::prefill}) {
    for (const std::int64_t d : {64, 128}) {
      const auto run = [&](std::int32_t seen, float other) {
        CaseBuilder b(8, Layout::dense);
        std::vector<std::int32_t> pages(kPages);
        std::iota(pages.begin(), pages.end(), 0);
        std::vector<float> values(static_cast<std::size_t>(kPages * kPage * d));
        for (std::size_t i = 0; i < values.size(); ++i) {
          const float small = static_cast<float>(b.rng.normal()) * 0x1p-12F;
          values[i] = static_cast<std::int64_t>(i) / d < seen ? small : other;
        }
        std::vector<std::int32_t> positions(kTokens);
        std::iota(positions.begin(), positions.end(), kFirst);
        const Attention op{.q = b.values(DType::f32, {kTokens, 8, d}, 3),
                           .kv = {.k = b.weights(DType::f16, {kPages, kPage, 1, d}),
                                  .v = b.floats(DType::f16, {kPages, kPage, 1, d}, values),
                                  .pages = b.ints(DType::i32, {1, kPages}, pages)},
                           .lengths = b.ints(DType::i32, {1}, {kPages * kPage}),
                           .seqs = b.ints(DType::i32, {kTokens}, std::vector<std::int32_t>(kTokens, 0)),
                           .positions = b.ints(DType::i32, {kTokens}, positions),
                           .scale = 0.3F,
                           .phase = phase,
                           .out = b.output(DType::f32, {kTokens, 8, d})};
        return execute(b.finish("attention", op), device);
      };
      for (std::int64_t token = 0; token < kLooked; ++token) {
        const std::int32_t seen = kFirst + static_cast<std::int32_t>(token) + 1;
        const auto want = rows_of(run(seen, 0), "out", 0, token + 1, 8 * d);
        for (const float other : {65504.0F, -1.0F, INFINITY, NAN}) {
          ASSERT_EQ(rows_of(run(seen, other), "out", 0, token + 1, 8 * d), want)
              << d << " wide, " << other << " from position " << seen << " on";
        }
      }
    }
  }
}

}  // namespace
}  // namespace conclave::test
