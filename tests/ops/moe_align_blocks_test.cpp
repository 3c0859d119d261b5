#include "ops/moe_align_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Ints = std::vector<std::int32_t>;

MoeAlignBlocks align(Host& host, const Tensor& experts, std::int64_t n_experts, std::int64_t block_size, RowIds ids) {
  const std::int64_t blocks = worst_case_blocks(experts.dim(0) * experts.dim(1), n_experts, block_size);
  return {.experts = experts,
          .n_experts = n_experts,
          .block_size = block_size,
          .ids = ids,
          .out = {.sorted_ids = host.out_i32({blocks * block_size}),
                  .block_expert = host.out_i32({blocks}),
                  .n_padded = host.out_i32({1})}};
}

TEST(MoeAlignBlocks, PadsEachExpertToWholeBlocks) {
  Host host;
  // Expert 0 has pairs 1 and 4, expert 1 has 3, expert 2 has 0, 2 and 5, expert 3 none. Padding is n_pairs = 6.
  const MoeAlignBlocks op = align(host, host.i32({3, 2}, {2, 0, 2, 1, 0, 2}), 4, 2, RowIds::pair);
  run(op);
  EXPECT_EQ(ints_of(op.out.sorted_ids), (Ints{1, 4, /**/ 3, 6, /**/ 0, 2, /**/ 5, 6, /* past the end */ 6, 6}));
  EXPECT_EQ(ints_of(op.out.block_expert), (Ints{0, 1, 2, 2, -1})) << "an expert without rows has no block";
  EXPECT_EQ(ints_of(op.out.n_padded), (Ints{8}));
}

TEST(MoeAlignBlocks, NamesPackedRowsInsteadOfPairs) {
  Host host;
  const MoeAlignBlocks op = align(host, host.i32({3, 2}, {2, 0, 2, 1, 0, 2}), 4, 2, RowIds::packed);
  run(op);
  EXPECT_EQ(ints_of(op.out.sorted_ids), (Ints{0, 1, /**/ 2, 6, /**/ 3, 4, /**/ 5, 6, /* past the end */ 6, 6}));
  EXPECT_EQ(ints_of(op.out.block_expert), (Ints{0, 1, 2, 2, -1}));
}

