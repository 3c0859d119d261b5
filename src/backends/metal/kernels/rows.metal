// Ops that work row by row: one threadgroup to a row.
#include "backends/metal/kernels/decode.h"
#include "backends/metal/kernels/kernel.h"

static void add(constant AddArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  const long d = inner_of(args.out);
  const long r = at.group.x;
  if (r >= live_rows(args.live, buffers.at[AddArgs::kLive], args.out.dims[0])) return;
  device uchar* out = row_at(args.out, buffers.at[AddArgs::kOut], r);
  const device uchar* a = args.in_place == 1 ? out : row_at(args.a, buffers.at[AddArgs::kA], r);
  const device uchar* b = buffers.at[AddArgs::kB] + args.b.offset;
  if (args.in_place == 2) {
    b = out;
  } else if (args.b.rank == 2) {
    b = row_at(args.b, buffers.at[AddArgs::kB], r);
  }
  for (long i = at.index; i < d; i += at.count) {
    store_float(args.out.type, out, i, load_float(args.a.type, a, i) + load_float(args.b.type, b, i));
  }
}

static void silu_mul(constant SiluMulArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  const long d = inner_of(args.out);
  const long r = at.group.x;
  if (r >= live_rows(args.live, buffers.at[SiluMulArgs::kLive], long(at.groups.x))) return;
  device uchar* out = flat_row(args.out, buffers.at[SiluMulArgs::kOut], r);
  const device uchar* gate = args.in_place == 1 ? out : flat_row(args.gate, buffers.at[SiluMulArgs::kGate], r);
  const device uchar* up = args.in_place == 2 ? out : flat_row(args.up, buffers.at[SiluMulArgs::kUp], r);
  for (long i = at.index; i < d; i += at.count) {
    store_float(args.out.type, out, i, gated(0, load_float(args.gate.type, gate, i), load_float(args.up.type, up, i)));
  }
}

static void embed(constant EmbedArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  const long t = at.group.x;
  if (t >= live_rows(args.live, buffers.at[EmbedArgs::kLive], args.out.dims[0])) return;
  const long d = args.out.dims[1];
  const long id = int_at(args.ids, buffers.at[EmbedArgs::kIds], t);
  const bool known = id >= 0 && id < args.table.dims[0];
  const device uchar* row = row_at(args.table, buffers.at[EmbedArgs::kTable], known ? id : 0);
  device uchar* out = row_at(args.out, buffers.at[EmbedArgs::kOut], t);
  for (long i = at.index; i < d; i += at.count) {
    store_float(args.out.type, out, i, known ? decode_weight(args.table.type, row, i) : 0.0f);
  }
}

static void rms_norm(constant NormArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const long d = inner_of(args.x);
  const long r = at.group.x;
  const long heads = args.x.rank == 3 ? args.x.dims[1] : 1;
  if (r >= live_rows(args.live, buffers.at[NormArgs::kLive], args.x.dims[0]) * heads) return;
  device uchar* out = flat_row(args.out, buffers.at[NormArgs::kOut], r);
  const device uchar* x = args.in_place != 0 ? out : flat_row(args.x, buffers.at[NormArgs::kX], r);
  const device uchar* weight = buffers.at[NormArgs::kWeight] + args.weight.offset;
  float squares = 0.0f;
  for (long i = at.index; i < d; i += at.count) {
    const float value = load_float(args.x.type, x, i);
    squares = fma(value, value, squares);
  }
  squares = group_sum(squares, (threadgroup float*)shared, at);
  const float inverse = 1.0f / sqrt(squares / float(d) + args.eps);
  for (long i = at.index; i < d; i += at.count) {
    const float value = load_float(args.x.type, x, i);
    store_float(args.out.type, out, i, value * inverse * load_float(args.weight.type, weight, i));
  }
}

static void softmax(constant SoftmaxArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const long d = args.x.dims[1];
  const long r = at.group.x;
  if (r >= live_rows(args.live, buffers.at[SoftmaxArgs::kLive], args.x.dims[0])) return;
  device uchar* out = row_at(args.out, buffers.at[SoftmaxArgs::kOut], r);
  const device uchar* x = args.in_place != 0 ? out : row_at(args.x, buffers.at[SoftmaxArgs::kX], r);
  float largest = -INFINITY;
  bool is_nan = false;
  for (long i = at.index; i < d; i += at.count) {
    const float value = args.scale * load_float(args.x.type, x, i);
    is_nan = is_nan || isnan(value);
    largest = max(largest, value);
  }
  largest = group_max(largest, (threadgroup float*)shared, at);
  is_nan = group_max(is_nan ? 1.0f : 0.0f, (threadgroup float*)shared, at) != 0.0f;
  float sum = 0.0f;
  for (long i = at.index; i < d; i += at.count) {
    sum += row_exp(args.scale * load_float(args.x.type, x, i) - largest);
  }
  sum = group_sum(sum, (threadgroup float*)shared, at);
  if (is_nan || !isfinite(largest)) sum = NAN;
  for (long i = at.index; i < d; i += at.count) {
    const float value = args.scale * load_float(args.x.type, x, i);
    store_float(args.out.type, out, i, row_exp(value - largest) / sum);
  }
}

struct Best {
  float value;
  uint index;
};

