// Products of up to 128 rows with whole matrices of superblocks, on the int8 tensor cores: queries, keys and values in
// one launch, outputs of attention, shared experts. Bits as in product_plan.h. Runs on every GPU from sm_80 on.
//
// Such a product has few columns for a large GPU, so that what it waits for matters most. A block has one to three
// tiles of 16 columns (of gate and up: 8 of each), and each of its eight warps one superblock of them at a time: a
// round of eight superblocks. A warp asks for its weights before it waits for the kernel before, decodes them once and
// keeps them in registers while its rows pass by, eight at a time, in a ring of its own. What its superblock adds to
// each output goes to shared memory; there the block adds it in the order of the superblocks. Where a column has fewer
// than eight superblocks, groups of warps have tiles of their own. Where blocks would be too few, or would read too
// many rows, each has a part of the rows alone; where a matrix has more parts than there are multiprocessors, a block
// has several, one after another.
#pragma once

#include "backends/cuda/fetch_ahead_plan.h"
#include "backends/cuda/few_rows_plan.h"

namespace conclave::cuda {

struct DenseMatrix {
  const std::byte* w = nullptr;   // gate, where `up` is given
  const std::byte* up = nullptr;  // then out = act(gate) * up
  std::int64_t w_column = 0;      // bytes from column to column
  std::int64_t up_column = 0;
  std::byte* out = nullptr;
  std::int64_t out_stride = 0;
  const std::byte* bias = nullptr;
  float* residual = nullptr;         // dense_once_plan.h: where it is given the output is added to it, too
  std::int64_t residual_stride = 0;  // floats
  std::int32_t n = 0;                // columns
  std::int32_t parts = 0;            // of them
  std::int32_t across = 0;           // blocks that have parts b, b + across, ...
  DType type = DType::q4_k;          // of the weights: q4_k or q5_k as stored, q6_k in planes
  DType out_type = DType::f32;
  DType bias_type = DType::f32;
  Activation act = Activation::silu;
};

inline constexpr std::int64_t kDenseRows = 128;
inline constexpr std::int64_t kDenseAlways = 16;  // rows up to which matrices of any size are this kernel's
inline constexpr int kDenseMatrices = 3;
inline constexpr int kDenseWarps = 8;
inline constexpr int kDenseThreads = kDenseWarps * kWarp;
inline constexpr int kDenseTiles = 3;   // of a warp, at most; then all of its columns are one round of one part
inline constexpr int kDenseStages = 3;  // tiles of rows in a warp's ring

// How blocks and their warps share the work.
struct DenseCut {
  std::int32_t share = 1;   // warps of a tile, a superblock each
  std::int32_t groups = 1;  // of so many warps
  std::int32_t rounds = 1;
  std::int32_t tiles = 1;      // of columns, of a warp
  std::int32_t slots = 1;      // of weights, in turn
  std::int32_t row_parts = 1;  // blocks that have the same columns
  std::int32_t row_tiles = 1;  // of such a part
};
constexpr DenseCut dense_cut(std::int64_t chunks, std::int64_t rows, int tiles, int row_parts) {
  const std::int64_t share = chunks < kDenseWarps ? chunks : kDenseWarps;
  const std::int64_t rounds = ceil_div(chunks, share);
  return {.share = static_cast<std::int32_t>(share),
          .groups = static_cast<std::int32_t>(kDenseWarps / share),
          .rounds = static_cast<std::int32_t>(rounds),
          .tiles = tiles,
          .slots = rounds == 1 ? 1 : 2,
          .row_parts = row_parts,
          .row_tiles = static_cast<std::int32_t>(ceil_div(ceil_div(rows, kRowTile), row_parts))};
}
static_assert(dense_cut(3, 8, 1, 1).groups == 2 && dense_cut(3, 8, 1, 1).rounds == 1 &&
              dense_cut(11, 8, 1, 1).rounds == 2);
static_assert(dense_cut(16, 61, 2, 2).row_tiles == 4);

// The same for dense_once_plan.h.
struct DenseOnceCut {
  std::int32_t warps = 0;      // of a block; 0: it is no product for it
  std::int32_t groups = 0;     // tiles of columns of a block: a warp for each of their superblocks
  std::int32_t by_groups = 0;  // i / groups is i * by_groups / 2^16, for numbers of tiles of rows and columns
  std::int32_t row_tiles = 0;
  std::int32_t own_bytes = 0;  // of shared memory, a warp's: weights, and then what it adds to outputs
};

// And for dense_tall_plan.h.
struct DenseTallCut {
  std::int32_t columns = 0;  // of a block; 0: it is no product for it
  std::int32_t stages = 0;
  std::int32_t raw_end = 0;  // of a block's columns as stored, in shared memory
  std::int32_t blocks[kDenseMatrices] = {};
};

// The same rows with each matrix.
struct DenseArgs {
  DenseMatrix of[kDenseMatrices];
  std::int32_t count = 0;  // matrices
  const std::byte* x = nullptr;
  std::int64_t x_stride = 0;
  const std::int8_t* q = nullptr;  // RowBank's
  const float* scale = nullptr;
  const std::uint16_t* sums = nullptr;
  const std::int32_t* live = nullptr;
  std::int32_t rows = 0;
  std::int32_t k = 0;
  std::int32_t chunks = 0;
  DType x_type = DType::f32;
  DenseCut cut;
  DenseOnceCut once;
  DenseTallCut tall;
  FetchAhead ahead;  // dense_tall's: while it multiplies
};

// In shared memory, of a warp: rows with their sums behind them, and their scales; weights; what it adds to outputs,
// in pairs, for this step and the next. Strides keep accesses in different banks.
inline constexpr int kDenseRowStride = kChunk + 32;
inline constexpr int kDenseStage = kRowTile * kDenseRowStride + kRowTile * 4;
inline constexpr int kDenseTermStride = kTile * 8 + 16;
inline constexpr int kDenseTerms = kRowTile * kDenseTermStride;
static_assert(kDenseRowStride % 128 == 32 && kDenseTermStride * 2 % 128 == 32 && kDenseStage % 16 == 0);
static_assert(kRowTile == kBankRows, "a bank has room for whole tiles");

// Of a block: outputs between rounds, too.
constexpr std::int64_t dense_shared_bytes(DType type, const DenseCut& cut) {
  const std::int64_t between = cut.rounds == 1 ? 0 : std::int64_t{cut.row_tiles} * kRowTile * kTile * 4 * cut.tiles;
  return kDenseWarps *
             (kDenseStages * kDenseStage + cut.slots * cut.tiles * tile_bytes(type) + 2 * cut.tiles * kDenseTerms) +
         between;
}
static_assert(dense_shared_bytes(DType::q6_k, dense_cut(8, kDenseRows, 3, 1)) <= 227 * 1024 &&
              dense_shared_bytes(DType::q6_k, dense_cut(16, kDenseRows, 2, 1)) <= 227 * 1024);

// What a GPU has.
struct DenseRoom {
  std::int64_t shared_bytes = 0;  // of a block, at most
  int multiprocessors = 1;
  bool hopper = false;
};

constexpr std::int64_t dense_parts(std::int64_t n, bool gate_up, const DenseCut& cut) {
  return ceil_div(n, std::int64_t{few_columns(gate_up)} * cut.groups * cut.tiles);
}
// About how many clocks it takes: its blocks' instructions, and what blocks that come later wait for, or all of them
// reading the rows. `turns`: blocks have parts one after another, and ask for the weights of the next ahead of time.
constexpr std::int64_t dense_clocks(std::int64_t blocks, std::int64_t chunks, const DenseCut& cut, bool turns,
                                    const DenseRoom& room) {
  const std::int64_t each = cut.rounds * (cut.row_tiles * (100 + 220 * cut.tiles) + 150 * cut.tiles);
  const std::int64_t waves = ceil_div(blocks, room.multiprocessors);
  const std::int64_t working = waves * each + (turns ? 0 : (waves - 1) * 1500);
  const std::int64_t reading = blocks * cut.row_tiles * kRowTile * chunks * (kDenseRowStride + 4) / 3000;
  return working > reading ? working : reading;
}

// Whether it is a product for this kernel: rows that are not many, with columns that few_rows' warps would be too many
// for, or rows that are few.
constexpr bool takes_dense(DType type, std::int64_t rows, std::int64_t n, std::int64_t k, bool gate_up,
                           const DenseRoom& room) {
  return rows <= kDenseRows && (rows <= kDenseAlways || ceil_div(n, few_columns(gate_up)) < kOwnFrom) &&
         dense_shared_bytes(type, dense_cut(chunks_of(k), rows, 1, 1)) <= room.shared_bytes;
}
static_assert(takes_dense(DType::q4_k, 64, 4096, 2048, false, {227 * 1024, 132}));
static_assert(!takes_dense(DType::q6_k, 64, 151936, 2048, false, {227 * 1024, 132}));

constexpr bool dense_fits(const DenseArgs& args, const DenseCut& cut, const DenseRoom& room) {
  bool fits = cut.tiles < kDenseTiles || cut.slots == 1;
  for (int i = 0; i < args.count; ++i) {
    fits = fits && dense_shared_bytes(args.of[i].type, cut) <= room.shared_bytes;
  }
  return fits;
}
// Of matrices that each are such a product: the cut that makes it fastest.
constexpr void cut_dense(DenseArgs& args, const DenseRoom& room) {
  const auto parts_of = [&](int i, const DenseCut& cut) {
    return dense_parts(args.of[i].n, args.of[i].up != nullptr, cut);
  };
  std::int64_t best = -1;
  bool best_turns = false;
  for (int tiles = 1; tiles <= kDenseTiles; ++tiles) {
    for (int row_parts = 1; row_parts <= 4; row_parts *= 2) {
      DenseCut cut = dense_cut(args.chunks, args.rows, tiles, row_parts);
      DenseCut ahead = cut;
      ahead.slots = 2;
      const bool turns =
          args.count == 1 && row_parts == 1 && parts_of(0, cut) > room.multiprocessors && dense_fits(args, ahead, room);
      if (turns) cut = ahead;
      std::int64_t blocks = 0;
      for (int i = 0; i < args.count; ++i) blocks += parts_of(i, cut) * row_parts;
      const std::int64_t clocks = dense_clocks(blocks, args.chunks, cut, turns, room);
      if (!dense_fits(args, cut, room) || (best >= 0 && clocks >= best)) continue;
      best = clocks;
      best_turns = turns;
      args.cut = cut;
    }
  }
  for (int i = 0; i < args.count; ++i) {
    const std::int64_t parts = parts_of(i, args.cut);
    args.of[i].parts = static_cast<std::int32_t>(parts);
    args.of[i].across =
        static_cast<std::int32_t>(best_turns ? ceil_div(parts, ceil_div(parts, room.multiprocessors)) : parts);
  }
}
constexpr LaunchPlan dense_rows_plan(const DenseArgs& args) {
  LaunchPlan plan{.threads = kDenseThreads};
  for (int i = 0; i < args.count; ++i) {
    const std::int64_t bytes = dense_shared_bytes(args.of[i].type, args.cut);
    plan.blocks += std::int64_t{args.of[i].across} * args.cut.row_parts;
    plan.shared_bytes = bytes > plan.shared_bytes ? bytes : plan.shared_bytes;
  }
  return plan;
}

int launch_dense_rows(const DenseArgs& args, const Stream& stream);

}  // namespace conclave::cuda
