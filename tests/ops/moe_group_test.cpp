#include "ops/moe_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Ints = std::vector<std::int32_t>;

MoeGroup group_of(Host& host, const Tensor& experts, std::int64_t n_experts, const Tensor& live = {}) {
  return {.experts = experts,
          .live = live,
          .n_experts = n_experts,
          .out = {.offsets = host.out_i32({n_experts + 1}),
                  .row_pair = host.out_i32({experts.dim(0) * experts.dim(1)}),
                  .pair_row = host.out_i32({experts.dim(0), experts.dim(1)})}};
}

TEST(MoeGroup, SortsPairsByExpertInTokenThenSlotOrder) {
  Host host;
  // pair         0  1  2  3  4  5      expert 0 has pairs 1 and 4, expert 1 has 3,
  // expert       2  0  2  1  0  2      expert 2 has 0, 2 and 5, expert 3 none
  const MoeGroup op = group_of(host, host.i32({3, 2}, {2, 0, 2, 1, 0, 2}), 4);
  run(op);
  EXPECT_EQ(ints_of(op.out.offsets), (Ints{0, 2, 3, 6, 6}));
  EXPECT_EQ(ints_of(op.out.row_pair), (Ints{1, 4, 3, 0, 2, 5}));
  EXPECT_EQ(ints_of(op.out.pair_row), (Ints{3, 0, 4, 2, 1, 5}));
}

TEST(MoeGroup, SkipsInvalidIds) {
  Host host;
  // Only pairs 1 (expert 1) and 3 (expert 0) name one of the 2 experts.
  const MoeGroup op = group_of(host, host.i32({2, 3}, {-1, 1, 2, 0, INT32_MIN, INT32_MAX}), 2);
  run(op);
  EXPECT_EQ(ints_of(op.out.offsets), (Ints{0, 1, 2}));
  EXPECT_EQ(ints_of(op.out.row_pair), (Ints{3, 1, -1, -1, -1, -1}));
  EXPECT_EQ(ints_of(op.out.pair_row), (Ints{-1, 1, -1, 0, -1, -1}));
}

TEST(MoeGroup, CountsADuplicateTwice) {
  Host host;
  const MoeGroup op = group_of(host, host.i32({2, 2}, {1, 1, 0, 1}), 2);
  run(op);
  EXPECT_EQ(ints_of(op.out.offsets), (Ints{0, 1, 4}));
  EXPECT_EQ(ints_of(op.out.row_pair), (Ints{2, 0, 1, 3}));
  EXPECT_EQ(ints_of(op.out.pair_row), (Ints{1, 2, 0, 3}));
}

TEST(MoeGroup, TokensPastLiveHaveNoRow) {
  Host host;
  const Tensor experts = host.i32({3, 1}, {1, 0, 1});
  MoeGroup op = group_of(host, experts, 2, host.live(2));
  run(op);
  EXPECT_EQ(ints_of(op.out.offsets), (Ints{0, 1, 2}));
  EXPECT_EQ(ints_of(op.out.row_pair), (Ints{1, 0, -1}));
  EXPECT_EQ(ints_of(op.out.pair_row), (Ints{1, 0, -1}));
  op = group_of(host, experts, 2, host.live(-1));
  run(op);
  EXPECT_EQ(ints_of(op.out.offsets), (Ints{0, 0, 0}));
  EXPECT_EQ(ints_of(op.out.pair_row), (Ints{-1, -1, -1}));
  op = group_of(host, experts, 2, host.live(4));
  run(op);
  EXPECT_EQ(ints_of(op.out.offsets), (Ints{0, 1, 3}));
}

TEST(MoeGroup, NoTokensLeaveEveryExpertEmpty) {
  Host host;
  const MoeGroup op = group_of(host, host.i32({0, 2}, {}), 3);
  run(op);
  EXPECT_EQ(ints_of(op.out.offsets), (Ints{0, 0, 0, 0}));
}

