// attention for many tokens: one threadgroup to a few tokens and a KV head. Rows are the heads of these tokens that share
// the KV head, up to 32; positions go by in runs of 32, whose keys and values are read once for all rows and multiplied as
// matrices of 8 by 8. Each row has a running maximum, sum and output, in threadgroup memory.
//
// Tokens of a threadgroup that follow one another in one sequence are done together; others one after another. What a row
// does not see adds nothing to it, not even a NaN: values that are not finite are added up row by row.
#include "backends/metal/kernels/attention.h"

enum { kSlice = 32 };

// Threadgroup memory.
struct AttentionTile {
  threadgroup float* scores;   // [32 rows][32 positions]: then softmax weights
  threadgroup float* left;     // [32][32]: a slice of the queries, or of the products with values
  threadgroup float* right;    // [32][32]: a slice of keys or values
  threadgroup float* out;      // [32 rows][128]
  threadgroup float* largest;  // [32 rows]
  threadgroup float* sum;
  threadgroup float* rescale;
  threadgroup int* end;   // [32 rows]: what the row sees ends here
  threadgroup int* page;  // [32 positions]
  threadgroup int* slot;
  threadgroup float* reduce;  // [32]
};

static inline AttentionTile attention_tile(threadgroup uchar* shared) {
  AttentionTile tile;
  tile.scores = (threadgroup float*)shared;
  tile.left = tile.scores + 1024;
  tile.right = tile.left + 1024;
  tile.out = tile.right + 1024;
  tile.largest = tile.out + kAttentionRows * kAttentionValues;
  tile.sum = tile.largest + 32;
  tile.rescale = tile.sum + 32;
  tile.end = (threadgroup int*)(tile.rescale + 32);
  tile.page = tile.end + 32;
  tile.slot = tile.page + 32;
  tile.reduce = (threadgroup float*)(tile.slot + 32);
  return tile;
}

// Some tokens of one sequence, with the heads that share a KV head.
struct AttentionRun {
  long token;  // the first
  int rows;
  int heads;  // of a token
  long kv_head;
  int seq;
};

// A slice of the keys or values of the 32 positions; zeros where there is none. Whether all of it is finite.
static inline bool stage_cached(constant View& pool, device uchar* base, thread const AttentionTile& tile, long kv_head,
                                long from, Place at) {
  const long d = pool.dims[3];
  bool finite = true;
  for (int i = int(at.index); i < 32 * kSlice; i += kAttentionThreads) {
    const int j = i / kSlice;
    const long c = from + i % kSlice;
    float value = 0.0f;
    if (tile.page[j] >= 0 && c < d) {
      const KvPlace place = {tile.page[j], tile.slot[j]};
      value = cached(pool.type, kv_row(pool, base, place, kv_head), c);
    }
    finite = finite && isfinite(value);
    tile.right[i] = value;
  }
  return finite;
}

// product[32][32] = left[32][32] * right, or right transposed. A simdgroup has eight columns of it.
static inline void multiply(threadgroup const float* left, threadgroup const float* right, bool transposed,
                            thread simdgroup_float8x8* sums, uint simd) {
  for (int k = 0; k < 32; k += 8) {
    simdgroup_float8x8 b;
    if (transposed) {
      simdgroup_load(b, right + int(simd) * 8 * 32 + k, 32, ulong2{0, 0}, true);
    } else {
      simdgroup_load(b, right + k * 32 + int(simd) * 8, 32);
    }
    for (int i = 0; i < 4; ++i) {
      simdgroup_float8x8 a;
      simdgroup_load(a, left + i * 8 * 32 + k, 32);
      simdgroup_multiply_accumulate(sums[i], a, b, sums[i]);
    }
  }
}
static inline void clear(thread simdgroup_float8x8* sums) {
  for (int i = 0; i < 4; ++i) sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
static inline void store_product(thread simdgroup_float8x8* sums, threadgroup float* to, uint simd) {
  for (int i = 0; i < 4; ++i) simdgroup_store(sums[i], to + i * 8 * 32 + int(simd) * 8, 32);
}

static inline void score_tile(constant AttentionArgs& args, Buffers buffers, thread const AttentionTile& tile,
                              thread const AttentionRun& run, Place at) {
  const long d_k = args.q.dims[2];
  simdgroup_float8x8 sums[4];
  clear(sums);
  for (long from = 0; from < d_k; from += kSlice) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = int(at.index); i < 32 * kSlice; i += kAttentionThreads) {
      const int r = i / kSlice;
      const long c = from + i % kSlice;
      float value = 0.0f;
      if (r < run.rows && c < d_k) {
        const device uchar* q = row_at2(args.q, buffers.at[AttentionArgs::kQ], run.token + r / run.heads,
                                        run.kv_head * run.heads + r % run.heads);
        value = load_float(args.q.type, q, c);
      }
      tile.left[i] = value;
    }
    stage_cached(args.k_pool, buffers.at[AttentionArgs::kKPool], tile, run.kv_head, from, at);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply(tile.left, tile.right, true, sums, at.simd);
  }
  store_product(sums, tile.scores, at.simd);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Scores become weights; the row's maximum and sum move on. Four lanes to a row, eight positions each.
