// attention: one threadgroup to a token and a head. Its simdgroups share out the cached positions in runs of 32; each has a
// running maximum, sum and output of its own, and the first one merges them in order.
//
// Threadgroup memory, f32: q [d_k], then for each simdgroup its output [d_v], its maximum and its sum.
#include "backends/metal/kernels/attention.h"

// scale * (q . k), with q in threadgroup memory.
static inline float score_of(constant AttentionArgs& args, threadgroup const float* q, const device uchar* k) {
  const long d_k = args.q.dims[2];
  float sum = 0.0f;
  for (long i = 0; i < d_k; ++i) sum = fma(q[i], cached(args.k_pool.type, k, i), sum);
  return args.scale * sum;
}

static void attention(constant AttentionArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const long heads = args.q.dims[1];
  const long t = at.group.x / heads;
  const long h = at.group.x % heads;
  if (t >= live_rows(args.live, buffers.at[AttentionArgs::kLive], args.q.dims[0])) return;
  const long d_k = args.q.dims[2];
  const long d_v = args.out.dims[2];
  const long kv_head = h / (heads / args.k_pool.dims[2]);
  threadgroup float* q = (threadgroup float*)shared;
  threadgroup float* parts = q + d_k;
  threadgroup float* mine = parts + long(at.simd) * (d_v + 2);
  const device uchar* q_row = row_at2(args.q, buffers.at[AttentionArgs::kQ], t, h);
  for (long i = at.index; i < d_k; i += at.count) q[i] = load_float(args.q.type, q_row, i);
  for (long d = at.lane; d < d_v; d += kSimdWidth) mine[d] = 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);

  const int seq = int_at(args.seqs, buffers.at[AttentionArgs::kSeqs], t);
  const long end = visible_end(args, buffers, t);
  float largest = -INFINITY;
  float sum = 0.0f;
  for (long base = long(at.simd) * kSimdWidth; base < end; base += long(at.simds) * kSimdWidth) {
    const long position = base + at.lane;
    KvPlace place = {-1, 0};
    if (position < end) place = kv_place(args.pages, buffers.at[AttentionArgs::kPages], args.k_pool, seq, position);
    float score = -INFINITY;
    if (place.page >= 0) {
      score = score_of(args, q, kv_row(args.k_pool, buffers.at[AttentionArgs::kKPool], place, kv_head));
    }
    // A NaN among the scores makes the row NaN, as IEEE has it; minus infinity alone makes it so, too.
    const bool is_nan = simd_any(isnan(score));
    const float larger = is_nan ? NAN : max(largest, simd_max(score));
    if (!simd_any(place.page >= 0)) continue;
    const float rescale = largest == larger ? 1.0f : row_exp(largest - larger);
    const float weight = place.page >= 0 ? row_exp(score - larger) : 0.0f;
    sum = sum * rescale + simd_sum(weight);
    largest = larger;
    for (long d = at.lane; d < d_v; d += kSimdWidth) mine[d] *= rescale;
    for (ushort j = 0; j < kSimdWidth; ++j) {
      const int page = simd_shuffle(place.page, j);
      const int slot = simd_shuffle(place.slot, j);
      const float w = simd_shuffle(weight, j);
      if (page < 0) continue;
      const device uchar* v = kv_row(args.v_pool, buffers.at[AttentionArgs::kVPool], {page, slot}, kv_head);
      for (long d = at.lane; d < d_v; d += kSimdWidth) mine[d] = fma(w, cached(args.v_pool.type, v, d), mine[d]);
    }
  }
  if (at.lane == 0) {
    mine[d_v] = largest;
    mine[d_v + 1] = sum;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device uchar* out = row_at2(args.out, buffers.at[AttentionArgs::kOut], t, h);
  float overall = -INFINITY;
  bool is_nan = false;
  for (uint s = 0; s < at.simds; ++s) {
    const float part = parts[s * (d_v + 2) + d_v];
    is_nan = is_nan || isnan(part);
    overall = max(overall, part);
  }
  if (is_nan) overall = NAN;
  for (long d = at.index; d < d_v; d += at.count) {
    float total = 0.0f;
    float y = 0.0f;
    for (uint s = 0; s < at.simds; ++s) {
      threadgroup const float* part = parts + s * (d_v + 2);
      if (part[d_v + 1] == 0.0f && part[d_v] == -INFINITY) continue;  // it saw nothing
      const float scale = row_exp(part[d_v] - overall);
      total = fma(part[d_v + 1], scale, total);
      y = fma(part[d], scale, y);
    }
    store_float(args.out.type, out, d, total == 0.0f && !is_nan ? 0.0f : y / total);
  }
}

KERNEL(attention_heads, AttentionArgs, attention)
