// Router products: 32 chains of fused multiply-adds over k mod 32, folded in halves, so that equal inputs give equal logits
// on every backend. A simdgroup computes one column of up to kFewRows rows: lane l is chain l.
#include "backends/metal/kernels/decode.h"
#include "backends/metal/kernels/scoring.h"

static void canonical(constant CanonicalArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  const long n = args.w.dims[0];
  const long k = args.w.dims[1];
  const long rows = live_rows(args.live, buffers.at[CanonicalArgs::kLive], args.x.dims[0]);
  const long column = long(at.group.x) * at.simds + at.simd;
  const long first = long(at.group.y) * kFewRows;
  if (column >= n || first >= rows) return;
  const int count = int(min(rows - first, long(kFewRows)));
  const device uchar* w = row_at(args.w, buffers.at[CanonicalArgs::kW], column);
  float chains[kFewRows];
  for (int r = 0; r < kFewRows; ++r) chains[r] = 0.0f;
  for (long i = at.lane; i < k; i += kSimdWidth) {
    const float weight = load_float(args.w.type, w, i);
    for (int r = 0; r < kFewRows; ++r) {
      if (r >= count) continue;
      const device float* x = (const device float*)row_at(args.x, buffers.at[CanonicalArgs::kX], first + r);
      chains[r] = fma(x[i], weight, chains[r]);
    }
  }
  for (int r = 0; r < kFewRows; ++r) {
    if (r >= count) continue;
    float y = fold_chains(chains[r]);
    if (args.bias.rank != 0) {
      y += load_float(args.bias.type, buffers.at[CanonicalArgs::kBias] + args.bias.offset, column);
    }
    if (at.lane == 0) ((device float*)row_at(args.out, buffers.at[CanonicalArgs::kOut], first + r))[column] = y;
  }
}

KERNEL(matmul_canonical, CanonicalArgs, canonical)
