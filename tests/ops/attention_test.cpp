#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "op_test_support.h"
#include "ops/kv_write.h"

namespace conclave::test {
namespace {

using Values = std::vector<float>;
using Ints = std::vector<std::int32_t>;

// One sequence, one head of keys and of values one wide, all in one page; queries of one head.
struct Line {
  Values keys;
  Values values;
  Values queries;
  Ints positions;
  std::int32_t length = 0;
  float scale = 1;
};

Values attended(const Line& line) {
  Host b(1, Layout::padded);
  const auto n_keys = static_cast<std::int64_t>(line.keys.size());
  const auto n_tokens = static_cast<std::int64_t>(line.queries.size());
  const Attention op{.q = b.f32({n_tokens, 1, 1}, line.queries),
                     .kv = {.k = b.f32({1, n_keys, 1, 1}, line.keys),
                            .v = b.f32({1, n_keys, 1, 1}, line.values),
                            .pages = b.i32({1, 1}, {0})},
                     .lengths = b.i32({1}, {line.length}),
                     .seqs = b.i32({n_tokens}, Ints(line.queries.size(), 0)),
                     .positions = b.i32({n_tokens}, line.positions),
                     .scale = line.scale,
                     .out = b.out_f32({n_tokens, 1, 1})};
  run(op);
  return floats_of(op.out);
}

TEST(Attention, WeighsValuesByTheSoftmaxOfTheScores) {
  // Scores 0 and ln 3: shares 1/4 and 3/4.
  const float ln3 = std::log(3.0F);
  const Line line{.keys = {0, ln3}, .values = {8, 4}, .queries = {1}, .positions = {1}, .length = 2};
  EXPECT_NEAR(attended(line)[0], 5, 1e-6);
  // The scale multiplies the scores: 2 ln 3 gives shares 1/10 and 9/10.
  EXPECT_NEAR(
      attended({.keys = {0, ln3}, .values = {10, 20}, .queries = {1}, .positions = {1}, .length = 2, .scale = 2})[0],
      19, 1e-5);
  // Equal scores: the mean.
  EXPECT_EQ(attended({.keys = {7, 7, 7}, .values = {1, 2, 6}, .queries = {1}, .positions = {2}, .length = 3})[0], 3);
}

TEST(Attention, SeesItsOwnPositionAndThoseBeforeIt) {
  const Values out = attended({.keys = {0, 0, 0, 0},
                               .values = {4, 8, 0, 100},
                               .queries = {1, 1, 1, 1},
                               .positions = {0, 1, 2, 3},
                               .length = 4});
  EXPECT_EQ(out, (Values{4, 6, 4, 28}));
}

TEST(Attention, SeesNoFurtherThanTheLength) {
  const Line line{.keys = {0, 0, 0, 0}, .values = {4, 8, 0, 100}, .queries = {1, 1}, .positions = {1, 3}, .length = 2};
  EXPECT_EQ(attended(line), (Values{6, 6}));
}

TEST(Attention, GivesZerosWithoutAnyCachedPosition) {
  EXPECT_EQ(attended({.keys = {1}, .values = {5}, .queries = {1}, .positions = {0}, .length = 0}), (Values{0}));
  EXPECT_EQ(attended({.keys = {1}, .values = {5}, .queries = {1}, .positions = {-1}, .length = 1}), (Values{0}));
  EXPECT_EQ(attended({.keys = {1}, .values = {5}, .queries = {1}, .positions = {0}, .length = -3}), (Values{0}));
}

TEST(Attention, IsTheSameForShiftedScores) {
  const Line line{.keys = {0, 1, 3}, .values = {1, 20, 300}, .queries = {1}, .positions = {2}, .length = 3};
  Line shifted = line;
  for (float& key : shifted.keys) key += 1000;
  EXPECT_EQ(attended(shifted), attended(line));
}

TEST(Attention, FollowsASharpScoreWithoutOverflow) {
  EXPECT_EQ(attended({.keys = {-1e30F, 1e30F}, .values = {3, 7}, .queries = {1e8F}, .positions = {1}, .length = 2}),
            (Values{7}));
}

TEST(Attention, SharesAKvHeadAmongARunOfHeads) {
  Host b(1, Layout::padded);
  // Six heads over two KV heads: heads 0 to 2 read KV head 0, heads 3 to 5 KV head 1.
  const Attention op{
      .q = b.f32({1, 6, 1}, Values(6, 1)),
      .kv = {.k = b.f32({1, 1, 2, 1}, {0, 0}), .v = b.f32({1, 1, 2, 2}, {1, 2, 3, 4}), .pages = b.i32({1, 1}, {0})},
      .lengths = b.i32({1}, {1}),
      .seqs = b.i32({1}, {0}),
      .positions = b.i32({1}, {0}),
      .out = b.out_f32({1, 6, 2})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}));
}