TEST(MoeGroup, IsAStableSortOfTheLivePairsAndItsOwnInverse) {
  Host host(21);
  for (int round = 0; round < 300; ++round) {
    const RoutingShape shape = random_routing(host.rng, 40, 40);
    const Ints ids = make_ids(host.rng, shape);
    const MoeGroup op = group_of(host, ids_tensor(host, shape, ids), shape.n_experts, live_tensor(host, shape));
    run(op);

    const std::int64_t n_live = std::clamp<std::int64_t>(shape.live.value_or(shape.n_tokens), 0, shape.n_tokens);
    Ints sorted(static_cast<std::size_t>(n_live * shape.top_k));
    std::iota(sorted.begin(), sorted.end(), 0);
    const auto id = [&](std::int32_t pair) { return ids[static_cast<std::size_t>(pair)]; };
    std::erase_if(sorted, [&](std::int32_t pair) { return id(pair) < 0 || id(pair) >= shape.n_experts; });
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) { return id(a) < id(b); });

    const Ints offsets = ints_of(op.out.offsets);
    ASSERT_EQ(offsets.back(), static_cast<std::int32_t>(sorted.size()));
    for (std::int32_t e = 0; e <= shape.n_experts; ++e) {
      const auto below = std::count_if(sorted.begin(), sorted.end(), [&](std::int32_t pair) { return id(pair) < e; });
      ASSERT_EQ(offsets[static_cast<std::size_t>(e)], below);
    }
    Ints pair_row(ids.size(), -1);
    for (std::size_t r = 0; r < sorted.size(); ++r) pair_row[static_cast<std::size_t>(sorted[r])] = static_cast<int>(r);
    ASSERT_EQ(ints_of(op.out.pair_row), pair_row);
    sorted.resize(ids.size(), -1);
    ASSERT_EQ(ints_of(op.out.row_pair), sorted);
  }
}

MoeGroup good_group(Host& host) {
  return group_of(host, host.i32({3, 2}, {2, 0, 2, 1, 0, 2}), 4, host.live(3));
}

TEST(MoeGroupRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_group(host), {"live"});
  expect_bad_views_refused(good_group(host));
}

TEST(MoeGroupRefuses, WrongTypesShapesAndCounts) {
  Host host;
  const MoeGroup op = good_group(host);
  const auto refused = [&](auto edit, std::string_view text) { expect_refusal(op, edit, text); };
  refused([&](auto& o) { o.experts = host.out_f32({3, 2}); }, "moe_group: experts is f32, expected i32");
  refused([&](auto& o) { o.experts = host.out_i32({6}); }, "moe_group: experts is [6], expected [any,any]");
  refused([&](auto& o) { o.experts = host.out_i32({2, 2}); }, "moe_group: row_pair is [6], expected [4]");
  refused([&](auto& o) { o.live = host.out_i32({3}); }, "moe_group: live is [3], expected [1]");
  refused([&](auto& o) { o.live = host.out_u32({1}); }, "moe_group: live is u32, expected i32");
  refused([](auto& o) { o.n_experts = 0; }, "moe_group: n_experts is 0, expected 1 to 1048576");
  refused([](auto& o) { o.n_experts = 1048577; }, "moe_group: n_experts is 1048577, expected 1 to 1048576");
  refused([](auto& o) { o.n_experts = 5; }, "moe_group: offsets is [5], expected [6]");
  refused([&](auto& o) { o.out.offsets = host.out_u32({5}); }, "moe_group: offsets is u32, expected i32");
  refused([&](auto& o) { o.out.row_pair = host.out_i32({7}); }, "moe_group: row_pair is [7], expected [6]");
  refused([&](auto& o) { o.out.row_pair = host.out_f32({6}); }, "moe_group: row_pair is f32, expected i32");
  refused([&](auto& o) { o.out.pair_row = host.out_i32({2, 3}); }, "moe_group: pair_row is [2,3], expected [3,2]");
  refused([&](auto& o) { o.out.pair_row = host.out_f32({3, 2}); }, "moe_group: pair_row is f32, expected i32");
  refused([](auto& o) { o.experts = repeated(o.experts, 1 << 30); },
          "moe_group: 1073741824 tokens with 2 experts each: pair ids are 32-bit");
}

}  // namespace
}  // namespace conclave::test
