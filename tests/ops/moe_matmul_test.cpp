#include "ops/moe_matmul.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Floats = std::vector<float>;

// Two experts on vectors of 2: expert 0 gives (x0 + x1, x0 - x1, x0), expert 1 ten times (x1, x0, 0).
Tensor two_experts(Host& host) {
  return host.f32({2, 3, 2}, {1, 1, 1, -1, 1, 0, /**/ 0, 10, 10, 0, 0, 0});
}

// Token 0 asks for experts 1 and 0, token 1 for expert 1 and an invalid one: packed rows are pairs 1 | 0, 2.
GroupedRows three_pairs(Host& host) {
  return {.offsets = host.i32({3}, {0, 1, 3}), .row_pair = host.i32({4}, {1, 0, 2, -1})};
}

TEST(MoeMatmul, MultipliesEachPairByItsExpertAndAnswersInPairOrder) {
  Host host;
  const MoeMatmul op{.x = host.f32({2, 1, 2}, {5, 3, /**/ 7, 4}),
                     .w = two_experts(host),
                     .rows = three_pairs(host),
                     .out = host.out_f32({2, 2, 3})};
  run(op);
  const Floats out = floats_of(op.out);
  EXPECT_EQ(Floats(out.begin(), out.begin() + 9), (Floats{30, 50, 0,    // token 0, slot 0: expert 1 on (5, 3)
                                                          8, 2, 5,      // token 0, slot 1: expert 0 on (5, 3)
                                                          40, 70, 0}))  // token 1, slot 0: expert 1 on (7, 4)
      << "one input row for all slots";
  EXPECT_TRUE(untouched(slice(slice(op.out, 0, 1, 1), 1, 1, 1))) << "the invalid pair is left alone";
}

TEST(MoeMatmul, TakesOneInputRowPerSlotToo) {
  Host host;
  const MoeMatmul op{.x = host.f32({2, 2, 2}, {5, 3, 1, 2, /**/ 7, 4, 9, 9}),
                     .w = two_experts(host),
                     .rows = three_pairs(host),
                     .out = host.out_f32({2, 2, 3})};
  run(op);
  EXPECT_EQ(floats_of(slice(slice(op.out, 0, 0, 1), 1, 1, 1)), (Floats{3, -1, 1}))
      << "token 0, slot 1: expert 0 on (1, 2)";
}

TEST(MoeMatmul, SkipsWhateverIsNoPair) {
  Host host;
  const Tensor x = host.f32({1, 1, 2}, {5, 3});
  const auto slots = [&](const std::variant<GroupedRows, ListedRows, BlockRows>& rows) {
    const MoeMatmul op{.x = x, .w = two_experts(host), .rows = rows, .out = host.out_f32({1, 2, 3})};
    run(op);
    return std::pair(!untouched(slice(op.out, 1, 0, 1)), !untouched(slice(op.out, 1, 1, 1)));
  };
  const std::pair none(false, false), second(false, true), both(true, true);
  // Offsets and counts past the end are held to the end, ids that are no pair are passed over.
  EXPECT_EQ(slots(GroupedRows{host.i32({3}, {-5, 0, 99}), host.i32({2}, {2, 1})}), second);
  EXPECT_EQ(slots(GroupedRows{host.i32({3}, {0, 0, 2}), host.i32({2}, {-1, -1})}), none);
  EXPECT_EQ(slots(ListedRows{.ids = host.i32({2, 3}, {-1, 2, 1, 0, 0, 0}), .tpe = host.i32({2}, {99, -4})}), second);
  const auto blocks = [&](std::int32_t n_padded, std::int32_t expert) {
    return BlockRows{.blocks = {.sorted_ids = host.i32({4}, {0, 2, 1, -1}),
                                .block_expert = host.i32({2}, {0, expert}),
                                .n_padded = host.i32({1}, {n_padded})},
                     .block_size = 2};
  };
  EXPECT_EQ(slots(blocks(4, 1)), both);
  EXPECT_EQ(slots(blocks(99, 1)), both);
  EXPECT_EQ(slots(blocks(0, 1)), none);
  EXPECT_EQ(slots(blocks(2, 1)), std::pair(true, false)) << "only the first block counts";
  EXPECT_EQ(slots(blocks(4, -1)), std::pair(true, false)) << "the second block has no expert";
  EXPECT_EQ(slots(blocks(4, 2)), std::pair(true, false)) << "nor has it here";
}

