// Products of up to 128 rows with whole matrices of superblocks, on the int8 tensor cores: queries, keys and values in
// one launch, outputs of attention, shared experts. Bits as in product_plan.h. Runs on every GPU from sm_80 on.
//
// Such a product has few columns for a large GPU, so that what it waits for matters most. A block has one to three
// tiles of 16 columns (of gate and up: 8 of each), and each of its eight warps one superblock of them at a time: a round
// of eight superblocks. A warp asks for its weights before it waits for the kernel before, decodes them once and keeps
// them in registers while all rows pass by, eight at a time, in a ring of its own. What its superblock adds to each output
// goes to shared memory; there the block adds it in the order of the superblocks. Where a column has fewer than eight
// superblocks, groups of warps have tiles of their own.
#pragma once

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
  std::int32_t n = 0;        // columns
  std::uint32_t blocks = 0;  // that they take
  DType type = DType::q4_k;  // of the weights: q4_k or q5_k as stored, q6_k in planes
  DType out_type = DType::f32;
  DType bias_type = DType::f32;
  Activation act = Activation::silu;
};

inline constexpr std::int64_t kDenseRows = 128;
inline constexpr int kDenseMatrices = 3;
inline constexpr int kDenseWarps = 8;
inline constexpr int kDenseThreads = kDenseWarps * kWarp;
inline constexpr int kDenseTiles = 3;   // of a warp, at most
inline constexpr int kDenseStages = 3;  // tiles of rows in a warp's ring

// How a block's warps share the superblocks of a column.
struct DenseCut {
  std::int32_t share = 1;   // warps of a tile, a superblock each
  std::int32_t groups = 1;  // of so many warps
  std::int32_t rounds = 1;
  std::int32_t tiles = 1;  // of a warp
};
constexpr DenseCut dense_cut(std::int64_t chunks, int tiles) {
  const std::int64_t share = chunks < kDenseWarps ? chunks : kDenseWarps;
  return {.share = static_cast<std::int32_t>(share),
          .groups = static_cast<std::int32_t>(kDenseWarps / share),
          .rounds = static_cast<std::int32_t>(ceil_div(chunks, share)),
          .tiles = tiles};
}
static_assert(dense_cut(3, 1).groups == 2 && dense_cut(3, 1).rounds == 1 && dense_cut(11, 1).rounds == 2);

// The same rows with each matrix.
struct DenseArgs {
  DenseMatrix of[kDenseMatrices];
  std::int32_t count = 0;  // matrices
  const std::byte* x = nullptr;
  std::int64_t x_stride = 0;
  const std::int8_t* q = nullptr;  // RowBank's, with room for whole tiles of eight rows
  const float* scale = nullptr;
  const std::uint16_t* sums = nullptr;
  const std::int32_t* live = nullptr;
  std::int32_t rows = 0;
  std::int32_t k = 0;
  std::int32_t chunks = 0;
  DType x_type = DType::f32;
  DenseCut cut;
};

// In shared memory, of a warp: rows with their sums behind them, and their scales; weights of this round and the next; what
// it adds to the outputs, in pairs, for this step and the next. Strides keep accesses in different banks.
inline constexpr int kDenseRowStride = kChunk + 32;
inline constexpr int kDenseStage = kRowTile * kDenseRowStride + kRowTile * 4;
inline constexpr int kDenseTermStride = kTile * 8 + 16;
inline constexpr int kDenseTerms = kRowTile * kDenseTermStride;
static_assert(kDenseRowStride % 128 == 32 && kDenseTermStride * 2 % 128 == 32 && kDenseStage % 16 == 0);

