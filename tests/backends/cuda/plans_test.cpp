// Launch geometry, on any machine.
#include <gtest/gtest.h>

#include <vector>

#include "backends/cuda/block_rows_plan.h"
#include "backends/cuda/dense_once_plan.h"
#include "backends/cuda/dense_tall_plan.h"
#include "backends/cuda/float_bulk_plan.h"
#include "backends/cuda/float_split_plan.h"
#include "backends/cuda/many_rows_plan.h"
#include "backends/cuda/prefill_rows_plan.h"
#include "backends/cuda/weight_planes.h"
#include "backends/cuda/wide_rows_plan.h"

namespace conclave::cuda {
namespace {

// The most tiles of `tile` rows that any cut of n_rows over lists needs: it puts `from` rows, or one past whole tiles,
// into as many lists as it can.
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

TEST(CudaPlans, PrefillBankHoldsEveryElementOnce) {
  std::vector<int> seen(kChunk);
  for (int place = 0; place < kChunk; ++place) {
    ++seen[bank_element(place)];
    EXPECT_EQ(bank_place(bank_element(place)), place);
  }
  EXPECT_EQ(seen, std::vector<int>(kChunk, 1));
  // Four neighbours are two words, eight places apart.
  for (int first = 0; first < kChunk; first += 4) {
    EXPECT_EQ(bank_place(first) % 2, 0);
    EXPECT_EQ(bank_place(first + 2), bank_place(first) + 1);
    EXPECT_EQ(bank_place(first + 1), bank_place(first) + 8);
    EXPECT_EQ(bank_place(first + 3), bank_place(first) + 9);
  }
}

TEST(CudaPlans, PrefillTilesFitTheirRoom) {
  for (const DType type : {DType::q4_k, DType::q5_k, DType::q6_k, DType::q8_0, DType::q4_0, DType::mxfp4}) {
    for (const std::int64_t n_lists : {1, 8, 128}) {
      for (std::int64_t n_rows = 0; n_rows <= 70000; n_rows = n_rows * 5 / 4 + 1) {
        for (const bool gate_up : {false, true}) {
          const PrefillCut cut = prefill_cut(type, n_rows, n_lists, 768, gate_up, gate_up, 132);
          EXPECT_TRUE(cut.room == kPrefillShortRows || cut.room == prefill_long_rows(type));
          EXPECT_GT(cut.rows, 0);
          EXPECT_LE(cut.rows, cut.room);
          EXPECT_EQ(cut.rows % 16, 0);
          EXPECT_GE(cut.across * prefill_columns(cut.room) / (gate_up ? 2 : 1), 768);
          const LaunchPlan plan = prefill_rows_plan(type, n_rows, n_lists, cut, 132);
          EXPECT_EQ(plan.blocks == 0, n_rows == 0);
          EXPECT_LE(plan.blocks, 132);
          EXPECT_LE(plan.shared_bytes, 227 * 1024);
        }
      }
    }
  }
}

TEST(CudaPlans, PrefillTilesAreAsLongAsListsAre) {
  EXPECT_EQ(prefill_cut(DType::q4_k, 1024, 128, 768, true, true, 132).room, kPrefillShortRows);
  EXPECT_EQ(prefill_cut(DType::q4_k, 65536, 128, 768, true, true, 132).rows, kPrefillRows);
  EXPECT_EQ(prefill_cut(DType::q8_0, 65536, 128, 768, true, true, 132).room, 128);
  EXPECT_EQ(prefill_cut(DType::q4_k, 512, 1, 4096, false, false, 132).rows, 96);
  EXPECT_EQ(prefill_cut(DType::q4_k, 512, 1, 512, false, false, 132).rows, 16);
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

TEST(CudaPlans, TilesOfFloatsCoverEveryOutput) {
  for (const FloatTile& tile : kFloatTiles) {
    EXPECT_GE(tile.stages(), 3);
    EXPECT_LE(tile.stages() * tile.stage_bytes(), kFloatShared);
    EXPECT_EQ(tile.step % kWarp, 0);
  }
  for (std::int64_t rows = 1; rows < 3000; rows += 1 + rows / 7) {
    for (const std::int64_t n : {1, 3, 8, 60, 128, 256, 2048, 151936}) {
      const FloatTile& tile = kFloatTiles[float_tile(rows, n)];
      const LaunchPlan plan = float_rows_plan(rows, n);
      EXPECT_EQ(plan.blocks, ceil_div(rows, tile.rows()) * ceil_div(n, tile.columns()));
      EXPECT_TRUE(plan.blocks * plan.threads >= kFloatWarps * kWarp || rows * n < 8 * kFloatWarps)
          << rows << " rows, " << n << " columns";
      const SplitTile& split = kSplitTiles[split_tile(rows, n, 132)];
      const LaunchPlan halves = float_split_plan(rows, n, 132);
      EXPECT_EQ(halves.blocks, ceil_div(rows, split.rows()) * ceil_div(n, split.columns()) * halves.cluster);
      EXPECT_LE(halves.shared_bytes, kSplitShared);
      const BulkTile& bulk = kBulkTiles[bulk_tile(rows, n, 132)];
      const LaunchPlan pieces = float_bulk_plan(rows, n, 132);
      EXPECT_EQ(pieces.blocks, ceil_div(rows, bulk.rows()) * ceil_div(n, bulk.columns()));
      EXPECT_LE(pieces.shared_bytes, kSplitShared);
    }
  }
  EXPECT_FALSE(fits_float_rows(1, std::int64_t{1} << 31, 1));
}

// Matrices of so many columns, of the types in turn.
DenseArgs dense_of(std::initializer_list<std::int32_t> columns, std::int32_t chunks, std::int32_t rows,
                   std::initializer_list<DType> types, const DenseRoom& room) {
  DenseArgs args{.rows = rows, .k = chunks * kChunk, .chunks = chunks};
  for (const std::int32_t n : columns) {
    args.of[args.count].n = n;
    args.of[args.count].type = types.begin()[args.count % types.size()];
    ++args.count;
  }
  cut_dense(args, room);
  return args;
}

TEST(CudaPlans, DenseProductsFillTheGpuOnceAndReadRowsSeldom) {
  constexpr DenseRoom kHopper{227 * 1024, 132};
  for (const std::int32_t rows : {5, 8, 33, 64, 128}) {
    const auto qkv = dense_of({4096, 512, 512}, 8, rows, {DType::q4_k, DType::q4_k, DType::q6_k}, kHopper);
    EXPECT_EQ(qkv.cut.tiles, 3) << rows;
    EXPECT_EQ(dense_rows_plan(qkv).blocks, 86 + 11 + 11) << rows;
  }
  EXPECT_EQ(dense_rows_plan(dense_of({2048}, 16, 8, {DType::q4_k}, kHopper)).blocks, 128);
  const auto half = dense_of({2048}, 16, 64, {DType::q4_k}, kHopper);  // of the rows, for twice the columns
  EXPECT_EQ(half.cut.row_parts, 2);
  EXPECT_EQ(dense_rows_plan(half).blocks, 128);
  const auto logits = dense_of({151936}, 8, 8, {DType::q6_k}, kHopper);
  EXPECT_EQ(dense_rows_plan(logits).blocks, 132);
  EXPECT_EQ(logits.cut.slots, 2);
}

TEST(CudaPlans, DenseCutsFitAndCoverAllColumns) {
  for (const DenseRoom& room : {DenseRoom{99 * 1024, 82}, DenseRoom{163 * 1024, 108}, DenseRoom{227 * 1024, 132}}) {
    for (std::int32_t chunks = 1; chunks < 60; ++chunks) {
      for (const std::int32_t rows : {1, 8, 77, 128}) {
        for (const DType type : {DType::q4_k, DType::q5_k, DType::q6_k}) {
          for (const std::int32_t n : {1, 16, 17, 512, 2048, 16895}) {
            if (!takes_dense(type, rows, n, std::int64_t{chunks} * kChunk, false, room)) continue;
            const DenseArgs args = dense_of({n}, chunks, rows, {type}, room);
            const DenseCut& cut = args.cut;
            EXPECT_LE(dense_rows_plan(args).shared_bytes, room.shared_bytes);
            EXPECT_LE(cut.share * cut.groups, kDenseWarps);
            EXPECT_GE(cut.share * cut.rounds, chunks);
            EXPECT_TRUE(cut.rounds == 1 || (cut.share == kDenseWarps && cut.groups == 1));
            const std::int64_t each = std::int64_t{kTile} * cut.tiles * cut.groups;
            EXPECT_GE(args.of[0].parts * each, n);
            EXPECT_LT((args.of[0].parts - 1) * each, n);
            EXPECT_GE(cut.row_parts * cut.row_tiles * kRowTile, rows);
            const bool one_item = cut.rounds == 1 && args.of[0].across == args.of[0].parts;
            EXPECT_EQ(cut.slots, one_item ? 1 : 2);
            EXPECT_TRUE(one_item || cut.tiles < kDenseTiles);
          }
        }
      }
    }
  }
}

TEST(CudaPlans, DenseProductsThatAreSharedOutOnceFit) {
  constexpr DenseRoom kHopper{227 * 1024, 132};
  const auto once_of = [&](std::initializer_list<std::int32_t> columns, std::int32_t chunks, std::int32_t rows) {
    const DenseArgs args = dense_of(columns, chunks, rows, {DType::q4_k, DType::q4_k, DType::q6_k}, kHopper);
    return dense_once_cut(args, kHopper);
  };
  EXPECT_EQ(once_of({4096, 512, 512}, 8, 8).groups, 3);     // 108 blocks
  EXPECT_EQ(once_of({2048}, 16, 32).warps, kOnceFewWarps);  // 128
  EXPECT_EQ(once_of({2048}, 16, 33).warps, 0);
  EXPECT_EQ(once_of({151936}, 8, 8).warps, 0);
  for (std::int32_t chunks = 1; chunks < 30; ++chunks) {
    for (const std::int32_t rows : {1, 8, 17, 32}) {
      for (const std::int32_t n : {1, 17, 512, 2048, 5000}) {
        const DenseArgs args = dense_of({n}, chunks, rows, {DType::q6_k}, kHopper);
        const DenseOnceCut cut = dense_once_cut(args, kHopper);
        if (cut.warps == 0) continue;
        EXPECT_LE(cut.groups * chunks, cut.warps);
        EXPECT_LE(dense_once_blocks(args, cut), kHopper.multiprocessors);
        EXPECT_LE(dense_once_shared(cut, chunks), kHopper.shared_bytes);
        EXPECT_GE(cut.own_bytes, cut.row_tiles * kDenseTerms);
        for (int unit = 0; unit < 2 * kOnceRowTiles * kOnceWarps; ++unit) {
          EXPECT_EQ(unit * cut.by_groups >> 16, unit / cut.groups);
        }
      }
    }
  }
}

TEST(CudaPlans, DenseProductsOfUpTo64RowsFit) {
  constexpr DenseRoom kHopper{227 * 1024, 132, true};
  const auto tall_of = [&](std::initializer_list<std::int32_t> columns, std::int32_t chunks, std::int32_t rows,
                           DType last) {
    const DenseArgs args = dense_of(columns, chunks, rows, {DType::q4_k, DType::q4_k, last}, kHopper);
    return dense_tall_cut(args, kHopper);
  };
  EXPECT_EQ(dense_tall_blocks(tall_of({4096, 512, 512}, 8, 64, DType::q4_k)), 103 + 13 + 13);
  EXPECT_EQ(dense_tall_blocks(tall_of({4096, 512, 512}, 8, 33, DType::q6_k)), 103 + 13 + 16);
  EXPECT_EQ(tall_of({2048}, 16, 64, DType::q4_k).columns, kTallNarrow);
  EXPECT_EQ(tall_of({4096, 512, 512}, 8, 32, DType::q4_k).columns, 0);
  EXPECT_EQ(tall_of({4096, 512, 512}, 8, 64, DType::q5_k).columns, 0);
  EXPECT_EQ(tall_of({151936}, 8, 64, DType::q4_k).columns, 0);
  for (const DType type : {DType::q4_k, DType::q6_k}) {
    for (std::int32_t chunks = 1; chunks < 30; ++chunks) {
      for (const std::int32_t n : {1, 17, 512, 2048, 5000}) {
        const DenseTallCut cut = dense_tall_cut(dense_of({n}, chunks, 64, {type}, kHopper), kHopper);
        if (cut.columns == 0) continue;
        EXPECT_LE(dense_tall_blocks(cut), kHopper.multiprocessors);
        EXPECT_LE(dense_tall_shared(cut, chunks) + kTallLeaves, kHopper.shared_bytes);
        EXPECT_LE(TallLayout({cut.columns, chunks}).end(type) + kTallAlignment, dense_tall_shared(cut, chunks));
        EXPECT_EQ(tall_raw_stride(type, chunks) / 16 % 2, 1);
        EXPECT_GE(cut.stages, 1);
      }
    }
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

TEST(CudaPlans, TilesOfFewRowsHaveEachColumnOnce) {
  unsigned columns = 0;
  for (int i = 0; i < kTile; ++i) {
    EXPECT_EQ(tile_column(i) / 8, i / 8);                       // of gate and up, each in its half
    EXPECT_EQ(tile_column(i) % 2, tile_column(i / 4 * 4) % 2);  // four that are read at once begin alike
    columns |= 1U << tile_column(i);
  }
  EXPECT_EQ(columns, 0xFFFFU);
  for (const bool gate_up : {false, true}) {
    for (std::int64_t n = 1; n < 300; ++n) {
      const int tiles = few_parts(n, 3, gate_up, false);
      EXPECT_GE(std::int64_t{tiles} * few_columns(gate_up), n);
      EXPECT_LT(std::int64_t{tiles - 1} * few_columns(gate_up), n);
      EXPECT_EQ(few_parts(n, 3, gate_up, true), ceil_div(tiles, few_tiles(3)));
    }
  }
}

TEST(CudaPlans, SumsOfFewRowsLieBehindTheirRows) {
  unsigned seen[8] = {};  // words of 8 bytes
  for (int slot = 0; slot < kMaxSegment; ++slot) {
    for (int t = 0; t < 4; ++t) {
      const int at = few_sums(kMaxSegment, slot) + 16 * t;
      ASSERT_GE(at, kMaxSegment * kChunk);
      ASSERT_LE(at + 8, few_row_stride(kMaxSegment));
      const int word = (at - kMaxSegment * kChunk) / 8;
      EXPECT_EQ(seen[word / 8] >> word % 8 & 1U, 0U);
      seen[word / 8] |= 1U << word % 8;
    }
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