TEST(MoeMatmul, APairUnderTwoExpertsGetsTheProductOfOneOfThem) {
  Host host;
  const MoeMatmul op{.x = host.f32({1, 1, 1}, {3}),
                     .w = host.f32({2, 1, 1}, {1, 10}),
                     .rows = ListedRows{.ids = host.i32({2, 1}, {0, 0}), .tpe = host.i32({2}, {1, 1})},
                     .out = host.out_f32({1, 1, 1})};
  run(op);
  const float out = floats_of(op.out)[0];
  EXPECT_TRUE(out == 3 || out == 30) << out;
}

TEST(MoeMatmul, AnIndirectLaunchCoversWhatItsGridSays) {
  Host host;
  // Expert 0 serves pairs 0, 1 and 2, expert 1 serves pair 3. One column block is 2 columns, one row block 1 row.
  const auto launched = [&](std::int32_t rows, std::int32_t columns, std::int32_t experts) {
    const MoeMatmul op{.x = host.f32({4, 1, 1}, {1, 2, 3, 4}),
                       .w = host.f32({2, 3, 1}, {1, 1, 1, 10, 10, 10}),
                       .rows = ListedRows{.ids = host.i32({2, 4}, {0, 1, 2, -1, 3, -1, -1, -1}),
                                          .tpe = host.i32({2}, {3, 1}),
                                          .grid = host.u32({3}, {rows, columns, experts}),
                                          .nr0 = 2,
                                          .nr1 = 1},
                       .out = host.output(DType::f32, {4, 1, 3})};
    run(op);
    Floats out = floats_of(op.out);
    for (float& x : out) x = std::isnan(x) ? -1 : x;
    return out;
  };
  EXPECT_EQ(launched(3, 2, 2), (Floats{1, 1, 1, 2, 2, 2, 3, 3, 3, 40, 40, 40}));
  EXPECT_EQ(launched(2, 2, 2), (Floats{1, 1, 1, 2, 2, 2, -1, -1, -1, 40, 40, 40})) << "two rows an expert";
  EXPECT_EQ(launched(3, 1, 2), (Floats{1, 1, -1, 2, 2, -1, 3, 3, -1, 40, 40, -1})) << "two columns";
  EXPECT_EQ(launched(3, 2, 1), (Floats{1, 1, 1, 2, 2, 2, 3, 3, 3, -1, -1, -1})) << "one expert";
  EXPECT_EQ(launched(-1, -1, -1), (Floats{1, 1, 1, 2, 2, 2, 3, 3, 3, 40, 40, 40})) << "a grid is unsigned";
}

TEST(MoeMatmul, AccumulatesInMoreThanF32) {
  Host host;
  // In f32, 2^24 + 1 would be 2^24 and the 1 lost.
  const MoeMatmul op{.x = host.f32({1, 1, 3}, {0x1p24F, 1, -0x1p24F}),
                     .w = host.f32({1, 1, 3}, {1, 1, 1}),
                     .rows = GroupedRows{host.i32({2}, {0, 1}), host.i32({1}, {0})},
                     .out = host.out_f32({1, 1, 1})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Floats{1}));
}

