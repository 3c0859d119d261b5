#include "ops/add.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"

namespace conclave::test {
namespace {

using Values = std::vector<float>;

TEST(Add, AddsElementByElement) {
  Host b(1, Layout::padded);
  const Add op{.a = b.f32({2, 3}, {1, 2, 3, 4, 5, 6}),
               .b = b.f32({2, 3}, {10, 20, 30, -4, 0.5, INFINITY}),
               .out = b.out_f32({2, 3})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{11, 22, 33, 0, 5.5, INFINITY}));
}

TEST(Add, AddsOneRowToEveryRow) {
  Host b(1, Layout::padded);
  const Add op{.a = b.f32({3, 2}, {1, 2, 3, 4, 5, 6}), .b = b.f32({2}, {10, -1}), .out = b.out_f32({3, 2})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{11, 1, 13, 3, 15, 5}));
}

TEST(Add, RoundsTheSumOnce) {
  Host b(1, Layout::padded);
  // f16 steps by 2 from 2048 on: 2048 + 1 is a tie, to even; 2050 + 1 too.
  const Add op{
      .a = b.f16({1, 3}, {2048, 2050, 2048}), .b = b.f32({3}, {1, 1, 1.5}), .out = b.output(DType::f16, {1, 3})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{2048, 2052, 2050}));
}

TEST(Add, GivesTheSameBitsInPlaceOfEitherOperand) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const bool over_a : {true, false}) {
      Host b(4, Layout::padded);
      Add op{.a = b.values(type, {5, 33}), .b = b.values(type, {5, 33}), .out = b.output(type, {5, 33})};
      run(op);
      const auto apart = dense_bits(op.out);
      op.out = over_a ? op.a : op.b;
      run(op);
      EXPECT_EQ(dense_bits(op.out), apart) << dtype_info(type).name;
    }
  }
}

TEST(Add, DoublesWhereAllThreeAreOne) {
  Host b(1, Layout::padded);
  const Tensor x = b.f32({1, 2}, {3, -4});
  run(Add{.a = x, .b = x, .out = x});
  EXPECT_EQ(floats_of(x), (Values{6, -8}));
}

TEST(Add, LeavesRowsPastLiveAlone) {
  for (const auto& [live, written] : {std::pair{2, 2}, {0, 0}, {-1, 0}, {4, 3}}) {
    Host b(1, Layout::padded);
    const Add op{.a = b.values(DType::f32, {3, 2}),
                 .b = b.values(DType::f32, {2}),
                 .live = b.live(live),
                 .out = b.out_f32({3, 2})};
    run(op);
    for (std::int64_t r = 0; r < 3; ++r) EXPECT_EQ(untouched(slice(op.out, 0, r, 1)), r >= written) << "live " << live;
  }
}

TEST(Add, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const Add valid{.a = b.values(DType::f32, {3, 4}),
                  .b = b.values(DType::f32, {3, 4}),
                  .live = b.live(3),
                  .out = b.out_f32({3, 4})};
  expect_all_needed_but(valid, {"live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](Add& op) { op.a = b.values(DType::f32, {3, 2, 2}); }, "add: a is [3,2,2], expected [any,any]");
  expect([&](Add& op) { op.a = b.weights(DType::q4_0, {3, 32}); }, "add: a is q4_0, expected f32, f16, bf16");
  expect([&](Add& op) { op.b = b.values(DType::f32, {1, 3, 4}); }, "add: b is [1,3,4], expected 1 to 2 dimensions");
  expect([&](Add& op) { op.b = b.values(DType::f32, {3}); }, "add: b is [3], expected [4]");
  expect([&](Add& op) { op.b = b.values(DType::f32, {1, 4}); }, "add: b is [1,4], expected [3,4]");
  expect([&](Add& op) { op.b = b.integers({3, 4}, 0, 1); }, "add: b is i32, expected f32, f16, bf16");
  expect([&](Add& op) { op.live = b.integers({1, 1}, 0, 1); }, "add: live is [1,1], expected [1]");
  expect([&](Add& op) { op.out = b.out_f32({4, 3}); }, "add: out is [4,3], expected [3,4]");
  expect([&](Add& op) { op.out = b.out_i32({3, 4}); }, "add: out is i32, expected f32, f16, bf16");
}

TEST(Add, RefusesAnOutputThatIsAlmostInPlace) {
  Host b(1, Layout::padded);
  Add op{.a = b.values(DType::f32, {4, 4}), .b = b.values(DType::f32, {4})};
  op.out = slice(op.a, 0, 1, 3);
  op.a = slice(op.a, 0, 0, 3);
  EXPECT_EQ(refusal_of(op), "add: out is written and overlaps a");
  op.out = op.a;
  EXPECT_EQ(refusal_of(op), "(accepted)");
  op.out.dtype = DType::f16;
  op.out.strides[1] = 2;
  EXPECT_EQ(refusal_of(op), "add: out is written and overlaps a");
}

}  // namespace
}  // namespace conclave::test