// The best of a threadgroup, given the best of each of its threads: the largest, of equal ones the lowest index. Where
// there is none it is minus infinity.
static Best best_of_group(Best own, threadgroup uchar* shared, Place at) {
  const float largest = group_max(own.value, (threadgroup float*)shared, at);
  const uint lowest = simd_min(own.value == largest ? own.index : 0x7FFFFFFFu);
  threadgroup uint* places = (threadgroup uint*)shared;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (at.lane == 0) places[at.simd] = lowest;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Best best = {largest, places[0]};
  for (uint i = 1; i < at.simds; ++i) best.index = min(best.index, places[i]);
  return best;
}

// Largest first, ties to the lower index. Minus infinity and NaN never win.
static void argmax(constant ArgmaxArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const long d = args.x.dims[1];
  const long r = at.group.x;
  if (r >= live_rows(args.live, buffers.at[ArgmaxArgs::kLive], args.x.dims[0])) return;
  const device uchar* x = row_at(args.x, buffers.at[ArgmaxArgs::kX], r);
  Best best = {-INFINITY, 0x7FFFFFFFu};
  for (long i = at.index; i < d; i += at.count) {
    const float value = load_float(args.x.type, x, i);
    if (value > best.value) best = {value, uint(i)};
  }
  best = best_of_group(best, shared, at);
  if (at.index != 0) return;
  ((device int*)(buffers.at[ArgmaxArgs::kIds] + args.ids.offset))[r] = best.value == -INFINITY ? -1 : int(best.index);
}

// One place after the other: the best of what ranks after the place before. A row is read k times.
static void top_k(constant TopKArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const long d = args.x.dims[1];
  const long k = args.ids.dims[1];
  const long r = at.group.x;
  if (r >= live_rows(args.live, buffers.at[TopKArgs::kLive], args.x.dims[0])) return;
  const device uchar* x = row_at(args.x, buffers.at[TopKArgs::kX], r);
  device int* ids = (device int*)row_at(args.ids, buffers.at[TopKArgs::kIds], r);
  device float* values = (device float*)row_at(args.values, buffers.at[TopKArgs::kValues], r);
  Best last = {INFINITY, 0};
  for (long place = 0; place < k; ++place) {
    Best best = {-INFINITY, 0x7FFFFFFFu};
    for (long i = at.index; i < d; i += at.count) {
      const float stored = load_float(args.x.type, x, i) + 0.0f;
      const float value = stored > FLT_MAX ? FLT_MAX : stored;  // NaN stays, and is never more than anything
      const bool after = value < last.value || (value == last.value && uint(i) > last.index);
      if (after && value > best.value) best = {value, uint(i)};
    }
    last = best_of_group(best, shared, at);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // before the next round writes there
    if (at.index == 0) {
      ids[place] = last.value == -INFINITY ? -1 : int(last.index);
      values[place] = last.value;
    }
  }
}

static void rope(constant RopeArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  const long heads = args.x.dims[1];
  const long t = at.group.x / heads;
  const long h = at.group.x % heads;
  if (t >= live_rows(args.live, buffers.at[RopeArgs::kLive], args.x.dims[0])) return;
  device uchar* out = row_at2(args.out, buffers.at[RopeArgs::kOut], t, h);
  const device uchar* x = args.in_place != 0 ? out : row_at2(args.x, buffers.at[RopeArgs::kX], t, h);
  const device float* frequencies = (const device float*)(buffers.at[RopeArgs::kFrequencies] + args.frequencies);
  const device float* factors = (const device float*)(buffers.at[RopeArgs::kFactors] + args.factors.offset);
  const float position = float(int_at(args.positions, buffers.at[RopeArgs::kPositions], t));
  const int pairs = args.n_rot / 2;
  for (int i = int(at.index); i < pairs; i += int(at.count)) {
    const float frequency = args.factors.rank == 0 ? frequencies[i] : frequencies[i] / factors[i];
    const float angle = position * frequency;
    const float c = cos(angle) * args.magnitude;
    const float s = sin(angle) * args.magnitude;
    const int first = args.interleaved != 0 ? 2 * i : i;
    const int second = args.interleaved != 0 ? 2 * i + 1 : i + pairs;
    const float a = load_float(args.x.type, x, first);
    const float b = load_float(args.x.type, x, second);
    store_float(args.out.type, out, first, a * c - b * s);
    store_float(args.out.type, out, second, a * s + b * c);
  }
  if (args.in_place != 0 && args.x.type == args.out.type) return;
  for (long i = args.n_rot + long(at.index); i < args.x.dims[2]; i += at.count) {
    store_float(args.out.type, out, i, load_float(args.x.type, x, i));
  }
}

static void fill(constant FillArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  const long i = args.first + long(at.group.x) * at.count + at.index;
  if (i < args.out.dims[0]) ((device int*)(buffers.at[FillArgs::kOut] + args.out.offset))[i] = args.value;
}

KERNEL(add_rows, AddArgs, add)
KERNEL(silu_mul_rows, SiluMulArgs, silu_mul)
KERNEL(embed_rows, EmbedArgs, embed)
KERNEL(rms_norm_rows, NormArgs, rms_norm)
KERNEL(softmax_rows, SoftmaxArgs, softmax)
KERNEL(argmax_rows, ArgmaxArgs, argmax)
KERNEL(top_k_rows, TopKArgs, top_k)
KERNEL(rope_heads, RopeArgs, rope)
KERNEL(fill_ints, FillArgs, fill)