// All forms of one routing, made by the ops that make them.
std::vector<std::variant<GroupedRows, ListedRows, BlockRows>> forms(Host& host, const RoutingShape& shape,
                                                                    const std::vector<std::int32_t>& ids,
                                                                    std::int64_t n) {
  const Tensor experts = ids_tensor(host, shape, ids);
  const Tensor live = live_tensor(host, shape);
  const std::int64_t n_pairs = shape.n_tokens * shape.top_k;
  const MoeGroup group{.experts = experts,
                       .live = live,
                       .n_experts = shape.n_experts,
                       .out = {.offsets = host.out_i32({shape.n_experts + 1}),
                               .row_pair = host.out_i32({n_pairs}),
                               .pair_row = host.out_i32({shape.n_tokens, shape.top_k})}};
  run(group);
  std::vector<std::variant<GroupedRows, ListedRows, BlockRows>> all = {
      GroupedRows{.offsets = group.out.offsets, .row_pair = group.out.row_pair}};
  for (const std::int64_t more : {0, 5}) {
    const MoeExpertIds lists{.experts = experts,
                             .live = live,
                             .n_experts = shape.n_experts,
                             .nr0 = 4,
                             .nr1 = 3,
                             .d_ff = n,
                             .d_model = n,
                             .ids = host.out_i32({shape.n_experts, n_pairs + more}),
                             .tpe = host.out_i32({shape.n_experts}),
                             .max_rows = host.out_i32({1}),
                             .grid_gate_up = host.out_u32({3}),
                             .grid_down = host.out_u32({3})};
    run(lists);
    all.push_back(ListedRows{.ids = lists.ids, .tpe = lists.tpe});
    all.push_back(ListedRows{.ids = lists.ids, .tpe = lists.tpe, .grid = lists.grid_gate_up, .nr0 = 4, .nr1 = 3});
  }
  for (const RowIds kind : {RowIds::packed, RowIds::pair}) {
    for (const std::int64_t block_size : {1, 4, 256}) {
      const std::int64_t blocks = worst_case_blocks(n_pairs, shape.n_experts, block_size);
      const MoeAlignBlocks align{.experts = experts,
                                 .live = live,
                                 .n_experts = shape.n_experts,
                                 .block_size = block_size,
                                 .ids = kind,
                                 .out = {.sorted_ids = host.out_i32({blocks * block_size}),
                                         .block_expert = host.out_i32({blocks}),
                                         .n_padded = host.out_i32({1})}};
      run(align);
      BlockRows rows{.blocks = align.out, .block_size = block_size, .ids = kind};
      if (kind == RowIds::packed) rows.row_pair = group.out.row_pair;
      all.push_back(rows);
    }
  }
  return all;
}

TEST(MoeMatmul, EveryFormOfTheRowsGivesTheSameBits) {
  Rng rng(61);
  for (int round = 0; round < 60; ++round) {
    Host host(static_cast<std::uint64_t>(round), round % 2 == 0 ? Layout::dense : Layout::padded);
    const RoutingShape shape = random_routing(rng, 12, 9);
    const std::vector<std::int32_t> ids = make_ids(rng, shape);
    const DType type = rng.pick(weight_formats());
    const std::int64_t n = rng.integer(1, 11), k = width_for(type, rng.integer(1, 40));
    MoeMatmul op{.x = host.values(random_float(rng), {shape.n_tokens, rng.chance(0.5) ? 1 : shape.top_k, k}),
                 .w = host.weights(type, {shape.n_experts, n, k})};
    const DType out_type = random_float(rng);
    std::vector<std::uint32_t> first;
    for (const auto& rows : forms(host, shape, ids, n)) {
      op.rows = rows;
      op.out = host.output(out_type, {shape.n_tokens, shape.top_k, n});
      run(op);
      if (std::holds_alternative<GroupedRows>(rows)) first = dense_bits(op.out);
      ASSERT_EQ(dense_bits(op.out), first) << "round " << round;
    }
    // Exactly the valid pairs of live tokens were written.
    const std::vector<std::int32_t> pair_row = ints_of(group_inputs(host, shape, ids).pair_row);
    for (std::size_t i = 0; i < first.size(); ++i) {
      ASSERT_EQ(first[i] == kPoisonF32, pair_row[i / static_cast<std::size_t>(n)] < 0) << "round " << round;
    }
  }
}

