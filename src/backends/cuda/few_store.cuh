// What warps of few_rows and few_boxes do with the outputs of a tile: a lane has two columns, eight apart, and two rows of
// each tile of rows.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/few_copies.cuh"
#include "backends/cuda/unit_output.cuh"

namespace conclave::cuda {

// Whether a row is int8 at all; by one thread, where an output came out as NaN.
static __device__ __noinline__ bool has_int8_form(const UnitArgs& args, std::int64_t row) {
#pragma unroll 1
  for (int c = 0; c < args.chunks; ++c) {
    if (args.q != nullptr) {
      if (isnan(args.scale[row * args.chunks + c])) return false;
      continue;
    }
    float largest = 0.0F;
#pragma unroll 1
    for (int i = 0; i < kChunk; ++i) {
      const float v = load_float(args.x_type, args.x + row * args.x_stride, std::int64_t{c} * kChunk + i);
      if (!isfinite(v)) return false;
      largest = fmaxf(largest, fabsf(v));
    }
    if (largest != 0.0F && largest < 0x1p-100F) return false;
  }
  return true;
}
// What a lane's two columns give for such a row.
static __device__ __noinline__ float2 checked(const FewColumns& at, int column, int from, float2 y) {
  if (has_int8_form(at.args, from)) return y;
  return {at.plain(column, from), at.plain(column + 8, from)};
}
static __device__ __noinline__ void store_other(const UnitArgs& args, int first, int column, int row, float y) {
  FewColumns{args, 0, first}.store(column, row, y);
}

// A lane's outputs of a tile; `mine`: the first of its columns.
template <int kTiles>
__device__ __forceinline__ void store_tile(const FewColumns& at, int mine, const TableSlot* slots,
                                           float (&y)[kTiles][4]) {
  const UnitArgs& args = at.args;
  const int first = at.first;
  const int n = columns_of(args.table, args.n);
  const bool simple = args.out_type == DType::f32 && args.bias == nullptr;
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    const TableSlot slot = slots[i / 2 * kRowTile + 2 * (threadIdx.x % 4) + i % 2];
    float2 both{y[i / 2][i % 2], y[i / 2][i % 2 + 2]};
    if (slot.from < 0) continue;
    if (isnan(both.x) || isnan(both.y)) both = checked(at, mine, slot.from, both);
    const float a = args.up != nullptr ? gated(args.act, both.x, both.y) : both.x;
    if (simple) {
      float* out = reinterpret_cast<float*>(args.out + slot.to * args.out_stride) + (first + mine);
      if (first + mine < n) out[0] = a;
      if (args.up == nullptr && first + mine + 8 < n) out[8] = both.y;
    } else {
      store_other(args, first, mine, slot.to, a);
      if (args.up == nullptr) store_other(args, first, mine + 8, slot.to, both.y);
    }
  }
}

}  // namespace conclave::cuda
