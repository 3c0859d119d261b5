// moe_combine, moe_combine_residual, moe_combine_residual_norm: one threadgroup to a token.
#include "backends/metal/kernels/combine.h"

// The row that (token, slot) adds; found is false where it adds nothing.
static inline const device uchar* combined_row(constant CombineArgs& args, Buffers buffers, long t, long s,
                                               thread bool& found) {
  device uchar* rows = buffers.at[CombineArgs::kRows];
  if (args.pair_row.rank != 0) {
    const long row = ((const device int*)row_at(args.pair_row, buffers.at[CombineArgs::kPairRow], t))[s];
    found = row >= 0 && row < args.rows.dims[0];
    return row_at(args.rows, rows, found ? row : 0);
  }
  const int expert = ((const device int*)row_at(args.experts, buffers.at[CombineArgs::kExperts], t))[s];
  found = expert >= 0 && expert < args.n_experts;
  return row_at2(args.rows, rows, t, s);
}

static void combine(constant CombineArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const long t = at.group.x;
  const bool into_residual = args.residual.rank != 0;
  const long n_tokens = args.weights.dims[0];
  if (t >= live_rows(args.live, buffers.at[CombineArgs::kLive], n_tokens)) return;
  const long top_k = args.weights.dims[1];
  const long d_model = into_residual ? args.residual.dims[1] : args.out.dims[1];
  const device float* weights = (const device float*)row_at(args.weights, buffers.at[CombineArgs::kWeights], t);
  device uchar* out = into_residual ? row_at(args.residual, buffers.at[CombineArgs::kResidual], t)
                                    : row_at(args.out, buffers.at[CombineArgs::kOut], t);
  for (long d = at.index; d < d_model; d += at.count) {
    float sum = 0.0f;
    for (long s = 0; s < top_k; ++s) {
      bool found = false;
      const device uchar* row = combined_row(args, buffers, t, s, found);
      if (found) sum = fma(weights[s], load_float(args.rows.type, row, d), sum);
    }
    if (args.shared.rank != 0) {
      sum += load_float(args.shared.type, row_at(args.shared, buffers.at[CombineArgs::kShared], t), d);
    }
    if (into_residual) {
      store_float(args.residual.type, out, d, load_float(args.residual.type, out, d) + sum);
    } else {
      store_float(args.out.type, out, d, sum);
    }
  }
  if (args.normed.rank == 0) return;
  norm_row(out, args.residual.type, row_at(args.normed, buffers.at[CombineArgs::kNormed], t), args.normed.type,
           buffers.at[CombineArgs::kNormWeight] + args.norm_weight.offset, args.norm_weight.type, args.eps, d_model,
           (threadgroup float*)shared, at);
}

// moe_shared_expert's last step: out[t] = y[t] * sigmoid(x[t] . gate_inp).
static void share(constant ShareArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const long t = at.group.x;
  if (t >= live_rows(args.live, buffers.at[ShareArgs::kLive], args.out.dims[0])) return;
  const long d_model = args.out.dims[1];
  float part = 1.0f;
  if (args.gate_inp.rank != 0) {
    const device uchar* x = row_at(args.x, buffers.at[ShareArgs::kX], t);
    const device uchar* gate_inp = buffers.at[ShareArgs::kGateInp] + args.gate_inp.offset;
    float sum = 0.0f;
    for (long d = at.index; d < d_model; d += at.count) {
      sum = fma(load_float(args.x.type, x, d), load_float(args.gate_inp.type, gate_inp, d), sum);
    }
    part = sigmoid(group_sum(sum, (threadgroup float*)shared, at));
  }
  const device uchar* y = row_at(args.y, buffers.at[ShareArgs::kY], t);
  device uchar* out = row_at(args.out, buffers.at[ShareArgs::kOut], t);
  for (long d = at.index; d < d_model; d += at.count) {
    store_float(args.out.type, out, d, load_float(args.y.type, y, d) * part);
  }
}

KERNEL(moe_combine, CombineArgs, combine)
KERNEL(moe_share, ShareArgs, share)
