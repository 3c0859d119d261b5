// dense_rows for up to 32 rows where a matrix's columns are shared out once: what decoding a few sequences needs. Then
// it is over before a warp is through with its own instructions, so a warp has one superblock of one tile of 16 columns
// and nothing else; it decodes its weights while rows come, all at once.
#pragma once

#include "backends/cuda/dense_rows_plan.h"

namespace conclave::cuda {

inline constexpr int kOnceRowTiles = 4;
inline constexpr int kOnceWarps = 24;     // of a block,
inline constexpr int kOnceFewWarps = 16;  // or these

constexpr std::int64_t dense_once_shared(const DenseOnceCut& cut, std::int64_t chunks) {
  return std::int64_t{cut.warps} * cut.own_bytes + cut.row_tiles * chunks * kDenseStage;
}
constexpr std::int64_t dense_once_blocks(const DenseArgs& args, const DenseOnceCut& cut) {
  std::int64_t blocks = 0;
  for (int i = 0; i < args.count; ++i) blocks += ceil_div(args.of[i].n, kTile * cut.groups);
  return blocks;
}
// As few warps a block as leave each multiprocessor one of them.
constexpr DenseOnceCut dense_once_cut(const DenseArgs& args, const DenseRoom& room) {
  DenseOnceCut cut{.row_tiles = static_cast<std::int32_t>(ceil_div(args.rows, kRowTile))};
  if (cut.row_tiles > kOnceRowTiles) return {};
  cut.own_bytes = cut.row_tiles * kDenseTerms;
  for (int i = 0; i < args.count; ++i) {
    if (args.of[i].up != nullptr) return {};
    cut.own_bytes = std::max(cut.own_bytes, tile_bytes(args.of[i].type));
  }
  for (const int warps : {kOnceFewWarps, kOnceWarps}) {
    cut.warps = warps;
    cut.groups = cut.warps / args.chunks;
    if (cut.groups > 0 && dense_once_blocks(args, cut) <= room.multiprocessors &&
        dense_once_shared(cut, args.chunks) <= room.shared_bytes) {
      cut.by_groups = 65536 / cut.groups + 1;
      return cut;
    }
  }
  return {};
}

int launch_dense_once(const DenseArgs& args, const Stream& stream);

}  // namespace conclave::cuda