// ---- refusals

MoeMatmul good(Host& host, const std::variant<GroupedRows, ListedRows, BlockRows>& rows) {
  return {.x = host.values(DType::f32, {3, 1, 4}),
          .w = host.values(DType::f32, {5, 6, 4}),
          .rows = rows,
          .out = host.out_f32({3, 2, 6})};
}
MoeMatmul good_grouped(Host& host) {
  return good(host, GroupedRows{.offsets = host.integers({6}, 0, 0), .row_pair = host.integers({6}, 0, 0)});
}
MoeMatmul good_listed(Host& host) {
  return good(
      host, ListedRows{
                .ids = host.integers({5, 6}, 0, 0), .tpe = host.integers({5}, 0, 0), .grid = host.u32({3}, {1, 6, 5})});
}
MoeMatmul good_blocks(Host& host) {
  return good(host, BlockRows{.blocks = {.sorted_ids = host.integers({12}, 0, 0),
                                         .block_expert = host.integers({6}, 0, 0),
                                         .n_padded = host.integers({1}, 0, 0)},
                              .block_size = 2,
                              .ids = RowIds::packed,
                              .row_pair = host.integers({6}, 0, 0)});
}

TEST(MoeMatmulRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_grouped(host), {});
  expect_all_needed_but(good_listed(host), {"grid"});
  expect_all_needed_but(good_blocks(host), {});
  MoeMatmul by_pair = good_blocks(host);
  std::get<BlockRows>(by_pair.rows).ids = RowIds::pair;
  expect_all_needed_but(by_pair, {"row_pair"});
  expect_bad_views_refused(good_grouped(host));
  expect_bad_views_refused(good_listed(host));
  expect_bad_views_refused(good_blocks(host));
}

