#include "ops/moe_expert_ids.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Ints = std::vector<std::int32_t>;

MoeExpertIds ids_of(Host& host, const Tensor& experts, std::int64_t n_experts, std::int64_t row_stride,
                    const Tensor& live = {}) {
  return {.experts = experts,
          .live = live,
          .n_experts = n_experts,
          .nr0 = 4,
          .nr1 = 2,
          .d_ff = 10,
          .d_model = 8,
          .ids = host.out_i32({n_experts, row_stride}),
          .tpe = host.out_i32({n_experts}),
          .max_rows = host.out_i32({1}),
          .grid_gate_up = host.out_u32({3}),
          .grid_down = host.out_u32({3})};
}

TEST(MoeExpertIds, ListsThePairsOfEachExpertAndLeavesTheRestOfTheRowAlone) {
  Host host;
  constexpr std::int32_t x = kUntouched;
  const MoeExpertIds op = ids_of(host, host.i32({3, 2}, {2, 0, 2, 1, 0, 2}), 4, 7);
  run(op);
  EXPECT_EQ(ints_of(op.ids), (Ints{1, 4, x, x, x, x, x,  //
                                   3, x, x, x, x, x, x,  //
                                   0, 2, 5, x, x, x, x,  //
                                   x, x, x, x, x, x, x}));
  EXPECT_EQ(ints_of(op.tpe), (Ints{2, 1, 3, 0}));
  EXPECT_EQ(ints_of(op.max_rows), (Ints{3}));
  // Rows: ceil(3 / nr1 = 2) = 2. Columns: ceil(d_ff = 10 / nr0 = 4) = 3 and ceil(d_model = 8 / 4) = 2.
  EXPECT_EQ(ints_of(op.grid_gate_up), (Ints{2, 3, 4}));
  EXPECT_EQ(ints_of(op.grid_down), (Ints{2, 2, 4}));
}

TEST(MoeExpertIds, GridsHaveOneBlockOfRowsEvenWithoutARow) {
  Host host;
  const MoeExpertIds nobody = ids_of(host, host.i32({2, 2}, {-1, 3, 7, -9}), 3, 4);
  run(nobody);
  EXPECT_EQ(ints_of(nobody.max_rows), (Ints{0}));
  EXPECT_EQ(ints_of(nobody.tpe), (Ints{0, 0, 0}));
  EXPECT_TRUE(untouched(nobody.ids));
  EXPECT_EQ(ints_of(nobody.grid_gate_up), (Ints{1, 3, 3}));
  EXPECT_EQ(ints_of(nobody.grid_down), (Ints{1, 2, 3}));

  const MoeExpertIds no_tokens = ids_of(host, host.i32({0, 2}, {}), 3, 0);
  run(no_tokens);
  EXPECT_EQ(ints_of(no_tokens.grid_gate_up), (Ints{1, 3, 3}));
}

TEST(MoeExpertIds, GridsRoundUp) {
  Host host;
  const Tensor experts = host.i32({5, 1}, {0, 0, 0, 0, 0});
  const auto rows = [&](std::int64_t nr1) {
    MoeExpertIds op = ids_of(host, experts, 1, 5);
    op.nr1 = nr1;
    run(op);
    return ints_of(op.grid_down)[0];
  };
  EXPECT_EQ(rows(1), 5);
  EXPECT_EQ(rows(4), 2);
  EXPECT_EQ(rows(5), 1);
  EXPECT_EQ(rows(std::numeric_limits<std::int32_t>::max()), 1);
  MoeExpertIds wide = ids_of(host, experts, 1, 5);
  wide.d_ff = std::numeric_limits<std::int32_t>::max();
  wide.nr0 = 2;
  run(wide);
  EXPECT_EQ(ints_of(wide.grid_gate_up)[1], 1 << 30);
}

TEST(MoeExpertIds, OneExpertMayGetEveryPair) {
  Host host;
  const MoeExpertIds op = ids_of(host, host.i32({2, 2}, {1, 1, 1, 1}), 2, 4);
  run(op);
  EXPECT_EQ(ints_of(op.tpe), (Ints{0, 4}));
  EXPECT_EQ(ints_of(slice(op.ids, 0, 1, 1)), (Ints{0, 1, 2, 3}));
}

