// Products of few pairs of token and expert with superblock weights on Hopper: what decoding some sequences needs.
// Bound by the bytes of the weights. Bits as in product_plan.h.
//
// Pairs of the same expert are a list, up to kListRows of them, so that weights are read once for all. Every block
// finds the lists itself: pairs are few. The columns of all lists, in strips of up to 32 superblocks, are dealt out to
// the blocks, one after another and as much work to each. A block's strips come by bulk copies to its warps' rings;
// those of `down` are asked for while gate and up are still multiplied. Warps take strips as they get room, those of
// the list with more rows first. A lane has one superblock of a strip, and the row's part that meets it, int8, in
// registers: nothing is added across lanes but what superblocks add to an output, through shared memory and in their
// order.
#pragma once

#include "backends/cuda/one_row_plan.h"

namespace conclave::cuda {

inline constexpr int kPairThreads = 256;
inline constexpr int kPairWarps = kPairThreads / kWarp;
inline constexpr int kPairBlocks = 132 * 2;            // as many as a large GPU holds at once
inline constexpr int kListRows = 4;                    // more pairs of an expert are another list
inline constexpr int kBlockLists = 2;                  // of a block, at most: no list is less than a block's work
inline constexpr int kPairSlots = 2;                   // strips of a warp's ring, at most
inline constexpr std::int64_t kPairRoom = 112 * 1024;  // bytes that leave room for two blocks a multiprocessor
static_assert(kOnePairs <= kPairBlocks && kOnePairs <= kPairThreads);

// Values whose sum is wanted: of q6_k those of a scale.
constexpr int group_length(DType type) {
  return type == DType::q6_k ? 16 : 32;
}
// Of a row in shared memory: values, and sums of two bytes. An odd number of words of 16 bytes, so that eight of them
// lie in different banks.
constexpr int row_chunk_bytes(DType type) {
  return type == DType::q6_k ? kChunk + 48 : kChunk + 16;
}

// What a strip costs without its rows, and each of them. Of q6_k it is the rows: H200, 2026-11-17, 8 tokens 52.2 us
// with the others' cost and 51.5 with its own.
struct PairCost {
  std::int32_t strip = 1;
  std::int32_t row = 3;
};
constexpr PairCost pair_cost(DType type) {
  return type == DType::q6_k ? PairCost{1, 10} : PairCost{};
}

struct PairCut {
  std::int32_t columns = 1;         // of a strip
  std::int32_t strips = 1;          // of a list
  std::int32_t tile_bytes = 0;      // of a strip's columns; of gate and up, of each
  std::int32_t slots = kPairSlots;  // strips of a warp's ring
  std::int32_t ring_bytes = 0;
  std::int32_t rows_bytes = 0;   // of the rows in shared memory
  std::int32_t together = 1;     // strips whose outputs a warp adds up at a time
  std::int32_t terms_bytes = 0;  // of a warp
  PairCost cost;
  std::int32_t by_chunks = 0;  // i / chunks is i * by_chunks / 2^16
  std::int32_t by_step = 0;    // and i / x_step
};
constexpr std::int64_t pair_shared_bytes(const PairCut& cut) {
  return kPairWarps * (cut.ring_bytes + cut.terms_bytes) + cut.rows_bytes;
}
constexpr PairCut pair_cut(const OneRowArgs& args) {
  const std::int64_t chunks = args.chunks;
  const int tiles = args.up != nullptr ? 2 : 1;
  const std::int64_t columns = std::min<std::int64_t>(kWarp / chunks, kWarp / tiles);
  const auto narrow = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  PairCut cut;
  cut.columns = narrow(columns);
  cut.strips = narrow(ceil_div(args.n, columns));
  cut.tile_bytes = narrow(columns * args.w_column);
  // Before there are rows, a mask of pairs for each expert lies there.
  cut.rows_bytes =
      narrow(ceil_div(std::max<std::int64_t>(kBlockLists * kListRows * chunks * (row_chunk_bytes(args.type) + 4),
                                             std::int64_t{args.n_experts} * 16),
                      16) *
             16);
  cut.together = narrow(std::min<std::int64_t>(kWarp / tiles / columns, 4));
  cut.terms_bytes = (cut.together * tiles * kWarp + kOneChunks) * (is_affine(args.type) ? 8 : 4);
  cut.cost = pair_cost(args.type);
  cut.by_chunks = narrow(65536 / chunks + 1);
  cut.by_step = narrow(65536 / args.x_step + 1);
  cut.ring_bytes = cut.slots * tiles * cut.tile_bytes;
  if (pair_shared_bytes(cut) > kPairRoom) {
    cut.slots /= 2;
    cut.ring_bytes /= 2;
  }
  return cut;
}

// Whether it takes such a product, and is faster at it than one_row and few_boxes. Columns lie one after another. H200,
// 2026-11-16, us of a layer of 2048 x 768, 8 and 16 tokens of 8 experts: q4_k 49.1 to 43.2 and 72.9 to 64.8; `down` of
// q6_k, with gate and up by lists either way, 51.9 to 51.5 (one_row's) and 83.9 to 79.9 (all by few_boxes).
constexpr bool takes_pair_lists(const OneRowArgs& args) {
  const bool superblocks = is_affine(args.type) || args.type == DType::q6_k;
  return args.hopper && args.experts != nullptr && superblocks && args.rows <= kOnePairs && args.chunks > 0 &&
         args.chunks <= kOneChunks &&
         (args.up == nullptr || (args.type == DType::q4_k && args.up_column == args.w_column)) &&
         pair_shared_bytes(pair_cut(args)) <= kPairRoom;
}

int launch_pair_lists(const OneRowArgs& args, const Stream& stream);

}  // namespace conclave::cuda
