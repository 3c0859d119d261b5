// dense_rows for 33 to 64 rows on Hopper, where a matrix's columns are shared out once: what decoding that many
// sequences needs. Bits as in product_plan.h.
//
// A block has all rows, 64 of wgmma, with a few columns. Before it waits it decodes its weights, scales multiplied in,
// which makes two digits of int8 of each:
//
//   q4_k   level scale = 8 (level (scale / 8)) + level (scale % 8)
//   q6_k   (level - 32) scale = 64 h + l, l from 0 to 63
//
// Then one thread copies rows, a superblock at a time, and a warpgroup multiplies them with both digits of all columns
// at once, superblock after superblock: outputs stay in its registers, and nothing is exchanged.
#pragma once

#include <cuda.h>

#include "backends/cuda/dense_rows_plan.h"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

inline constexpr int kTallRows = 64;        // at most,
inline constexpr int kTallMoreThan = 32;    // and more than these: up to here dense_once is faster
inline constexpr int kTallWarps = 8;        // all decode; then one copies, one fetches ahead,
inline constexpr int kTallMultiplying = 4;  // and these multiply
inline constexpr int kTallStage = kTallRows * kChunk;
inline constexpr int kTallMostStages = 5;  // superblocks of rows on their way
inline constexpr int kTallWide = 40;       // columns of a block,
inline constexpr int kTallNarrow = 16;     // or these

// Bytes of a column of weights, and from one to the next in shared memory: eight of them in different banks.
constexpr int tall_raw_bytes(DType type, int chunks) {
  return type == DType::q4_k ? chunks * block_bytes(type) : static_cast<int>(PlanesQ6K{chunks}.row_bytes());
}
constexpr int tall_raw_stride(DType type, int chunks) {
  return (tall_raw_bytes(type, chunks) / 16 | 1) * 16;
}
// Columns that a block has of a matrix: of q6_k, which is longer and takes more instructions, not always all.
constexpr int tall_columns(DType type, int columns) {
  return type == DType::q6_k && columns == kTallWide ? 32 : columns;
}
constexpr std::int64_t dense_tall_blocks(const DenseTallCut& cut) {
  std::int64_t blocks = 0;
  for (const std::int32_t of : cut.blocks) blocks += of;
  return blocks;
}

// Shared memory, in this order: digits as wgmma.cuh wants rows, [superblock][half][both digits of columns][128];
// barriers; factors [superblock][column][d, dmin]; minimums [superblock][column][8 groups, twice each] as f16; rows.
// Columns as stored lie where the rows come later; those of q6_k, which have no minimums, where minimums would begin.
inline constexpr int kTallBarriers = 128;
inline constexpr int kTallAlignment = 1024;
static_assert((2 * kTallMostStages + 1) * 8 <= kTallBarriers);
struct TallLayout {
  int columns;
  int chunks;

  constexpr int barriers() const { return chunks * 2 * columns * kChunk; }
  constexpr int factors() const { return barriers() + kTallBarriers; }
  constexpr int mins() const { return factors() + chunks * columns * 8; }
  constexpr int rows() const {
    return static_cast<int>(ceil_div(mins() + chunks * columns * 32, kTallAlignment)) * kTallAlignment;
  }
  constexpr int raw(DType type) const { return type == DType::q6_k ? mins() : rows(); }
  constexpr int end(DType type) const {
    return raw(type) + tall_columns(type, columns) * tall_raw_stride(type, chunks);
  }
};
constexpr std::int64_t dense_tall_shared(const DenseTallCut& cut, int chunks) {
  const int ring = TallLayout{cut.columns, chunks}.rows() + cut.stages * kTallStage;
  return kTallAlignment + std::max(ring, cut.raw_end);
}
// A block leaves so much for blocks of the next kernel, which find out what they can before they wait.
inline constexpr std::int64_t kTallLeaves = 5 * 1024;

constexpr DenseTallCut dense_tall_cut(const DenseArgs& args, const DenseRoom& room) {
  if (!room.hopper || args.rows <= kTallMoreThan || args.rows > kTallRows) return {};
  for (const int columns : {kTallNarrow, kTallWide}) {
    DenseTallCut cut{.columns = columns};
    bool fits = true;
    for (int i = 0; i < args.count; ++i) {
      const DenseMatrix& of = args.of[i];
      fits = fits && of.type != DType::q5_k && of.up == nullptr && of.residual == nullptr;
      cut.blocks[i] = static_cast<std::int32_t>(ceil_div(of.n, tall_columns(of.type, columns)));
      cut.raw_end = std::max(cut.raw_end, TallLayout{columns, args.chunks}.end(of.type));
    }
    if (!fits) return {};
    if (dense_tall_blocks(cut) > room.multiprocessors) continue;
    cut.stages = std::min(kTallMostStages, args.chunks);
    const std::int64_t most = room.shared_bytes - kTallLeaves;
    while (cut.stages > 1 && dense_tall_shared(cut, args.chunks) > most) --cut.stages;
    if (dense_tall_shared(cut, args.chunks) <= most) return cut;
  }
  return {};
}

// Rows as the copy engine takes them. False where the driver has no such thing.
bool map_tall_rows(CUtensorMap& map, const DenseArgs& args);
int launch_dense_tall(const DenseArgs& args, const CUtensorMap& rows, const Stream& stream);

}  // namespace conclave::cuda
