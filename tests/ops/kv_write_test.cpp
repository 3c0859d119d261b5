#include "ops/kv_write.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "op_test_support.h"
#include "ops/host_access.h"
#include "quant/q8_0.h"

namespace conclave::test {
namespace {

using Values = std::vector<float>;

// What position `position` of sequence `seq` holds, found without kv_place().
Values cached(const Tensor& pool, std::int64_t page, std::int64_t slot, std::int64_t head) {
  return floats_of(select_outer(select_outer(select_outer(pool, page), slot), head));
}

// One token of one head into page 0, slot 0 of a q8_0 cache: the block as stored.
BlockQ8_0 stored_block(const Values& k) {
  Host b(1, Layout::padded);
  const KvWrite op{.k = b.f32({1, 1, 32}, k),
                   .v = b.f32({1, 1, 1}, {0}),
                   .seqs = b.i32({1}, {0}),
                   .positions = b.i32({1}, {0}),
                   .kv = {.k = b.floats(DType::q8_0, {1, 1, 1, 32}, Values(32, 1)),
                          .v = b.f32({1, 1, 1, 1}, {0}),
                          .pages = b.i32({1, 1}, {0})}};
  run(op);
  BlockQ8_0 block;
  std::memcpy(&block, row_address(op.kv.k, {0, 0, 0}), sizeof block);
  return block;
}

TEST(KvWrite, PutsAPositionIntoItsPageAndSlot) {
  Host b(1, Layout::padded);
  // Pages of two positions. Sequence 0 has pages 2 and 0, sequence 1 has page 1.
  const KvWrite op{
      .k = b.f32({3, 1, 2}, {1, 2, 3, 4, 5, 6}),
      .v = b.f32({3, 1, 1}, {10, 20, 30}),
      .seqs = b.i32({3}, {0, 1, 0}),
      .positions = b.i32({3}, {1, 0, 2}),
      .kv = {.k = b.out_f32({3, 2, 1, 2}), .v = b.out_f32({3, 2, 1, 1}), .pages = b.i32({2, 2}, {2, 0, 1, -1})}};
  run(op);
  EXPECT_EQ(cached(op.kv.k, 2, 1, 0), (Values{1, 2}));  // sequence 0, position 1: its first page, second slot
  EXPECT_EQ(cached(op.kv.k, 1, 0, 0), (Values{3, 4}));  // sequence 1, position 0
  EXPECT_EQ(cached(op.kv.k, 0, 0, 0), (Values{5, 6}));  // sequence 0, position 2: its second page
  EXPECT_EQ(cached(op.kv.v, 2, 1, 0), (Values{10}));
  EXPECT_EQ(cached(op.kv.v, 1, 0, 0), (Values{20}));
  EXPECT_EQ(cached(op.kv.v, 0, 0, 0), (Values{30}));
  for (const auto& [page, slot] : {std::pair{2, 0}, {1, 1}, {0, 1}}) {
    EXPECT_TRUE(untouched(select_outer(select_outer(op.kv.k, page), slot))) << page << "," << slot;
    EXPECT_TRUE(untouched(select_outer(select_outer(op.kv.v, page), slot))) << page << "," << slot;
  }
}

TEST(KvWrite, KeepsHeadsApart) {
  Host b(1, Layout::padded);
  const KvWrite op{.k = b.f32({1, 2, 2}, {1, 2, 3, 4}),
                   .v = b.f32({1, 2, 3}, {1, 2, 3, 4, 5, 6}),
                   .seqs = b.i32({1}, {0}),
                   .positions = b.i32({1}, {0}),
                   .kv = {.k = b.out_f32({1, 1, 2, 2}), .v = b.out_f32({1, 1, 2, 3}), .pages = b.i32({1, 1}, {0})}};
  run(op);
  EXPECT_EQ(floats_of(op.kv.k), (Values{1, 2, 3, 4}));
  EXPECT_EQ(floats_of(op.kv.v), (Values{1, 2, 3, 4, 5, 6}));
}

TEST(KvWrite, DropsATokenWithoutAPlace) {
  Host b(1, Layout::padded);
  // A sequence that is not there (two), a position that is not there (two), a page that is not there (two), and one that is.
  // The view is the middle of larger tensors, where every index beside it would find something.
  const Tensor k_pool = b.out_f32({4, 2, 1, 2});
  const Tensor v_pool = b.out_f32({4, 2, 1, 2});
  const Tensor tables = b.i32({4, 3}, {0, 0, 0, 1, 0, 0, -1, 2, 0, 0, 0, 0});
  const KvWrite op{
      .k = b.values(DType::f32, {7, 1, 2}),
      .v = b.values(DType::f32, {7, 1, 2}),
      .seqs = b.i32({7}, {-1, 2, 0, 0, 1, 1, 0}),
      .positions = b.i32({7}, {0, 0, -1, 4, 0, 2, 1}),
      .kv = {
          .k = slice(k_pool, 0, 1, 2), .v = slice(v_pool, 0, 1, 2), .pages = slice(slice(tables, 0, 1, 2), 1, 0, 2)}};
  run(op);
  for (std::int64_t page = 0; page < 4; ++page) {
    for (std::int64_t slot = 0; slot < 2; ++slot) {
      const bool written = page == 2 && slot == 1;
      EXPECT_EQ(untouched(select_outer(select_outer(k_pool, page), slot)), !written) << page << "," << slot;
      EXPECT_EQ(untouched(select_outer(select_outer(v_pool, page), slot)), !written) << page << "," << slot;
    }
  }
}

TEST(KvWrite, LetsTheLaterTokenStand) {
  Host b(1, Layout::padded);
  // Tokens 0 and 2 name one position; tokens 1 and 3 name one page from two sequences.
  const KvWrite op{
      .k = b.f32({4, 1, 1}, {1, 2, 3, 4}),
      .v = b.f32({4, 1, 1}, {10, 20, 30, 40}),
      .seqs = b.i32({4}, {0, 0, 0, 1}),
      .positions = b.i32({4}, {0, 1, 0, 0}),
      .kv = {.k = b.out_f32({2, 1, 1, 1}), .v = b.out_f32({2, 1, 1, 1}), .pages = b.i32({2, 2}, {0, 1, 1, -1})}};
  run(op);
  EXPECT_EQ(floats_of(op.kv.k), (Values{3, 4}));
  EXPECT_EQ(floats_of(op.kv.v), (Values{30, 40}));
}

TEST(KvWrite, RoundsToTheCachesType) {
  Host b(1, Layout::padded);
  const KvWrite op{.k = b.f32({1, 1, 3}, {2049, 2051, 1e6F}),
                   .v = b.f32({1, 1, 3}, {1 + 0x1p-8F, 1 + 0x3p-8F, NAN}),
                   .seqs = b.i32({1}, {0}),
                   .positions = b.i32({1}, {0}),
                   .kv = {.k = b.output(DType::f16, {1, 1, 1, 3}),
                          .v = b.output(DType::bf16, {1, 1, 1, 3}),
                          .pages = b.i32({1, 1}, {0})}};
  run(op);
  EXPECT_EQ(floats_of(op.kv.k), (Values{2048, 2052, INFINITY}));
  const Values v = floats_of(op.kv.v);
  EXPECT_EQ(v[0], 1);
  EXPECT_EQ(v[1], 1 + 0x1p-6F);
  EXPECT_TRUE(std::isnan(v[2]));
}

TEST(KvWrite, RoundsQ8BlocksPlainly) {
  Values x(32, 0.0F);
  x[0] = -127;  // d = 1
  x[1] = 0.5F;  // ties to even
  x[2] = 1.5F;
  x[3] = -2.5F;
  x[4] = 126.49F;
  const BlockQ8_0 block = stored_block(x);
  EXPECT_EQ(f16_to_f32(block.d), 1);
  EXPECT_EQ(block.qs[0], -127);
  EXPECT_EQ(block.qs[1], 0);
  EXPECT_EQ(block.qs[2], 2);
  EXPECT_EQ(block.qs[3], -2);
  EXPECT_EQ(block.qs[4], 126);
  EXPECT_EQ(block.qs[31], 0);
}

TEST(KvWrite, TakesTheQ8LevelsFromTheScaleBeforeItIsRounded) {
  Values x(32);
  for (std::size_t i = 0; i < 32; ++i) x[i] = 0.37F * static_cast<float>(i) - 5.1F;
  x[7] = 9.77F;
  const float d = 9.77F / 127.0F;
  const BlockQ8_0 block = stored_block(x);
  EXPECT_EQ(block.d, f32_to_f16(d));
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(block.qs[i], std::nearbyintf(x[i] * (1.0F / d))) << i;
}

TEST(KvWrite, StoresZerosAndTinyBlocksAsZero) {
  for (const float tiny : {0.0F, 1e-38F, 1e-45F}) {  // 1 / d is not finite
    const BlockQ8_0 block = stored_block(Values(32, tiny));
    EXPECT_EQ(f16_to_f32(block.d), 0) << tiny;
    for (const std::int8_t q : block.qs) EXPECT_EQ(q, 0) << tiny;
  }
}

TEST(KvWrite, MarksAQ8BlockThatIsNotFiniteAndNoOther) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    Host b(1, Layout::padded);
    Values k(96, 2.0F);
    k[40] = bad;
    const KvWrite op{.k = b.f32({1, 1, 96}, k),
                     .v = b.f32({1, 1, 1}, {0}),
                     .seqs = b.i32({1}, {0}),
                     .positions = b.i32({1}, {0}),
                     .kv = {.k = b.floats(DType::q8_0, {1, 1, 1, 96}, Values(96, 0)),
                            .v = b.out_f32({1, 1, 1, 1}),
                            .pages = b.i32({1, 1}, {0})}};
    run(op);
    const Values out = floats_of(op.kv.k);
    for (std::size_t i = 0; i < 96; ++i) {
      if (i / 32 == 1) {
        EXPECT_TRUE(std::isnan(out[i])) << i;
      } else {
        EXPECT_NEAR(out[i], 2, 2.0 / 1024) << i;
      }
    }
  }
}