TEST(Attention, ReadsTheKeysOfTheSameHead) {
  Host b(1, Layout::padded);
  // KV head 0 prefers position 0, KV head 1 position 1.
  const Attention op{.q = b.f32({1, 2, 1}, {1, 1}),
                     .kv = {.k = b.f32({1, 2, 2, 1}, {1000, 0, 0, 1000}),
                            .v = b.f32({1, 2, 2, 1}, {1, 2, 3, 4}),
                            .pages = b.i32({1, 1}, {0})},
                     .lengths = b.i32({1}, {2}),
                     .seqs = b.i32({1}, {0}),
                     .positions = b.i32({1}, {1}),
                     .out = b.out_f32({1, 2, 1})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{1, 4}));
}

TEST(Attention, GivesATokenWithoutASequenceZeros) {
  Host b(1, Layout::padded);
  const Attention op{.q = b.values(DType::f32, {4, 1, 2}),
                     .kv = {.k = b.values(DType::f32, {2, 1, 1, 2}),
                            .v = b.values(DType::f32, {2, 1, 1, 2}),
                            .pages = b.i32({2, 1}, {0, 1})},
                     .lengths = b.i32({2}, {1, 1}),
                     .seqs = b.i32({4}, {-1, 2, INT32_MAX, 1}),
                     .positions = b.i32({4}, {0, 0, 0, 0}),
                     .out = b.out_f32({4, 1, 2})};
  run(op);
  const Values out = floats_of(op.out);
  EXPECT_EQ(Values(out.begin(), out.begin() + 6), Values(6, 0));
  EXPECT_EQ(Values(out.begin() + 6, out.end()), floats_of(select_outer(op.kv.v, 1)));
}

TEST(Attention, SkipsAPositionWhosePageIsOutOfRange) {
  Host b(1, Layout::padded);
  // Pages of one position; of five pages the second, fourth and fifth cannot be found, and position 5 has none at all. The
  // view is a part of larger tensors, where every index one past its end would find something.
  const Attention op{.q = b.f32({1, 1, 1}, {1}),
                     .kv = {.k = slice(b.f32({4, 1, 1, 1}, {0, 0, 0, 0}), 0, 1, 2),
                            .v = slice(b.f32({4, 1, 1, 1}, {1e6F, 10, 30, 1e6F}), 0, 1, 2),
                            .pages = slice(b.i32({1, 6}, {0, -1, 1, 2, INT32_MAX, 0}), 1, 0, 5)},
                     .lengths = b.i32({1}, {6}),
                     .seqs = b.i32({1}, {0}),
                     .positions = b.i32({1}, {5}),
                     .out = b.out_f32({1, 1, 1})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{20}));
}

// Three sequences whose content follows from sequence and position alone, in pages of any size and order.
class PagedCache {
 public:
  static constexpr std::int32_t kLengths[] = {13, 0, 29};
  static constexpr std::int64_t kHeads = 2;
  static constexpr std::int64_t kWidth = 32;

