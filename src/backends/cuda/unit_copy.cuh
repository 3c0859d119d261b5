// One superblock of 16 columns on its way to shared memory, as held_weights.cuh wants it there.
#pragma once

#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/read_once.cuh"

namespace conclave::cuda {

// By a warp, of which two lanes copy a column, 16 bytes each in turn. `column`: the lane's; `block`: its superblock c,
// where they are stored as they come; `to`: its place in shared memory, column_stride() times its number in the tile,
// and 16 more for the second of its two lanes.
template <DType type>
__device__ __forceinline__ void copy_unit(unsigned to, const std::byte* column, const std::byte* block, int c,
                                          int chunks) {
  const bool second = threadIdx.x % 2 != 0;
  if constexpr (is_affine(type)) {
    // An odd number of words. Pairs that the two lanes copy lie in one piece of 32 bytes of memory each, so the block
    // begins with the second word of the first pair or ends with the first of the last.
    constexpr int kPairs = (block_bytes(type) / 16 + 1) / 2;
    const auto place = reinterpret_cast<std::uintptr_t>(block);
    const unsigned shift = static_cast<unsigned>(place) & 16U;
    const auto* source = reinterpret_cast<const std::byte*>((place & ~std::uintptr_t{16}) | (second ? 16U : 0U));
    to -= shift;
    if (second || shift == 0) copy_16_once(to, source);
#pragma unroll
    for (int j = 1; j < kPairs - 1; ++j) copy_16_once(to + 32 * j, source + 32 * j);
    if (!second || shift != 0) copy_16_once(to + 32 * (kPairs - 1), source + 32 * (kPairs - 1));
  } else {
    const std::byte* mine = column + (second ? 16 : 0);
    const std::byte* ql = mine + 128 * c;
    const std::byte* qh = mine + (128 * chunks + 64 * c);
#pragma unroll
    for (int j = 0; j < 4; ++j) copy_16_once(to + 32 * j, ql + 32 * j);
#pragma unroll
    for (int j = 0; j < 2; ++j) copy_16_once(to + 128 + 32 * j, qh + 32 * j);
    // One lane copies the scales, the other the word with the factor.
    const unsigned of = threadIdx.x % kWarp / 2;
    const unsigned last = second ? kTile * column_stride(type) + 16 * of - (of * column_stride(type) + 16) : 192;
    copy_16_once(to + last, column + (second ? 208 * chunks + c / 8 * 16 : 192 * chunks + 16 * c));
  }
}

}  // namespace conclave::cuda
