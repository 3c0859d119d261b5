// The end of a fused layer inside of its down product. Each threadgroup has some columns of some rows; the one that brings
// the last part of a token combines all of it: weights, the shared expert, the residual, the next norm.
//
// Expert outputs are stored and loaded as atomics, since other threadgroups read them; a count per token and two fences
// order them. Nobody waits for anybody. The sum is over slots in order, whoever computes it: the bits are always the same.
#pragma once

#include "backends/metal/kernels/combine.h"
#include "backends/metal/kernels/product.h"

static inline void device_fence() {
#if __METAL_VERSION__ >= 320  // before, these kernels are not launched
  atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
#endif
}

static inline device atomic_uint* expert_out_at(constant FinishArgs& args, Buffers buffers, long row) {
  return (device atomic_uint*)(buffers.at[FinishArgs::kExpertOut] + args.expert_out) + row * args.residual.dims[1];
}
static inline void store_expert_out(constant FinishArgs& args, Buffers buffers, long row, int column, float y) {
  atomic_store_explicit(expert_out_at(args, buffers, row) + column, as_type<uint>(y), memory_order_relaxed);
}

// All threads: combines token t.
static inline void finish_token(constant FinishArgs& args, Buffers buffers, long t, threadgroup float* shared,
                                Place at) {
  const long d_model = args.residual.dims[1];
  const device float* weights = (const device float*)row_at(args.weights, buffers.at[FinishArgs::kWeights], t);
  const device int* rows = (const device int*)row_at(args.pair_row, buffers.at[FinishArgs::kPairRow], t);
  device uchar* residual = row_at(args.residual, buffers.at[FinishArgs::kResidual], t);
  for (long d = at.index; d < d_model; d += at.count) {
    float sum = 0.0f;
    for (int s = 0; s < args.top_k; ++s) {
      const uint bits = atomic_load_explicit(expert_out_at(args, buffers, rows[s]) + d, memory_order_relaxed);
      sum = fma(weights[s], as_type<float>(bits), sum);
    }
    if (args.shared.rank != 0) {
      sum += load_float(args.shared.type, row_at(args.shared, buffers.at[FinishArgs::kShared], t), d);
    }
    store_float(args.residual.type, residual, d, load_float(args.residual.type, residual, d) + sum);
  }
  if (args.normed.rank == 0) return;
  norm_row(residual, args.residual.type, row_at(args.normed, buffers.at[FinishArgs::kNormed], t), args.normed.type,
           buffers.at[FinishArgs::kNormWeight] + args.norm_weight.offset, args.norm_weight.type, args.eps, d_model,
           shared, at);
}

// All threads, after they have stored their part of the tile's rows. `shared`: 64 words.
static inline void finish_tile(constant FinishArgs& args, Buffers buffers, Tile tile, threadgroup float* shared,
                               Place at) {
  threadgroup int* complete = (threadgroup int*)shared + 32;  // the token of each row, or -1
  device_fence();
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  if (int(at.index) < tile.count) {
    const int t = ints_at(buffers.at[FinishArgs::kFrom], args.row_pair)[tile.first + int(at.index)] / args.top_k;
    device atomic_int* finished = (device atomic_int*)(buffers.at[FinishArgs::kFinished] + args.finished) + t;
    const int before = atomic_fetch_add_explicit(finished, 1, memory_order_relaxed);
    complete[at.index] = before + 1 == args.top_k * int(at.groups.x) ? t : -1;
  }
  device_fence();
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  for (int r = 0; r < tile.count; ++r) {
    const int t = complete[r];
    if (t >= 0) finish_token(args, buffers, t, shared, at);
  }
}