static inline void weigh_tile(constant AttentionArgs& args, thread const AttentionTile& tile, long base, Place at) {
  const int r = int(at.index) / 4;
  const int first = int(at.index) % 4 * 8;
  const float before = tile.largest[r];
  float largest = -INFINITY;
  int is_nan = 0;
  int seen = 0;
  for (int i = first; i < first + 8; ++i) {
    if (tile.page[i] < 0 || base + i >= tile.end[r]) continue;
    const float score = args.scale * tile.scores[r * 32 + i];
    seen = 1;
    if (isnan(score)) is_nan = 1;
    largest = max(largest, score);
  }
  for (ushort step = 1; step < 4; step *= 2) {
    largest = max(largest, simd_shuffle_xor(largest, step));
    is_nan |= simd_shuffle_xor(is_nan, step);
    seen |= simd_shuffle_xor(seen, step);
  }
  // As IEEE has it: a NaN among the scores makes the row NaN.
  largest = is_nan != 0 || isnan(before) ? NAN : max(before, largest);
  float sum = 0.0f;
  for (int i = first; i < first + 8; ++i) {
    const bool is_seen = tile.page[i] >= 0 && base + i < tile.end[r];
    const float weight = is_seen ? row_exp(args.scale * tile.scores[r * 32 + i] - largest) : 0.0f;
    tile.scores[r * 32 + i] = weight;
    sum += weight;
  }
  for (ushort step = 1; step < 4; step *= 2) sum += simd_shuffle_xor(sum, step);
  simdgroup_barrier(mem_flags::mem_threadgroup);  // all four lanes have read the row's maximum
  if (first == 0) {
    const float rescale = seen == 0 || before == largest ? 1.0f : row_exp(before - largest);
    tile.rescale[r] = rescale;
    tile.sum[r] = tile.sum[r] * rescale + sum;
    if (seen != 0) tile.largest[r] = largest;
  }
}

// The outputs of all rows take the values of this run of positions.
static inline void add_values(constant AttentionArgs& args, Buffers buffers, thread const AttentionTile& tile,
                              thread const AttentionRun& run, long base, Place at) {
  const long d_v = args.out.dims[2];
  for (long from = 0; from < d_v; from += kSlice) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const bool mine = stage_cached(args.v_pool, buffers.at[AttentionArgs::kVPool], tile, run.kv_head, from, at);
    const bool finite = group_max(mine ? 0.0f : 1.0f, tile.reduce, at) == 0.0f;
    simdgroup_float8x8 sums[4];
    clear(sums);
    if (finite) {
      multiply(tile.scores, tile.right, false, sums, at.simd);
      store_product(sums, tile.left, at.simd);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = int(at.index); i < run.rows * kSlice; i += kAttentionThreads) {
      const int r = i / kSlice;
      const int c = i % kSlice;
      if (from + c >= d_v) continue;
      float product = 0.0f;
      if (finite) {
        product = tile.left[i];
      } else {
        for (int j = 0; j < 32; ++j) {
          if (tile.page[j] < 0 || base + j >= tile.end[r]) continue;
          product = fma(tile.scores[r * 32 + j], tile.right[j * kSlice + c], product);
        }
      }
      threadgroup float* out = tile.out + r * kAttentionValues + from + c;
      *out = *out * tile.rescale[r] + product;
    }
  }
}

static inline void attend_run(constant AttentionArgs& args, Buffers buffers, thread const AttentionTile& tile,
                              thread const AttentionRun& run, Place at) {
  const long d_v = args.out.dims[2];
  threadgroup_barrier(mem_flags::mem_threadgroup);  // the run before may still be read
  if (at.index < 32) {
    const int r = int(at.index);
    tile.largest[r] = -INFINITY;
    tile.sum[r] = 0.0f;
    tile.end[r] = r < run.rows ? int(visible_end(args, buffers, run.token + r / run.heads)) : 0;
  }
  for (int i = int(at.index); i < kAttentionRows * kAttentionValues; i += kAttentionThreads) tile.out[i] = 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  long end = 0;
  for (int r = 0; r < run.rows; ++r) end = max(end, long(tile.end[r]));
  for (long base = 0; base < end; base += 32) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (at.index < 32) {
      KvPlace place = {-1, 0};
      if (base + at.index < end) {
        place = kv_place(args.pages, buffers.at[AttentionArgs::kPages], args.k_pool, run.seq, base + at.index);
      }
      tile.page[at.index] = place.page;
      tile.slot[at.index] = place.slot;
    }
    score_tile(args, buffers, tile, run, at);
    weigh_tile(args, tile, base, at);
    add_values(args, buffers, tile, run, base, at);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = int(at.index); i < run.rows * int(d_v); i += kAttentionThreads) {
    const int r = i / int(d_v);
    const int c = i % int(d_v);
    device uchar* out = row_at2(args.out, buffers.at[AttentionArgs::kOut], run.token + r / run.heads,
                                run.kv_head * run.heads + r % run.heads);
    const bool nothing = tile.sum[r] == 0.0f && tile.largest[r] == -INFINITY;
    store_float(args.out.type, out, c, nothing ? 0.0f : tile.out[r * kAttentionValues + c] / tile.sum[r]);
  }
}

static void attention_tokens(constant AttentionArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const AttentionTile tile = attention_tile(shared);
  const long n_live = live_rows(args.live, buffers.at[AttentionArgs::kLive], args.q.dims[0]);
  const long first = long(at.group.x) * args.tile_tokens;
  const long last = min(first + args.tile_tokens, n_live);
  AttentionRun run;
  run.heads = int(args.q.dims[1] / args.k_pool.dims[2]);
  run.kv_head = at.group.y;
  for (long t = first; t < last;) {
    run.token = t;
    run.seq = int_at(args.seqs, buffers.at[AttentionArgs::kSeqs], t);
    long next = t + 1;
    while (next < last && int_at(args.seqs, buffers.at[AttentionArgs::kSeqs], next) == run.seq) ++next;
    run.rows = int(next - t) * run.heads;
    attend_run(args, buffers, tile, run, at);
    t = next;
  }
}

KERNEL(attention_tiles, AttentionArgs, attention_tokens)