TEST(MoeAlignBlocks, FillsRoomBeyondTheWorstCaseToo) {
  Host host;
  MoeAlignBlocks op = align(host, host.i32({2, 1}, {1, 0}), 2, 1, RowIds::pair);
  op.out.sorted_ids = host.out_i32({5});
  op.out.block_expert = host.out_i32({7});
  run(op);
  EXPECT_EQ(ints_of(op.out.sorted_ids), (Ints{1, 0, 2, 2, 2}));
  EXPECT_EQ(ints_of(op.out.block_expert), (Ints{0, 1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(ints_of(op.out.n_padded), (Ints{2}));
}

TEST(MoeAlignBlocks, AFullBlockGetsNoPadding) {
  Host host;
  const MoeAlignBlocks op = align(host, host.i32({4, 1}, {0, 0, 0, 0}), 1, 2, RowIds::pair);
  run(op);
  EXPECT_EQ(ints_of(op.out.n_padded), (Ints{4}));
  EXPECT_EQ(ints_of(op.out.block_expert), (Ints{0, 0}));
}

TEST(MoeAlignBlocks, SkipsInvalidIdsAndDeadTokensAndCountsDuplicatesTwice) {
  Host host;
  MoeAlignBlocks op = align(host, host.i32({3, 2}, {1, 1, -1, 2, 0, 1}), 2, 4, RowIds::pair);
  op.live = host.live(2);
  run(op);
  EXPECT_EQ(ints_of(op.out.n_padded), (Ints{4}));
  EXPECT_EQ(ints_of(op.out.block_expert), (Ints{1, -1, -1}));
  EXPECT_EQ(ints_of(slice(op.out.sorted_ids, 0, 0, 4)), (Ints{0, 1, 6, 6}));
}

TEST(MoeAlignBlocks, NobodyNeedsNoBlock) {
  Host host;
  MoeAlignBlocks op = align(host, host.i32({0, 2}, {}), 4, 16, RowIds::packed);
  run(op);
  EXPECT_EQ(ints_of(op.out.n_padded), (Ints{0}));
  op = align(host, host.i32({1, 2}, {-1, 4}), 4, 16, RowIds::packed);
  run(op);
  EXPECT_EQ(ints_of(op.out.n_padded), (Ints{0}));
  EXPECT_EQ(ints_of(op.out.block_expert), (Ints{-1, -1}));
}

// Calls visit(counts) for every way to give at most `pairs` pairs to `experts` experts.
void for_each_distribution(std::int64_t pairs, std::size_t experts, std::vector<std::int64_t>& counts,
                           const std::function<void(const std::vector<std::int64_t>&)>& visit) {
  if (counts.size() == experts) return visit(counts);
  for (std::int64_t n = 0; n <= pairs; ++n) {
    counts.push_back(n);
    for_each_distribution(pairs - n, experts, counts, visit);
    counts.pop_back();
  }
}

TEST(MoeAlignBlocks, TheWorstCaseIsTheWorstOfAllDistributions) {
  for (std::int64_t n_pairs = 0; n_pairs <= 9; ++n_pairs) {
    for (std::size_t n_experts = 1; n_experts <= 4; ++n_experts) {
      for (std::int64_t block_size = 1; block_size <= 6; ++block_size) {
        std::int64_t worst = 0;
        std::vector<std::int64_t> counts;
        for_each_distribution(n_pairs, n_experts, counts, [&](const std::vector<std::int64_t>& distribution) {
          std::int64_t blocks = 0;
          for (const std::int64_t n : distribution) blocks += (n + block_size - 1) / block_size;
          worst = std::max(worst, blocks);
        });
        EXPECT_EQ(worst_case_blocks(n_pairs, static_cast<std::int64_t>(n_experts), block_size), worst)
            << n_pairs << " pairs, " << n_experts << " experts, blocks of " << block_size;
      }
    }
  }
}

TEST(MoeAlignBlocks, BlocksHoldTheGroupedRowsInOrder) {
  Host host(51);
  for (int round = 0; round < 300; ++round) {
    const RoutingShape shape = random_routing(host.rng, 30, 12);
    const Ints ids = make_ids(host.rng, shape);
    const std::int64_t block_size = host.rng.pick(std::vector<std::int64_t>{1, 2, 3, 7, 16, 256});
    const auto n_pairs = static_cast<std::int32_t>(shape.n_tokens * shape.top_k);
    const GroupInputs groups = group_inputs(host, shape, ids);
    const Ints offsets = ints_of(groups.offsets);
    const Ints row_pair = ints_of(groups.row_pair);
    for (const RowIds kind : {RowIds::packed, RowIds::pair}) {
      MoeAlignBlocks op = align(host, ids_tensor(host, shape, ids), shape.n_experts, block_size, kind);
      op.live = live_tensor(host, shape);
      run(op);
      Ints sorted, experts;
      for (std::int32_t e = 0; e < shape.n_experts; ++e) {
        const std::int32_t end = offsets[static_cast<std::size_t>(e) + 1];
        for (std::int32_t r = offsets[static_cast<std::size_t>(e)]; r < end; ++r) {
          if (sorted.size() % static_cast<std::size_t>(block_size) == 0) experts.push_back(e);
          sorted.push_back(kind == RowIds::packed ? r : row_pair[static_cast<std::size_t>(r)]);
        }
        while (sorted.size() % static_cast<std::size_t>(block_size) != 0) sorted.push_back(n_pairs);
      }
      ASSERT_EQ(ints_of(op.out.n_padded), (Ints{static_cast<std::int32_t>(sorted.size())}));
      sorted.resize(static_cast<std::size_t>(op.out.sorted_ids.dim(0)), n_pairs);
      experts.resize(static_cast<std::size_t>(op.out.block_expert.dim(0)), -1);
      ASSERT_EQ(ints_of(op.out.sorted_ids), sorted);
      ASSERT_EQ(ints_of(op.out.block_expert), experts);
    }
  }
}

MoeAlignBlocks good_align(Host& host) {
  MoeAlignBlocks op = align(host, host.i32({3, 2}, {2, 0, 2, 1, 0, 2}), 4, 2, RowIds::pair);
  op.live = host.live(3);
  return op;
}

TEST(MoeAlignBlocksRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_align(host), {"live"});
  expect_bad_views_refused(good_align(host));
}

TEST(MoeAlignBlocksRefuses, WrongTypesShapesAndCounts) {
  Host host;
  const MoeAlignBlocks op = good_align(host);
  const auto refused = [&](auto edit, const std::string& text) {
    expect_refusal(op, edit, "moe_align_blocks: " + text);
  };
  refused([&](auto& o) { o.experts = host.out_f32({3, 2}); }, "experts is f32, expected i32");
  refused([&](auto& o) { o.live = host.out_f32({1}); }, "live is f32, expected i32");
  refused([](auto& o) { o.n_experts = 0; }, "n_experts is 0, expected 1 to 1048576");
  refused([](auto& o) { o.block_size = 0; }, "block_size is 0, expected 1 to 256");
  refused([](auto& o) { o.block_size = 257; }, "block_size is 257, expected 1 to 256");
  refused([&](auto& o) { o.out.sorted_ids = host.out_u32({10}); }, "sorted_ids is u32, expected i32");
  refused([&](auto& o) { o.out.sorted_ids = host.out_i32({1, 10}); }, "sorted_ids is [1,10], expected [any]");
  refused([&](auto& o) { o.out.block_expert = host.out_f32({5}); }, "block_expert is f32, expected i32");
  refused([&](auto& o) { o.out.block_expert = host.out_i32({5, 1}); }, "block_expert is [5,1], expected [any]");
  refused([&](auto& o) { o.out.n_padded = host.out_i32({2}); }, "n_padded is [2], expected [1]");
  refused([&](auto& o) { o.out.n_padded = host.out_u32({1}); }, "n_padded is u32, expected i32");
  refused([](auto& o) { o.experts = repeated(o.experts, 1 << 30); }, "1073741824 tokens with 2 experts each");
}

TEST(MoeAlignBlocksRefuses, ACapacityBelowTheWorstCase) {
  Host host;
  const MoeAlignBlocks op = good_align(host);
  // 6 pairs over 4 experts: 4 blocks with one row each, and the other 2 pairs fill one more.
  expect_refusal(
      op, [&](auto& o) { o.out.sorted_ids = host.out_i32({9}); },
      "moe_align_blocks: the capacity is 9, but 6 pairs over 4 experts can need 10");
  expect_refusal(
      op, [&](auto& o) { o.out.block_expert = host.out_i32({4}); },
      "moe_align_blocks: block_expert has room for 4 blocks, but 5 can be needed");
}

TEST(MoeAlignBlocksRefuses, MorePaddedRowsThan32BitsCount) {
  Host host;
  // 2^31 - 2 pairs can be counted. Over 2^20 experts they can need 2^20 + (2^31 - 2 - 2^20) / 256 = 9433087 blocks of 256.
  expect_refusal(
      good_align(host),
      [](auto& o) {
        o.experts = repeated(o.experts, (1 << 30) - 1);
        o.n_experts = 1 << 20;
        o.block_size = 256;
      },
      "moe_align_blocks: 9433087");
}

}  // namespace
}  // namespace conclave::test
