// What both kernels of attention share: what a token sees, elements of the cache.
#pragma once

#include "backends/metal/kernels/decode.h"
#include "backends/metal/kernels/kv_cache.h"

static inline float cached(int type, const device uchar* row, long i) {
  return type == kQ8_0 ? q8_0_weight(row + i / 32 * 34, int(i % 32)) : load_float(type, row, i);
}

// Token t sees the cached positions before this one. 0 where it has no sequence.
static inline long visible_end(constant AttentionArgs& args, Buffers buffers, long t) {
  const int seq = int_at(args.seqs, buffers.at[AttentionArgs::kSeqs], t);
  if (seq < 0 || seq >= args.lengths.dims[0]) return 0;
  const long own = int_at(args.positions, buffers.at[AttentionArgs::kPositions], t);
  const long length = int_at(args.lengths, buffers.at[AttentionArgs::kLengths], seq);
  return max(0l, min(min(own + 1, length), args.pages.dims[1] * args.k_pool.dims[1]));
}