constexpr int dense_slots(int rounds) {
  return rounds == 1 ? 1 : 2;
}
// Of a block: outputs between rounds, too.
constexpr std::int64_t dense_shared_bytes(DType type, const DenseCut& cut, std::int64_t rows) {
  const std::int64_t between = cut.rounds == 1 ? 0 : ceil_div(rows, kRowTile) * kRowTile * kTile * 4 * cut.tiles;
  return kDenseWarps * (kDenseStages * kDenseStage + dense_slots(cut.rounds) * cut.tiles * tile_bytes(type) +
                        2 * cut.tiles * kDenseTerms) +
         between;
}
static_assert(dense_shared_bytes(DType::q6_k, dense_cut(8, 3), kDenseRows) <= 227 * 1024 &&
              dense_shared_bytes(DType::q6_k, dense_cut(16, 2), kDenseRows) <= 227 * 1024);

constexpr std::int64_t dense_blocks(std::int64_t n, bool gate_up, const DenseCut& cut) {
  return ceil_div(n, std::int64_t{few_columns(gate_up)} * cut.groups * cut.tiles);
}
// About how many clocks it takes on a large GPU: its blocks' instructions, or all of them reading the rows.
constexpr std::int64_t dense_clocks(std::int64_t blocks, std::int64_t rows, std::int64_t chunks, const DenseCut& cut) {
  const std::int64_t steps = ceil_div(rows, kRowTile);
  const std::int64_t each = cut.rounds * (steps * (120 + 190 * cut.tiles) + 150 * cut.tiles);
  const std::int64_t working = ceil_div(blocks, 132) * each;
  const std::int64_t reading = blocks * steps * kRowTile * chunks * (kDenseRowStride + 4) / 3000;
  return working > reading ? working : reading;
}

// Whether it is a product for this kernel: columns that few_rows' warps would be too many for, and rows that are not
// many. `shared_bytes`: that a block may have.
constexpr bool takes_dense(DType type, std::int64_t rows, std::int64_t n, std::int64_t k, bool gate_up,
                           std::int64_t shared_bytes) {
  return rows <= kDenseRows && ceil_div(n, few_columns(gate_up)) < kOwnFrom &&
         dense_shared_bytes(type, dense_cut(chunks_of(k), 1), rows) <= shared_bytes;
}
static_assert(takes_dense(DType::q4_k, 64, 4096, 2048, false, 227 * 1024));
static_assert(!takes_dense(DType::q6_k, 8, 151936, 2048, false, 227 * 1024));

// Of matrices that each are such a product: as many tiles a warp as make it fastest.
constexpr void cut_dense(DenseArgs& args, std::int64_t shared_bytes) {
  std::int64_t best = 0;
  for (int tiles = 1; tiles <= kDenseTiles; ++tiles) {
    const DenseCut cut = dense_cut(args.chunks, tiles);
    std::int64_t blocks = 0;
    bool fits = true;
    for (int i = 0; i < args.count; ++i) {
      blocks += dense_blocks(args.of[i].n, args.of[i].up != nullptr, cut);
      fits = fits && dense_shared_bytes(args.of[i].type, cut, args.rows) <= shared_bytes;
    }
    const std::int64_t clocks = dense_clocks(blocks, args.rows, args.chunks, cut);
    if (!fits || (tiles > 1 && clocks >= best)) continue;
    best = clocks;
    args.cut = cut;
  }
  for (int i = 0; i < args.count; ++i) {
    DenseMatrix& of = args.of[i];
    of.blocks = static_cast<std::uint32_t>(dense_blocks(of.n, of.up != nullptr, args.cut));
  }
}
constexpr LaunchPlan dense_rows_plan(const DenseArgs& args) {
  LaunchPlan plan{.threads = kDenseThreads};
  for (int i = 0; i < args.count; ++i) {
    const std::int64_t bytes = dense_shared_bytes(args.of[i].type, args.cut, args.rows);
    plan.blocks += args.of[i].blocks;
    plan.shared_bytes = bytes > plan.shared_bytes ? bytes : plan.shared_bytes;
  }
  return plan;
}

int launch_dense_rows(const DenseArgs& args, const Stream& stream);

}  // namespace conclave::cuda