TEST(MoeMatmulRefuses, WrongTypesAndShapes) {
  Host host;
  const MoeMatmul op = good_grouped(host);
  const auto refused = [&](auto edit, const std::string& text) { expect_refusal(op, edit, "moe_matmul: " + text); };
  refused([&](auto& o) { o.x = host.out_f32({3, 4}); }, "x is [3,4], expected [any,any,any]");
  refused([&](auto& o) { o.x = host.out_i32({3, 1, 4}); }, "x is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.x = host.out_f32({3, 3, 4}); }, "x is [3,3,4]: dimension 1 must be 1 or top_k = 2");
  refused([&](auto& o) { o.x = host.out_f32({3, 1, 5}); }, "x is [3,1,5], w is [5,6,4]: inner dimensions differ");
  refused([&](auto& o) { o.w = host.out_i32({5, 6, 4}); }, "w is i32, expected f32, f16, bf16, q4_0");
  refused([&](auto& o) { o.w = host.out_f32({6, 4}); }, "w is [6,4], expected [any,any,any]");
  refused([&](auto& o) { o.w = host.weights(DType::q8_0, {5, 6, 32}); }, "x is [3,1,4], w is [5,6,32]: inner");
  refused([&](auto& o) { o.out = host.out_f32({2, 2, 6}); }, "out is [2,2,6], expected [3,any,6]");
  refused([&](auto& o) { o.out = host.out_f32({3, 2, 5}); }, "out is [3,2,5], expected [3,any,6]");
  refused([&](auto& o) { o.out = host.out_i32({3, 2, 6}); }, "out is i32, expected f32, f16, bf16");
  refused(
      [](auto& o) {
        o.w = slice(o.w, 1, 0, 0);  // no columns: the output has no bytes, whatever its height
        o.x = repeated(o.x, 1 << 30);
        o.out = repeated(slice(o.out, 2, 0, 0), 1 << 30);
      },
      "1073741824 tokens with 2 experts each: pair ids are 32-bit");
}

TEST(MoeMatmulRefuses, BlocksOfWeightsThatAreNotWhole) {
  Host host;
  MoeMatmul op = good_grouped(host);
  op.w = host.weights(DType::q4_0, {5, 6, 32});
  op.w.dims[2] = 31;
  expect_refusal(op, "moe_matmul: w is [5,6,31]: rows of q4_0 come in blocks of 32");
}

TEST(MoeMatmulRefuses, RowsOfWrongTypesAndShapes) {
  Host host;
  const auto grouped = [&](auto edit, const std::string& text) {
    expect_refusal(
        good_grouped(host), [&](auto& o) { edit(std::get<GroupedRows>(o.rows)); }, "moe_matmul: " + text);
  };
  grouped([&](auto& r) { r.offsets = host.out_i32({5}); }, "offsets is [5], expected [6]");
  grouped([&](auto& r) { r.offsets = host.out_u32({6}); }, "offsets is u32, expected i32");
  grouped([&](auto& r) { r.row_pair = host.out_i32({3}); }, "row_pair is [3], expected [6]");
  grouped([&](auto& r) { r.row_pair = host.out_f32({6}); }, "row_pair is f32, expected i32");

  const auto listed = [&](auto edit, const std::string& text) {
    expect_refusal(
        good_listed(host), [&](auto& o) { edit(std::get<ListedRows>(o.rows)); }, "moe_matmul: " + text);
  };
  listed([&](auto& r) { r.ids = host.out_i32({4, 6}); }, "ids is [4,6], expected [5,any]");
  listed([&](auto& r) { r.ids = host.out_u32({5, 6}); }, "ids is u32, expected i32");
  listed([&](auto& r) { r.tpe = host.out_i32({6}); }, "tpe is [6], expected [5]");
  listed([&](auto& r) { r.tpe = host.out_u32({5}); }, "tpe is u32, expected i32");
  listed([&](auto& r) { r.grid = host.out_i32({3}); }, "grid is i32, expected u32");
  listed([&](auto& r) { r.grid = host.out_u32({4}); }, "grid is [4], expected [3]");
  listed([&](auto& r) { r.nr0 = 0; }, "nr0 is 0, expected 1 to 2147483647");
  listed([&](auto& r) { r.nr1 = std::int64_t{1} << 31; }, "nr1 is 2147483648, expected 1 to 2147483647");

  const auto blocks = [&](auto edit, const std::string& text) {
    expect_refusal(
        good_blocks(host), [&](auto& o) { edit(std::get<BlockRows>(o.rows)); }, "moe_matmul: " + text);
  };
  blocks([&](auto& r) { r.blocks.sorted_ids = host.out_i32({6, 2}); }, "sorted_ids is [6,2], expected [any]");
  blocks([&](auto& r) { r.blocks.sorted_ids = host.out_u32({12}); }, "sorted_ids is u32, expected i32");
  blocks([&](auto& r) { r.blocks.block_expert = host.out_i32({6, 1}); }, "block_expert is [6,1], expected [any]");
  blocks([&](auto& r) { r.blocks.block_expert = host.out_f32({6}); }, "block_expert is f32, expected i32");
  blocks([&](auto& r) { r.blocks.n_padded = host.out_i32({2}); }, "n_padded is [2], expected [1]");
  blocks([&](auto& r) { r.blocks.n_padded = host.out_u32({1}); }, "n_padded is u32, expected i32");
  blocks([&](auto& r) { r.block_size = 0; }, "block_size is 0, expected 1 to 256");
  blocks([&](auto& r) { r.block_size = 257; }, "block_size is 257, expected 1 to 256");
  blocks([&](auto& r) { r.row_pair = host.out_i32({5}); }, "row_pair is [5], expected [6]");
  blocks([&](auto& r) { r.row_pair = host.out_f32({6}); }, "row_pair is f32, expected i32");
}

}  // namespace
}  // namespace conclave::test
