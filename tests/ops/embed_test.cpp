#include "ops/embed.h"

#include <gtest/gtest.h>

#include "op_test_support.h"

namespace conclave::test {
namespace {

using Values = std::vector<float>;

TEST(Embed, CopiesTheRowOfEachId) {
  Host b(1, Layout::padded);
  const Embed op{.ids = b.i32({3}, {2, 0, 2}), .table = b.f32({3, 2}, {1, 2, 3, 4, 5, 6}), .out = b.out_f32({3, 2})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{5, 6, 1, 2, 5, 6}));
}

TEST(Embed, GivesZerosForAnIdOutsideTheTable) {
  Host b(1, Layout::padded);
  const Embed op{.ids = b.i32({5}, {-1, 2, INT32_MIN, INT32_MAX, 1}),
                 .table = b.f32({2, 2}, {1, 2, 3, 4}),
                 .out = b.out_f32({5, 2})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{0, 0, 0, 0, 0, 0, 0, 0, 3, 4}));
}

TEST(Embed, DecodesAQuantisedTable) {
  Host b(1, Layout::padded);
  Values table(64);
  for (std::size_t i = 0; i < 32; ++i) {
    table[i] = static_cast<float>(127 - 8 * static_cast<int>(i));  // d = 1: every level is exact
    table[i + 32] = 2 * table[i];
  }
  const Embed op{.ids = b.i32({2}, {1, 0}), .table = b.floats(DType::q8_0, {2, 32}, table), .out = b.out_f32({2, 32})};
  run(op);
  const Values out = floats_of(op.out);
  EXPECT_EQ(Values(out.begin(), out.begin() + 32), Values(table.begin() + 32, table.end()));
  EXPECT_EQ(Values(out.begin() + 32, out.end()), Values(table.begin(), table.begin() + 32));
}

TEST(Embed, RoundsToTheOutputTypeWithTiesToEven) {
  Host b(1, Layout::padded);
  // bf16 steps by 2^-7 from 1 on.
  const Embed op{.ids = b.i32({1}, {0}),
                 .table = b.f32({1, 3}, {1 + 0x1p-8F, 1 + 0x3p-8F, 1 + 0x1.8p-8F}),
                 .out = b.output(DType::bf16, {1, 3})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{1, 1 + 0x1p-6F, 1 + 0x1p-7F}));
}

TEST(Embed, LeavesRowsPastLiveAlone) {
  for (const auto& [live, written] : {std::pair{2, 2}, {0, 0}, {-5, 0}, {99, 3}}) {
    Host b(1, Layout::padded);
    const Embed op{.ids = b.i32({3}, {0, 1, 7}),
                   .table = b.f32({2, 2}, {1, 2, 3, 4}),
                   .live = b.live(live),
                   .out = b.output(DType::f16, {3, 2})};
    run(op);
    for (std::int64_t r = 0; r < 3; ++r) EXPECT_EQ(untouched(slice(op.out, 0, r, 1)), r >= written) << "live " << live;
  }
}

TEST(Embed, TakesNoTokensAndAnEmptyTable) {
  Host b(1, Layout::padded);
  run(Embed{.ids = b.i32({0}, {}), .table = b.f32({2, 2}, {1, 2, 3, 4}), .out = b.out_f32({0, 2})});
  const Embed op{.ids = b.i32({1}, {0}), .table = b.f32({0, 2}, {}), .out = b.out_f32({1, 2})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{0, 0}));
}

TEST(Embed, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const Embed valid{
      .ids = b.i32({3}, {0, 0, 0}), .table = b.values(DType::f32, {4, 2}), .live = b.live(3), .out = b.out_f32({3, 2})};
  expect_all_needed_but(valid, {"live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](Embed& op) { op.ids = b.values(DType::f32, {3}); }, "embed: ids is f32, expected i32");
  expect([&](Embed& op) { op.ids = b.integers({3, 1}, 0, 1); }, "embed: ids is [3,1], expected [any]");
  expect([&](Embed& op) { op.table = b.values(DType::f32, {8}); }, "embed: table is [8], expected [any,any]");
  expect(
      [&](Embed& op) {
        op.table = b.integers({4, 2}, 0, 1);
      },
      "embed: table is i32, expected f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, q3_k, q4_k, q5_k, q6_k, "
      "iq4_nl, iq4_xs, mxfp4");
  expect([&](Embed& op) { op.live = b.integers({2}, 0, 1); }, "embed: live is [2], expected [1]");
  expect([&](Embed& op) { op.live = b.values(DType::f32, {1}); }, "embed: live is f32, expected i32");
  expect([&](Embed& op) { op.out = b.out_f32({3, 4}); }, "embed: out is [3,4], expected [3,2]");
  expect([&](Embed& op) { op.out = b.out_f32({2, 2}); }, "embed: out is [2,2], expected [3,2]");
  expect([&](Embed& op) { op.out = b.integers({3, 2}, 0, 1); }, "embed: out is i32, expected f32, f16, bf16");
  expect([](Embed& op) { op.out = slice(op.table, 0, 0, 3); }, "embed: out is written and overlaps table");
}

}  // namespace
}  // namespace conclave::test
