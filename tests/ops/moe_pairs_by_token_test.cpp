#include "ops/moe_pairs_by_token.h"

#include <gtest/gtest.h>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Ints = std::vector<std::int32_t>;

MoePairsByToken pairs_of(Host& host, const Tensor& experts, std::int64_t n_experts, const Tensor& live = {}) {
  return {.experts = experts,
          .live = live,
          .n_experts = n_experts,
          .packed_row = host.out_i32({experts.dim(0), experts.dim(1)}),
          .row_token = host.out_i32({experts.dim(0) * experts.dim(1)}),
          .offsets = host.out_i32({n_experts + 1})};
}

TEST(MoePairsByToken, NamesTheTokenOfEveryPackedRow) {
  Host host;
  // As in moe_group's example: the packed rows are pairs 1, 4 | 3 | 0, 2, 5, which are of tokens 0, 2 | 1 | 0, 1, 2.
  const MoePairsByToken op = pairs_of(host, host.i32({3, 2}, {2, 0, 2, 1, 0, 2}), 4);
  run(op);
  EXPECT_EQ(ints_of(op.row_token), (Ints{0, 2, 1, 0, 1, 2}));
  EXPECT_EQ(ints_of(op.packed_row), (Ints{3, 0, 4, 2, 1, 5}));
  EXPECT_EQ(ints_of(op.offsets), (Ints{0, 2, 3, 6, 6}));
}

TEST(MoePairsByToken, SkipsInvalidIdsAndDeadTokensAndCountsDuplicatesTwice) {
  Host host;
  // Token 0 asks for expert 1 twice, token 1 for none there is, token 2 is dead.
  const MoePairsByToken op = pairs_of(host, host.i32({3, 2}, {1, 1, -1, 2, 0, 1}), 2, host.live(2));
  run(op);
  EXPECT_EQ(ints_of(op.row_token), (Ints{0, 0, -1, -1, -1, -1}));
  EXPECT_EQ(ints_of(op.packed_row), (Ints{0, 1, -1, -1, -1, -1}));
  EXPECT_EQ(ints_of(op.offsets), (Ints{0, 0, 2}));
}

TEST(MoePairsByToken, AgreesWithMoeGroup) {
  Host host(31);
  for (int round = 0; round < 200; ++round) {
    const RoutingShape shape = random_routing(host.rng, 30, 20);
    const MoePairsByToken op =
        pairs_of(host, ids_tensor(host, shape, make_ids(host.rng, shape)), shape.n_experts, live_tensor(host, shape));
    const MoeGroup group{.experts = op.experts,
                         .live = op.live,
                         .n_experts = op.n_experts,
                         .out = {.offsets = host.out_i32({shape.n_experts + 1}),
                                 .row_pair = host.out_i32({shape.n_tokens * shape.top_k}),
                                 .pair_row = host.out_i32({shape.n_tokens, shape.top_k})}};
    run(op);
    run(group);
    ASSERT_EQ(ints_of(op.offsets), ints_of(group.out.offsets));
    ASSERT_EQ(ints_of(op.packed_row), ints_of(group.out.pair_row));
    Ints tokens = ints_of(group.out.row_pair);
    for (std::int32_t& pair : tokens) pair = pair < 0 ? -1 : pair / static_cast<std::int32_t>(shape.top_k);
    ASSERT_EQ(ints_of(op.row_token), tokens);
  }
}

MoePairsByToken good_pairs(Host& host) {
  return pairs_of(host, host.i32({3, 2}, {2, 0, 2, 1, 0, 2}), 4, host.live(3));
}

TEST(MoePairsByTokenRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_pairs(host), {"live"});
  expect_bad_views_refused(good_pairs(host));
}

TEST(MoePairsByTokenRefuses, WrongTypesShapesAndCounts) {
  Host host;
  const MoePairsByToken op = good_pairs(host);
  const auto refused = [&](auto edit, const std::string& text) {
    expect_refusal(op, edit, "moe_pairs_by_token: " + text);
  };
  refused([&](auto& o) { o.experts = host.out_u32({3, 2}); }, "experts is u32, expected i32");
  refused([&](auto& o) { o.experts = host.out_i32({6}); }, "experts is [6], expected [any,any]");
  refused([&](auto& o) { o.live = host.out_i32({2}); }, "live is [2], expected [1]");
  refused([](auto& o) { o.n_experts = 0; }, "n_experts is 0, expected 1 to 1048576");
  refused([](auto& o) { o.n_experts = 3; }, "offsets is [5], expected [4]");
  refused([&](auto& o) { o.offsets = host.out_f32({5}); }, "offsets is f32, expected i32");
  refused([&](auto& o) { o.packed_row = host.out_i32({6, 1}); }, "packed_row is [6,1], expected [3,2]");
  refused([&](auto& o) { o.packed_row = host.out_f32({3, 2}); }, "packed_row is f32, expected i32");
  refused([&](auto& o) { o.row_token = host.out_i32({3}); }, "row_token is [3], expected [6]");
  refused([&](auto& o) { o.row_token = host.out_u32({6}); }, "row_token is u32, expected i32");
  refused([](auto& o) { o.experts = repeated(o.experts, 1 << 30); }, "1073741824 tokens with 2 experts each");
}

}  // namespace
}  // namespace conclave::test
