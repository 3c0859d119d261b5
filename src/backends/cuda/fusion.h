// Neighbouring ops of a program that go in one launch, with the bits they have one by one:
//
//   matmul, matmul[, matmul]                            of the same rows, up to 128: queries, keys and values (with
//                                                       weights of 16 bits up to 16); of prefill rows any number,
//                                                       which become bf16 once, where it is faster so
//   [rms_norm, rms_norm,] rope, rope, kv_write          of heads; and attention, of one token
//   add, rms_norm                                       of the sum
//   matmul, add                                         of 2 to 16 rows that attention leaves, and after them
//   rms_norm, matmul                                    of plain weights: a router
//   moe_route, moe_group                                of up to 128 tokens; of more in two
//
// those of one token (lone_row.h), and ops that take over work of the next one: a norm whose rows products or experts
// want leaves them in their form, too, and so does attention.
// Every op still writes what it says it writes. Host code alone.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/dense_rows_plan.h"
#include "backends/cuda/one_row_plan.h"

namespace conclave::cuda {

struct FusedOps {
  std::size_t first = 0;
  std::size_t count = 0;
  std::unique_ptr<CudaOp> op;
};

// The op at `i` where it is such a one.
template <class T>
const T* op_at(std::span<const Op> ops, std::size_t i) {
  return i < ops.size() ? std::get_if<T>(&ops[i]) : nullptr;
}
// What an op norms, and how many rows of it are alive.
struct Normed {
  const Tensor* out = nullptr;  // null: nothing
  const Tensor* live = nullptr;
};
Normed normed(const Op& op);

// Device memory that fused ops hand rows over in: as int8, with scales and sums, or as bf16.
inline constexpr std::int64_t kBankedRows = kDenseRows;
inline constexpr std::int64_t kBankedChunks = kOneChunks;
inline constexpr std::int64_t kBankBytes = kBankedRows * kBankedChunks * (kChunk + 4 + 32);
static_assert(kBankedRows >= kOneRows && kBankedRows % kBankRows == 0 && kDenseMatrices == kSideBySide);

// How much of it a program wants.
std::int64_t hand_over_bytes(std::span<const Op> ops, const Target& target);

// In ascending order; ops that are in none go by themselves. `bank`: so many bytes, aligned to 16.
std::vector<FusedOps> fuse(std::span<const Op> ops, const Target& target, std::byte* bank);

}  // namespace conclave::cuda
