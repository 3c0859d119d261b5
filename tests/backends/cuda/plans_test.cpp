// Launch geometry, on any machine.
#include <gtest/gtest.h>

#include "backends/cuda/block_rows_plan.h"
#include "backends/cuda/many_rows_plan.h"
#include "backends/cuda/weight_planes.h"
#include "backends/cuda/wide_rows_plan.h"

namespace conclave::cuda {
namespace {

// The most tiles of `tile` rows that any cut of n_rows over lists needs: it puts `from` rows, or one past whole tiles, into as
// many lists as it can.
std::int64_t worst_cut(std::int64_t n_rows, std::int64_t n_lists, std::int64_t from, std::int64_t tile) {
  std::int64_t worst = 0;
  for (std::int64_t first = 0; first <= n_rows; ++first) {
    std::int64_t left = n_rows;
    std::int64_t tiles = 0;
    for (std::int64_t list = 0; list < n_lists && left > 0; ++list) {
      const std::int64_t rows = list == 0 ? first : std::min(left, from);
      if (rows >= from) tiles += ceil_div(rows, tile);
      left -= rows;
    }
    worst = std::max(worst, tiles);
  }
  return worst;
}

TEST(CudaPlans, RowTilesAreEnoughForAnyCut) {
  for (std::int64_t n_rows = 0; n_rows <= 3 * kManyRows; ++n_rows) {
    for (const std::int64_t n_lists : {1, 2, 3, 5}) {
      EXPECT_LE(worst_cut(n_rows, n_lists, kManyFrom, kManyRows), most_row_tiles(n_rows, n_lists))
          << n_rows << " rows, " << n_lists << " lists";
      for (const bool few : {false, true}) {
        const std::int64_t tile = block_shape(DType::mxfp4, few).rows;
        EXPECT_LE(worst_cut(n_rows, n_lists, 1, tile), most_block_tiles(n_rows, n_lists, tile))
            << n_rows << " rows, " << n_lists << " lists";
      }
      for (const std::int64_t from : {std::int64_t{1}, kWideFrom}) {
        for (const std::int64_t tile : {kShortRows, kWideRows}) {
          EXPECT_LE(worst_cut(n_rows, n_lists, from, tile), most_wide_tiles(n_rows, n_lists, from, tile))
              << n_rows << " rows, " << n_lists << " lists from " << from;
        }
      }
    }
  }
}

TEST(CudaPlans, WideTilesAreSmallerWhereThereAreFew) {
  EXPECT_EQ(wide_tile_rows(65536, 128, 2048, false, 132), kWideRows);
  EXPECT_EQ(wide_tile_rows(2048, 128, 768, true, 132), kShortRows);
  EXPECT_EQ(wide_tile_rows(512, 1, 2048, false, 132), 64);
  EXPECT_EQ(wide_tile_rows(17, 1, 64, false, 132), kShortRows);
  EXPECT_EQ(
      wide_rows_plan(DType::q4_k, most_wide_tiles(8, 128, kWideFrom, kWideRows), 768, true, kWideRows, 132).blocks, 0);
  EXPECT_EQ(wide_rows_plan(DType::q4_k, 1, 768, true, kWideRows, 132).blocks, 12);
  EXPECT_EQ(wide_rows_plan(DType::q4_k, 64, 768, true, kWideRows, 132).blocks, 132);
  EXPECT_EQ(wide_rows_plan(DType::q4_k, 64, 768, true, kShortRows, 132).blocks, 264);
}

TEST(CudaPlans, SharedMemoryOfFewRowsFitsEveryGpu) {
  constexpr std::int64_t kSmallest = 99 * 1024;  // of a block on sm_86 and sm_89
  for (const bool shares : {false, true}) {
    for (const DType type : {DType::q4_k, DType::q5_k, DType::q6_k}) {
      EXPECT_LE(few_shared_bytes(type, shares) + kFewStatic, kSmallest);
    }
  }
  for (std::int64_t chunks = 1; chunks < 100; ++chunks) {
    EXPECT_LE(few_share(chunks) * few_tiles(chunks), kFewWarps);
    EXPECT_GE(few_tiles(chunks), 1);
  }
  for (const DType type : {DType::q4_k, DType::q6_k}) EXPECT_LE(2 * stage_bytes(type), kSmallest);
  for (const DType type : {DType::q8_0, DType::q4_0, DType::mxfp4}) {
    for (const bool few : {false, true}) EXPECT_LE(block_shared_bytes(type, few) + 4096, kSmallest);
  }
}

TEST(CudaPlans, PlanesLieSideBySide) {
  for (std::int64_t blocks = 1; blocks < 60; ++blocks) {
    const PlanesQ6K planes{blocks};
    EXPECT_EQ(planes.qh(0), planes.ql(blocks));
    EXPECT_EQ(planes.scales(0), planes.qh(blocks));
    EXPECT_EQ(planes.d(0), planes.scales(blocks));
    EXPECT_GE(planes.row_bytes(), planes.d(blocks));
    EXPECT_EQ(planes.row_bytes() % 16, 0);
    EXPECT_EQ(planes.d(0) % 16, 0);
  }
  for (const DType type : {DType::q8_0, DType::q4_0, DType::mxfp4}) {
    for (std::int64_t blocks = 1; blocks < 200; ++blocks) {
      const Planes32 planes{type, blocks};
      EXPECT_EQ(planes.scales(0), planes.levels(blocks));
      EXPECT_EQ(planes.scales(0) % 16, 0);
      EXPECT_EQ(planes.row_bytes() % 16, 0);
      // The scales of the last chunk can be read whole.
      EXPECT_GE(planes.row_bytes(), planes.scales(ceil_div(blocks, 8) * 8));
      EXPECT_EQ(ceil_div(planes.scales(blocks), 16) * 16, planes.row_bytes());
    }
  }
}

TEST(CudaPlans, NibblesOfMxfp4KeepTheirElements) {
  for (std::uint32_t i = 0; i < 8; ++i) {  // byte i % 4, its low nibble or its high one
    EXPECT_EQ(mxfp4_word(0xFU << (8 * (i % 4) + 4 * (i / 4))), 0xFU << 4 * i) << i;
  }
}

TEST(CudaPlans, BlocksOfOneTokenAreThoseOfItsExperts) {
  EXPECT_EQ(few_rows_plan(DType::q4_k, 8, 256, 8, true).blocks, 8 * 32);
  EXPECT_EQ(few_rows_plan(DType::q4_k, 8, 768, 8, true).blocks, kFewBlocks);
  EXPECT_EQ(few_rows_plan(DType::q4_k, 0, 768, 8, true).blocks, 0);
  EXPECT_TRUE(shares_tiles(8, 768, true));
  EXPECT_FALSE(shares_tiles(128, 768, true));
  EXPECT_EQ(many_rows_plan(DType::q4_k, 8, 128, 768, true).blocks, 0);
}

}  // namespace
}  // namespace conclave::cuda