  PagedCache(std::int64_t page_size, std::uint64_t order_seed, DType type) : host_(order_seed, Layout::padded) {
    const std::int64_t max_pages = (29 + page_size - 1) / page_size;
    const std::int64_t n_pages = 3 * max_pages + 1;
    Ints order(static_cast<std::size_t>(n_pages));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(host_.rng.integer(0, static_cast<std::int64_t>(i) - 1))]);
    }
    order.resize(static_cast<std::size_t>(3 * max_pages));
    const Dims dims = {n_pages, page_size, kHeads, kWidth};
    const Values stale(static_cast<std::size_t>(n_pages * page_size * kHeads * kWidth), 1e4F);
    kv_ = {.k = host_.floats(type, dims, stale),
           .v = host_.floats(type, dims, stale),
           .pages = host_.i32({3, max_pages}, order)};
    fill();
  }

  // Attention of the queries at the end of each sequence, those in `tokens` alone.
  std::vector<std::vector<std::uint32_t>> attend(const Ints& tokens) {
    const Ints seqs = {0, 0, 2, 2, 2, 1, 0};
    const Ints positions = {12, 11, 28, 3, 0, 0, 5};
    Host content(77);
    const Tensor all = content.values(DType::f32, {7, 4, kWidth}, 0.5);
    const auto n = static_cast<std::int64_t>(tokens.size());
    Values q;
    Ints own_seqs;
    Ints own_positions;
    for (const std::int32_t t : tokens) {
      const Values row = floats_of(select_outer(all, t));
      q.insert(q.end(), row.begin(), row.end());
      own_seqs.push_back(seqs[static_cast<std::size_t>(t)]);
      own_positions.push_back(positions[static_cast<std::size_t>(t)]);
    }
    const Attention op{.q = host_.f32({n, 4, kWidth}, q),
                       .kv = kv_,
                       .lengths = host_.i32({3}, {kLengths[0], kLengths[1], kLengths[2]}),
                       .seqs = host_.i32({n}, own_seqs),
                       .positions = host_.i32({n}, own_positions),
                       .scale = 0.3F,
                       .out = host_.out_f32({n, 4, kWidth})};
    run(op);
    std::vector<std::vector<std::uint32_t>> rows;
    for (std::int64_t t = 0; t < n; ++t) rows.push_back(dense_bits(select_outer(op.out, t)));
    return rows;
  }

 private:
  void fill() {
    Ints seqs;
    Ints positions;
    for (std::int32_t s = 0; s < 3; ++s) {
      for (std::int32_t p = 0; p < kLengths[s]; ++p) seqs.push_back(s), positions.push_back(p);
    }
    const auto n = static_cast<std::int64_t>(seqs.size());
    Host content(5);
    const KvWrite op{.k = content.values(DType::f32, {n, kHeads, kWidth}),
                     .v = content.values(DType::f32, {n, kHeads, kWidth}),
                     .seqs = host_.i32({n}, seqs),
                     .positions = host_.i32({n}, positions),
                     .kv = kv_};
    run(op);
  }

  Host host_;
  KvView kv_;
};

const Ints kAllTokens = {0, 1, 2, 3, 4, 5, 6};

TEST(Attention, GivesTheSameBitsForAnyPageSizeAndAnyOrderOfPages) {
  for (const DType type : {DType::f32, DType::f16, DType::q8_0}) {
    const auto expected = PagedCache(1, 1, type).attend(kAllTokens);
    for (const std::int64_t page_size : {1, 2, 7, 16, 29, 64}) {
      for (const std::uint64_t order : {1U, 2U, 3U}) {
        EXPECT_EQ(PagedCache(page_size, order, type).attend(kAllTokens), expected)
            << dtype_info(type).name << ", pages of " << page_size << ", order " << order;
      }
    }
  }
}

TEST(Attention, GivesEveryTokenTheBitsItHasAlone) {
  PagedCache cache(4, 9, DType::bf16);
  const auto together = cache.attend(kAllTokens);
  for (const std::int32_t t : kAllTokens) {
    EXPECT_EQ(cache.attend({t})[0], together[static_cast<std::size_t>(t)]) << "token " << t;
  }
  const auto other_order = cache.attend({6, 2, 0});
  EXPECT_EQ(other_order[0], together[6]);
  EXPECT_EQ(other_order[1], together[2]);
  EXPECT_EQ(other_order[2], together[0]);
}

TEST(Attention, ReadsBackWhatKvWriteWrote) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q8_0}) {
    Host b(8, Layout::padded);
    KvWrite write{
        .k = b.values(DType::f32, {1, 1, 32}),
        .v = b.values(DType::f32, {1, 1, 32}),
        .seqs = b.i32({1}, {1}),
        .positions = b.i32({1}, {0}),
        .kv = {
            .k = b.weights(type, {3, 2, 1, 32}), .v = b.weights(type, {3, 2, 1, 32}), .pages = b.i32({2, 1}, {0, 2})}};
    run(write);
    const Attention op{.q = b.values(DType::f32, {1, 1, 32}),
                       .kv = write.kv,
                       .lengths = b.i32({2}, {0, 1}),
                       .seqs = write.seqs,
                       .positions = write.positions,
                       .out = b.out_f32({1, 1, 32})};
    run(op);
    // One position: its value, as cached.
    EXPECT_EQ(floats_of(op.out), floats_of(select_outer(select_outer(write.kv.v, 2), 0))) << dtype_info(type).name;
    const Values exact = floats_of(write.v);
    const Values out = floats_of(op.out);
    for (std::size_t i = 0; i < 32; ++i) EXPECT_NEAR(out[i], exact[i], 0.02) << dtype_info(type).name;
  }
}

