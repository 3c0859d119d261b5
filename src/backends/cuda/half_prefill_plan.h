// Products of prefill's rows with weights of f16 or bf16, on Hopper: operands of the weights' type, sums in f32.
//
// Weights are as they are. A row becomes 16 bits wide: of bf16 each number is rounded; of f16 it is first multiplied by
// the power of two that brings the row's largest magnitude to 2^14 up to 2^15, and its outputs are divided by that again.
// So nothing overflows that f32 can hold, and what is rounded below f16's normal numbers is at most 2^-39 of the row's
// largest. wgmma adds 16 products at a time to an f32 sum, k ascending: an output depends on its row and its column
// alone. act(gate) * up is within 2^-16 of itself (activation.cuh).
//
// Tiles, rings and roles are those of prefill_rows_plan.h, with two differences: columns of weights are boxes of the
// copy engine, 64 of k at a time, by one warp; and wgmma reads them from shared memory. The bank is in plain order.
//
// Bound: the weights' bytes up to some 128 rows of a list, which is 2,048 tokens of Qwen3-30B-A3B.
#pragma once

#include "backends/cuda/prefill_rows_plan.h"

namespace conclave::cuda {

// 64 of k: what a box has side by side, and a stage of the ring.
inline constexpr int kHalfBox = 64;
// Columns of a box: those of gate and of up alternate every 8.
constexpr int half_box_columns(bool gate_up) {
  return gate_up ? 8 : 64;
}
static_assert(prefill_columns(kPrefillShortRows) / half_box_columns(true) <= kWarp && "a lane for each box");

// `factors`: what a row's outputs are multiplied by, [rows of x]; null: nothing. Types of all sides are the same.
int launch_half_prefill(const PrefillArgs& args, const float* factors, int multiprocessors, const Stream& stream);

// Whether the copy engine takes them as boxes.
bool half_prefill_fits(const View& w);

// Rows of x (f32, f16 or bf16; rank 2 or 3: all innermost rows, in index order) as rows of 16 bits, with zeros behind
// them up to the stride.
struct HalfBankArgs {
  View x;
  std::uint16_t* bank = nullptr;
  std::int64_t stride = 0;   // elements, a multiple of 4
  float* factors = nullptr;  // of f16
  DType type = DType::f16;   // f16 or bf16
};
int launch_fill_half_bank(const HalfBankArgs& args, const Stream& stream);

}  // namespace conclave::cuda