TEST(KvWrite, DropsTokensPastLive) {
  for (const auto& [live, written] : {std::pair{2, 2}, {0, 0}, {-1, 0}, {9, 3}}) {
    Host b(1, Layout::padded);
    const KvWrite op{
        .k = b.values(DType::f32, {3, 1, 2}),
        .v = b.values(DType::f32, {3, 1, 2}),
        .seqs = b.i32({3}, {0, 0, 0}),
        .positions = b.i32({3}, {0, 1, 2}),
        .live = b.live(live),
        .kv = {.k = b.out_f32({3, 1, 1, 2}), .v = b.out_f32({3, 1, 1, 2}), .pages = b.i32({1, 3}, {0, 1, 2})}};
    run(op);
    for (std::int64_t r = 0; r < 3; ++r) {
      EXPECT_EQ(untouched(select_outer(op.kv.k, r)), r >= written) << "live " << live;
      EXPECT_EQ(untouched(select_outer(op.kv.v, r)), r >= written) << "live " << live;
    }
  }
}

TEST(KvWrite, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const KvWrite valid{.k = b.values(DType::f32, {3, 2, 8}),
                      .v = b.values(DType::f32, {3, 2, 4}),
                      .seqs = b.i32({3}, {0, 0, 0}),
                      .positions = b.i32({3}, {0, 1, 2}),
                      .live = b.live(3),
                      .kv = {.k = b.values(DType::f32, {5, 4, 2, 8}),
                             .v = b.values(DType::f32, {5, 4, 2, 4}),
                             .pages = b.integers({2, 3}, 0, 4)}};
  expect_all_needed_but(valid, {"live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](KvWrite& op) { op.k = b.values(DType::f32, {3, 1, 8}); }, "kv_write: k is [3,1,8], expected [any,2,8]");
  expect([&](KvWrite& op) { op.k = b.values(DType::f32, {3, 16}); }, "kv_write: k is [3,16], expected [any,2,8]");
  expect([&](KvWrite& op) { op.k = b.integers({3, 2, 8}, 0, 1); }, "kv_write: k is i32, expected f32, f16, bf16");
  expect([&](KvWrite& op) { op.v = b.values(DType::f32, {3, 2, 8}); }, "kv_write: v is [3,2,8], expected [3,2,4]");
  expect([&](KvWrite& op) { op.v = b.values(DType::f32, {2, 2, 4}); }, "kv_write: v is [2,2,4], expected [3,2,4]");
  expect([&](KvWrite& op) { op.seqs = b.integers({2}, 0, 1); }, "kv_write: seqs is [2], expected [3]");
  expect([&](KvWrite& op) { op.seqs = b.values(DType::f32, {3}); }, "kv_write: seqs is f32, expected i32");
  expect([&](KvWrite& op) { op.positions = b.integers({4}, 0, 1); }, "kv_write: positions is [4], expected [3]");
  expect([&](KvWrite& op) { op.live = b.integers({3}, 0, 1); }, "kv_write: live is [3], expected [1]");
  expect(
      [&](KvWrite& op) {
        op.kv.k = b.values(DType::f32, {5, 4, 16});
      },
      "kv_write: k_pool is [5,4,16], expected [any,any,any,any]");
  expect(
      [&](KvWrite& op) {
        op.kv.k = b.weights(DType::q4_0, {5, 4, 2, 32});
      },
      "kv_write: k_pool is q4_0, expected f32, f16, bf16, q8_0");
  expect(
      [&](KvWrite& op) {
        op.kv.v = b.values(DType::f32, {5, 4, 1, 4});
      },
      "kv_write: v_pool is [5,4,1,4], expected [5,4,2,any]");
  expect([&](KvWrite& op) { op.kv.pages = b.integers({6}, 0, 4); }, "kv_write: pages is [6], expected [any,any]");
  expect([&](KvWrite& op) { op.kv.pages = b.values(DType::f32, {2, 3}); }, "kv_write: pages is f32, expected i32");
  expect(
      [&](KvWrite& op) {
        op.kv.k = b.values(DType::f32, {5, 0, 2, 8});
        op.kv.v = b.values(DType::f32, {5, 0, 2, 4});
      },
      "kv_write: page_size is 0");
}

}  // namespace
}  // namespace conclave::test
