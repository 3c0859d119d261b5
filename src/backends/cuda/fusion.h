// Neighbouring ops of a program that go in one launch, with the bits they have one by one:
//
//   matmul, matmul, matmul                              of the same few rows: queries, keys and values
//   [rms_norm, rms_norm,] rope, rope, kv_write          of the heads of few tokens
//   add, rms_norm                                       of the sum
//
// Every op still writes what it says it writes. Host code alone.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/cuda/cuda_op.h"

namespace conclave::cuda {

struct FusedOps {
  std::size_t first = 0;
  std::size_t count = 0;
  std::unique_ptr<CudaOp> op;
};

// In ascending order; ops that are in none go by themselves.
std::vector<FusedOps> fuse(std::span<const Op> ops);

}  // namespace conclave::cuda