TEST(Attention, LeavesTokensPastLiveAlone) {
  for (const auto& [live, written] : {std::pair{2, 2}, {0, 0}, {-1, 0}, {4, 3}}) {
    Host b(1, Layout::padded);
    const Attention op{.q = b.values(DType::f32, {3, 2, 2}),
                       .kv = {.k = b.values(DType::f32, {1, 2, 1, 2}),
                              .v = b.values(DType::f32, {1, 2, 1, 2}),
                              .pages = b.i32({1, 1}, {0})},
                       .lengths = b.i32({1}, {2}),
                       .seqs = b.i32({3}, {0, -1, 0}),
                       .positions = b.i32({3}, {1, 1, 1}),
                       .live = b.live(live),
                       .out = b.output(DType::bf16, {3, 2, 2})};
    run(op);
    for (std::int64_t r = 0; r < 3; ++r) EXPECT_EQ(untouched(slice(op.out, 0, r, 1)), r >= written) << "live " << live;
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const Attention valid{.q = b.values(DType::f32, {3, 4, 8}),
                        .kv = {.k = b.values(DType::f32, {5, 4, 2, 8}),
                               .v = b.values(DType::f32, {5, 4, 2, 6}),
                               .pages = b.integers({2, 3}, 0, 4)},
                        .lengths = b.i32({2}, {1, 2}),
                        .seqs = b.i32({3}, {0, 1, 1}),
                        .positions = b.i32({3}, {0, 0, 1}),
                        .live = b.live(3),
                        .out = b.out_f32({3, 4, 6})};
  expect_all_needed_but(valid, {"live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect(
      [&](Attention& op) {
        op.q = b.values(DType::f32, {3, 4, 6});
      },
      "attention: q is [3,4,6], expected [any,any,8]");
  expect([&](Attention& op) { op.q = b.integers({3, 4, 8}, 0, 1); }, "attention: q is i32, expected f32, f16, bf16");
  expect([&](Attention& op) { op.q = b.values(DType::f32, {3, 5, 8}); }, "attention: 2 KV heads do not divide 5 heads");
  expect([&](Attention& op) { op.q = b.values(DType::f32, {3, 1, 8}); }, "attention: 2 KV heads do not divide 1 heads");
  expect([&](Attention& op) { op.lengths = b.integers({3}, 0, 1); }, "attention: lengths is [3], expected [2]");
  expect([&](Attention& op) { op.seqs = b.integers({2}, 0, 1); }, "attention: seqs is [2], expected [3]");
  expect([&](Attention& op) { op.positions = b.integers({1}, 0, 1); }, "attention: positions is [1], expected [3]");
  expect([&](Attention& op) { op.live = b.values(DType::f32, {1}); }, "attention: live is f32, expected i32");
  expect([&](Attention& op) { op.out = b.out_f32({3, 4, 8}); }, "attention: out is [3,4,8], expected [3,4,6]");
  expect([&](Attention& op) { op.out = b.out_i32({3, 4, 6}); }, "attention: out is i32, expected f32, f16, bf16");
  expect([](Attention& op) { op.scale = 0; }, "attention: scale is 0, expected a finite number above 0");
  expect([](Attention& op) { op.scale = NAN; }, "attention: scale is nan, expected a finite number above 0");
  expect(
      [&](Attention& op) {
        op.kv.k = b.values(DType::f32, {5, 4, 2, 7});
      },
      "attention: q is [3,4,8], expected [any,any,7]");
  expect(
      [&](Attention& op) {
        op.kv.v = b.values(DType::f32, {4, 4, 2, 6});
      },
      "attention: v_pool is [4,4,2,6], expected [5,4,2,any]");
  expect(
      [&](Attention& op) {
        op.kv.v = b.weights(DType::q4_k, {5, 4, 2, 256});
      },
      "attention: v_pool is q4_k, expected f32, f16, bf16, q8_0");
  expect(
      [&](Attention& op) {
        op.kv.k = b.values(DType::f32, {5, 4, 0, 8});
        op.kv.v = b.values(DType::f32, {5, 4, 0, 6});
      },
      "attention: 0 KV heads do not divide 4 heads");
  expect(
      [&](Attention& op) {
        op.kv.k = b.values(DType::f32, {5, 0, 2, 8});
        op.kv.v = b.values(DType::f32, {5, 0, 2, 6});
      },
      "attention: page_size is 0");
}

}  // namespace
}  // namespace conclave::test
