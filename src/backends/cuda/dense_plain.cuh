// Outputs of rows that have no int8 form.
#pragma once

#include "backends/cuda/dense_rows_plan.h"
#include "backends/cuda/plain_dot.cuh"

namespace conclave::cuda {

// The product in floating point where a row has no int8 form; y where it has one.
static __device__ __noinline__ float checked(const DenseArgs& args, const DenseMatrix& of, const std::byte* column,
                                             int row, float y) {
  bool int8 = true;
#pragma unroll 1
  for (int c = 0; c < args.chunks; ++c) int8 = int8 && !isnan(args.scale[std::int64_t{row} * args.chunks + c]);
  if (int8) return y;
  return plain_dot({args.x + row * args.x_stride, args.x_type, column, of.type, !is_affine(of.type), args.k});
}

}  // namespace conclave::cuda