TEST(MoeExpertIds, ListsAreTheRowsOfTheGroupedRouting) {
  Host host(41);
  for (int round = 0; round < 200; ++round) {
    const RoutingShape shape = random_routing(host.rng, 30, 20);
    const Ints ids = make_ids(host.rng, shape);
    const std::int64_t n_pairs = shape.n_tokens * shape.top_k;
    const MoeExpertIds op = ids_of(host, ids_tensor(host, shape, ids), shape.n_experts,
                                   n_pairs + host.rng.integer(0, 3), live_tensor(host, shape));
    run(op);
    const GroupInputs groups = group_inputs(host, shape, ids);
    const Ints offsets = ints_of(groups.offsets);
    const Ints row_pair = ints_of(groups.row_pair);
    const Ints tpe = ints_of(op.tpe);
    for (std::int64_t e = 0; e < shape.n_experts; ++e) {
      const auto at = static_cast<std::size_t>(e);
      ASSERT_EQ(tpe[at], offsets[at + 1] - offsets[at]);
      Ints row(row_pair.begin() + offsets[at], row_pair.begin() + offsets[at + 1]);
      row.resize(static_cast<std::size_t>(op.ids.dim(1)), kUntouched);
      ASSERT_EQ(ints_of(slice(op.ids, 0, e, 1)), row);
    }
    ASSERT_EQ(std::accumulate(tpe.begin(), tpe.end(), 0), offsets.back());
    ASSERT_EQ(ints_of(op.max_rows)[0], *std::max_element(tpe.begin(), tpe.end()));
  }
}

MoeExpertIds good_ids(Host& host) {
  return ids_of(host, host.i32({3, 2}, {2, 0, 2, 1, 0, 2}), 4, 6, host.live(3));
}

TEST(MoeExpertIdsRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_ids(host), {"live"});
  expect_bad_views_refused(good_ids(host));
}

TEST(MoeExpertIdsRefuses, WrongTypesShapesAndCounts) {
  Host host;
  const MoeExpertIds op = good_ids(host);
  const auto refused = [&](auto edit, const std::string& text) { expect_refusal(op, edit, "moe_expert_ids: " + text); };
  refused([&](auto& o) { o.experts = host.out_f32({3, 2}); }, "experts is f32, expected i32");
  refused([&](auto& o) { o.live = host.out_i32({0}); }, "live is [0], expected [1]");
  refused([](auto& o) { o.n_experts = 0; }, "n_experts is 0, expected 1 to 1048576");
  refused([](auto& o) { o.n_experts = 3; }, "ids is [4,6], expected [3,any]");
  refused([](auto& o) { o.nr0 = 0; }, "nr0 is 0, expected 1 to 2147483647");
  refused([](auto& o) { o.nr1 = -1; }, "nr1 is -1, expected 1 to 2147483647");
  refused([](auto& o) { o.d_ff = 0; }, "d_ff is 0, expected 1 to 2147483647");
  refused([](auto& o) { o.d_model = std::int64_t{1} << 31; }, "d_model is 2147483648, expected 1 to 2147483647");
  refused([&](auto& o) { o.ids = host.out_u32({4, 6}); }, "ids is u32, expected i32");
  refused([&](auto& o) { o.ids = host.out_i32({4, 5}); }, "row_stride is 5, but one expert may get 6 pairs");
  refused([&](auto& o) { o.tpe = host.out_i32({3}); }, "tpe is [3], expected [4]");
  refused([&](auto& o) { o.tpe = host.out_u32({4}); }, "tpe is u32, expected i32");
  refused([&](auto& o) { o.max_rows = host.out_i32({2}); }, "max_rows is [2], expected [1]");
  refused([&](auto& o) { o.max_rows = host.out_f32({1}); }, "max_rows is f32, expected i32");
  refused([&](auto& o) { o.grid_gate_up = host.out_i32({3}); }, "grid_gate_up is i32, expected u32");
  refused([&](auto& o) { o.grid_gate_up = host.out_u32({2}); }, "grid_gate_up is [2], expected [3]");
  refused([&](auto& o) { o.grid_down = host.out_i32({3}); }, "grid_down is i32, expected u32");
  refused([&](auto& o) { o.grid_down = host.out_u32({4}); }, "grid_down is [4], expected [3]");
  refused([](auto& o) { o.experts = repeated(o.experts, 1 << 30); }, "1073741824 tokens with 2 experts each");
}

}  // namespace
}  // namespace conclave::test
