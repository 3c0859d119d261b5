// The one matrix product as this backend computes it, with the bits of the CPU backend.
//
// Weights of a block format are multiplied in integers. A row of activations is int8 with one f32 scale per chunk of
// 256 values, and one output is, chunk by chunk in ascending order, every operation rounded once in f32, sums in exact
// integers:
//
//   scale[c] = max |x| / 127,  q = x * (1 / scale[c]) rounded to nearest even                     over chunk c
//   q4_k q5_k q2_k          y = y + (scale d) * float(sum_g s_g sum_i level_i q_i);  y = y - (scale dmin) * float(sum_g m_g sum_i q_i)
//   q3_k q6_k iq4_xs        y = y + (scale d) * float(sum_g s_g sum_i (level_i - offset) q_i)
//   blocks of 32, each b    y = y + (scale d_b) * float(sum_i (level_i - offset) q_i)
//   q4_1 q5_1, then         y = y + (scale m_b) * float(sum_i q_i)
//
// Integers do not care for order, so a kernel may cut a chunk as it likes: one row or thousands, dp4a or tensor cores,
// the bits are the same. Plain weights (f32, f16, bf16) are 32 chains of fused multiply-adds over k mod 32, folded in
// halves. Rows that have no int8 form (a NaN, an infinity, a chunk below 2^-100) are multiplied in f64 with decoded
// weights.
#pragma once

#include "backends/cuda/row_table.h"

namespace conclave::cuda {

inline constexpr int kChunk = 256;
inline constexpr int kBankRows = 8;

// Rows of activations as int8, or, for prompts, as bf16 or f16. There is room for whole multiples of kBankRows rows,
// whatever lies past the last.
struct RowBank {
  View x;  // rank 2 or 3: all innermost rows, in index order
  std::int64_t n_rows = 0;
  std::int64_t k = 0;
  std::int64_t chunks = 0;
  std::int8_t* q = nullptr;       // [n_rows][chunks * 256], padded with zeros
  float* scale = nullptr;         // [n_rows][chunks]; NaN where the chunk has no int8 form. Of f16 [n_rows]
  std::uint16_t* sums = nullptr;  // [n_rows][chunks * 16]: sums of 16 values of q, as f16 (they are exact)
  std::uint16_t* bf16 = nullptr;  // [n_rows][bf16_stride], as prefill_rows_plan.h or half_prefill_plan.h says
  std::int64_t bf16_stride = 0;
};

constexpr std::int64_t chunks_of(std::int64_t k) {
  return ceil_div(k, kChunk);
}
struct ProductArgs {
  RowBank rows;
  RowTable table;
  std::int64_t max_slots = 0;  // of one list
  View w;                      // [n, k] or [n_experts, n, k]
  View bias;
  View out;  // [m, n] or [n_tokens, top_k, n]
};

int launch_fill_bank(const RowBank& bank, const Stream& stream);
// Any format, any alignment.
int launch_product(const ProductArgs& args, const Stream& stream);

struct GateArgs {
  RowTable table;
  View gate;  // f32 [n_pairs, d_ff]
  View up;
  View out;  // [n_pairs, d_ff]
  std::int32_t act = 0;
};
// out = act(gate) * up, over the rows that the lists name.
int launch_gate(const GateArgs& args, const Stream& stream);

// moe_shared_expert's last step: out[t] *= sigmoid(x[t] . gate_inp).
struct ShareArgs {
  View x;
  View gate_inp;
  View y;    // f32 [n_tokens, d_model]
  View out;  // [n_tokens, d_model]
  const std::int32_t* live = nullptr;
};
int launch_share(const ShareArgs& args, const Stream& stream);

}  // namespace conclave::cuda
