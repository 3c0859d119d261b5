// kv_write: one threadgroup to a token, which first looks whether a later token has the same place.
#include "backends/metal/kernels/kv_cache.h"

// One block of q8_0 as ops/kv_block.h encodes it.
static inline void store_block(device uchar* block, int type, const device uchar* row, long first) {
  float largest = 0.0f;
  bool finite = true;
  for (int i = 0; i < 32; ++i) {
    const float x = load_float(type, row, first + i);
    largest = max(largest, fabs(x));
    finite = finite && isfinite(x);
  }
  const float d = largest / 127.0f;
  const float inverse = d > 0.0f && isfinite(1.0f / d) ? 1.0f / d : 0.0f;
  *(device half*)block = finite ? half(d) : half(NAN);
  device ushort* words = (device ushort*)(block + 2);
  for (int i = 0; i < 32; i += 2) {
    uint word = 0;
    for (int j = 0; j < 2; ++j) {
      const float x = load_float(type, row, first + i + j);
      const float level = clamp(rint(x * inverse), -127.0f, 127.0f);
      word |= (uint(finite ? int(level) : 0) & 0xFFu) << (8 * j);
    }
    words[i / 2] = ushort(word);
  }
}

static inline void store_head(constant View& pool, device uchar* to, int type, const device uchar* from, Place at) {
  const long d = pool.dims[3];
  if (pool.type == kQ8_0) {
    for (long b = at.index; b < d / 32; b += at.count) store_block(to + b * 34, type, from, b * 32);
    return;
  }
  for (long i = at.index; i < d; i += at.count) store_float(pool.type, to, i, load_float(type, from, i));
}

static void kv_write(constant KvWriteArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const long t = at.group.x;
  const long n_live = live_rows(args.live, buffers.at[KvWriteArgs::kLive], args.k.dims[0]);
  if (t >= n_live) return;
  const int seq = int_at(args.seqs, buffers.at[KvWriteArgs::kSeqs], t);
  const int position = int_at(args.positions, buffers.at[KvWriteArgs::kPositions], t);
  const KvPlace place = kv_place(args.pages, buffers.at[KvWriteArgs::kPages], args.k_pool, seq, position);
  bool replaced = false;
  for (long later = t + 1 + at.index; later < n_live; later += at.count) {
    const KvPlace other = kv_place(args.pages, buffers.at[KvWriteArgs::kPages], args.k_pool,
                                   int_at(args.seqs, buffers.at[KvWriteArgs::kSeqs], later),
                                   int_at(args.positions, buffers.at[KvWriteArgs::kPositions], later));
    replaced = replaced || (other.page == place.page && other.slot == place.slot);
  }
  replaced = group_max(replaced ? 1.0f : 0.0f, (threadgroup float*)shared, at) != 0.0f;
  if (place.page < 0 || replaced) return;
  for (long h = 0; h < args.k.dims[1]; ++h) {
    store_head(args.k_pool, kv_row(args.k_pool, buffers.at[KvWriteArgs::kKPool], place, h), args.k.type,
               row_at2(args.k, buffers.at[KvWriteArgs::kK], t, h), at);
    store_head(args.v_pool, kv_row(args.v_pool, buffers.at[KvWriteArgs::kVPool], place, h), args.v.type,
               row_at2(args.v, buffers.at[KvWriteArgs::kV], t, h), at);
  }
}

KERNEL(kv_write_tokens, KvWriteArgs, kv_write)
