// The attention kernels over any vector type: attention_kernels.h says what they compute.
//
// Both products are a few rows times a few vectors whose sums stay in registers: keys are transposed so that the lanes
// are positions, values lie with d in the lanes, and the other operand is broadcast. Some keys at a time, then some d of
// the values, are made f32 and stay in the nearest cache while all rows of the block pass by.
//
// Bound with many rows: fused multiply-adds. One core of an EPYC (Zen 4), AVX-512, 32 heads on 4 KV heads of 128, f16,
// 2026-11-15: 76% of its f32 peak with 512 tokens at 4096; one token reads 9.2 GB/s of a cache in L3, 6.9 from memory
// (2.9 without asking ahead). Lost: asking in the middle of a product (3% of it, and no faster), all of a tile as f32
// before its first product (no faster).
#pragma once

#include "backends/cpu/attention_kernels.h"
#include "backends/cpu/kernels/math.h"

namespace conclave {

template <class V>
struct AttentionOf {
  using F = typename V::F;
  using I = typename V::I;

  static constexpr int kLanes = 16;
  static constexpr int kTile = static_cast<int>(kAttentionTile);
  static constexpr int kGroups = kTile / kLanes;
  // Floats of a tile of values in one vector of d. One more than there are: at multiples of 4096 bytes the vectors of a
  // row would compete for the same lines of the cache.
  static constexpr std::int64_t kPanel = (kTile + 1) * kLanes;
  // Rows taken at once, and how many vectors beside each other: as many sums as registers hold.
  static constexpr int kTall = V::kMaxRows >= 8 ? 8 : 4;
  static constexpr int kSums = V::kMaxRows >= 8 ? 16 : 4;
  template <int rows, int step>
  static constexpr int kWide = kSums / rows < step ? kSums / rows : step;

  static constexpr std::int64_t padded(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

  // exp of what is not positive; 0 below ln(2^-126), so that no subnormal slows the products down.
  [[gnu::always_inline]] static inline F weight(F x) {
    return V::select(V::less(x, V::set1(-87.33654F)), V::zero(), exp<V>(x));
  }

  // Elements `first` (of a block, where there are blocks) to `end` of a row as f32, vector i at out + i * step; the last
  // one is filled up with zeros.
  static void load_row(DType type, const std::byte* row, std::int64_t first, std::int64_t end, float* out,
                       std::int64_t step) {
    const std::int64_t n = end - first;
    const std::int64_t whole = n / kLanes * kLanes;
    const std::int64_t rest = n - whole;
    float* last = out + whole / kLanes * step;
    if (type == DType::f32) {
      const float* x = reinterpret_cast<const float*>(row) + first;
      for (std::int64_t i = 0; i < whole; i += kLanes, out += step) V::store(out, V::load(x + i));
      if (rest > 0) V::store(last, V::load_n(x + whole, rest));
    } else if (type == DType::q8_0) {
      const std::byte* block = row + first / kBlockValues * kBlockBytes;
      for (std::int64_t i = 0; i < n; i += kBlockValues, block += kBlockBytes, out += 2 * step) {
        const F scale = load_scale(block);
        V::store(out, V::mul(load_levels(block + kScaleBytes), scale));
        V::store(out + step, V::mul(load_levels(block + kScaleBytes + kLanes), scale));
      }
    } else {
      const std::uint16_t* x = reinterpret_cast<const std::uint16_t*>(row) + first;
      std::uint16_t tail[kLanes] = {};
      for (std::int64_t i = 0; i < rest; ++i) tail[i] = x[whole + i];
      if (type == DType::f16) {
        for (std::int64_t i = 0; i < whole; i += kLanes, out += step) V::store(out, V::load_f16(x + i));
        if (rest > 0) V::store(last, V::load_f16(tail));
      } else {
        for (std::int64_t i = 0; i < whole; i += kLanes, out += step) V::store(out, V::load_bf16(x + i));
        if (rest > 0) V::store(last, V::load_bf16(tail));
      }
    }
  }
  // q8_0: a scale in f16, then 32 levels.
  static constexpr std::int64_t kBlockValues = 32;
  static constexpr std::int64_t kBlockBytes = 34;
  static constexpr std::int64_t kScaleBytes = 2;
  [[gnu::always_inline]] static inline F load_scale(const std::byte* block) {
    std::uint16_t bits;
    __builtin_memcpy(&bits, block, sizeof bits);
    return V::half_low(V::iset1(bits));
  }
  // Sixteen levels: looked up as a table of 16, each into the upper byte of its lane.
  static constexpr std::int32_t kUpperByte[kLanes] = {0 << 24,  1 << 24,  2 << 24,  3 << 24, 4 << 24,  5 << 24,
                                                      6 << 24,  7 << 24,  8 << 24,  9 << 24, 10 << 24, 11 << 24,
                                                      12 << 24, 13 << 24, 14 << 24, 15 << 24};
  [[gnu::always_inline]] static inline F load_levels(const std::byte* from) {
    const I upper = V::lookup16(V::iload(kUpperByte), reinterpret_cast<const std::int8_t*>(from));
    return V::to_f(V::template sar<24>(upper));
  }

  // Rows go kTall at a time, what is left over by halves: each such run is [d_k][rows].
  template <int rows>
  static void pack_run(DType type, const std::byte* const* from, std::int64_t d_k, float* line, float* q) {
    for (int r = 0; r < rows; ++r) {
      load_row(type, from[r], 0, d_k, line, kLanes);
      for (std::int64_t d = 0; d < d_k; ++d) q[d * rows + r] = line[d];
    }
  }
  template <int rows>
  static void pack_rest(DType type, const std::byte* const* from, std::int64_t left, std::int64_t d_k, float* line,
                        float* q) {
    if constexpr (rows > 0) {
      const std::int64_t taken = left & rows;
      if (taken != 0) pack_run<rows>(type, from, d_k, line, q);
      pack_rest<rows / 2>(type, from + taken, left - taken, d_k, line, q + taken * d_k);
    }
  }
  static void pack_q(DType type, const std::byte* const* from, std::int64_t n_rows, std::int64_t d_k, float* line,
                     float* q) {
    const std::int64_t tall = n_rows / kTall * kTall;
    for (std::int64_t r = 0; r < tall; r += kTall) pack_run<kTall>(type, from + r, d_k, line, q + r * d_k);
    pack_rest<kTall / 2>(type, from + tall, n_rows - tall, d_k, line, q + tall * d_k);
  }

  // Keys change places four bytes at a time: one, two or four numbers, of which this is the nth. q8_0: without its scale.
  template <DType type>
  static constexpr int kPerWord = type == DType::f32    ? 1
                                  : type == DType::q8_0 ? 4
                                                        : 2;
  template <DType type, int nth>
  [[gnu::always_inline]] static inline F number(I word) {
    if constexpr (type == DType::f32) return V::as_f(word);
    if constexpr (type == DType::f16) return V::half_low(nth == 0 ? word : V::template shr<16>(word));
    if constexpr (type == DType::bf16)
      return V::as_f(nth == 0 ? V::template shl<16>(word) : V::iand(word, V::iset1(-0x10000)));
    return V::to_f(V::template sar<24>(V::template shl<24 - 8 * nth>(word)));
  }
  // Calls with(d, key), lanes are positions, for every d in ascending order. Rows are whole pieces of four words.
  template <DType type, class With>
  [[gnu::always_inline]] static inline void for_each_key(const std::byte* const* rows, std::int64_t d_k, With with) {
    constexpr int per = kPerWord<type>;
    F scale = V::zero();
    for (std::int64_t d = 0; d < d_k; d += 4 * per) {
      std::int64_t at = d * 4 / per;
      if constexpr (type == DType::q8_0) {
        const std::int64_t block = d / kBlockValues * kBlockBytes;
        if (d % kBlockValues == 0) scale = V::half_low(V::load_columns(rows, block));
        at = block + kScaleBytes + d % kBlockValues;
      }
      I x[4];
      V::load_columns4(rows, at, x);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const auto key = [&](F y) { return type == DType::q8_0 ? V::mul(y, scale) : y; };
        with(d + i * per, key(number<type, 0>(x[i])));
        if constexpr (per > 1) with(d + i * per + 1, key(number<type, 1>(x[i])));
        if constexpr (per > 2) with(d + i * per + 2, key(number<type, 2>(x[i])));
        if constexpr (per > 2) with(d + i * per + 3, key(number<type, 3>(x[i])));
      }
    }
  }
  static bool whole_pieces(DType type, std::int64_t d) {
    return d % (type == DType::f32 ? 4 : 8) == 0;
  }
  template <DType type>
  static void transpose(const std::byte* const* rows, std::int64_t d_k, float* k) {
    for_each_key<type>(rows, d_k, [k](std::int64_t d, F key) { V::store(k + d * kLanes, key); });
  }
  // `step` groups of positions from group `first`.
  template <int step>
  static void pack_k(const AttentionTile& t, int first) {
    const std::int64_t width = padded(t.d_k);
    for (int g = 0; g < step; ++g) {
      const std::byte* const* rows = t.k + (first + g) * kLanes;
      float* k = t.k_floats + g * width * kLanes;
      if (!whole_pieces(t.k_type, t.d_k)) {
        const std::byte* lines[kLanes];
        for (int j = 0; j < kLanes; ++j) {
          load_row(t.k_type, rows[j], 0, t.d_k, t.lines + j * width, kLanes);
          lines[j] = reinterpret_cast<const std::byte*>(t.lines + j * width);
        }
        transpose<DType::f32>(lines, t.d_k, k);
      } else if (t.k_type == DType::f32) {
        transpose<DType::f32>(rows, t.d_k, k);
      } else if (t.k_type == DType::f16) {
        transpose<DType::f16>(rows, t.d_k, k);
      } else if (t.k_type == DType::bf16) {
        transpose<DType::bf16>(rows, t.d_k, k);
      } else {
        transpose<DType::q8_0>(rows, t.d_k, k);
      }
    }
  }
  // d from `from` to `to`, which is at a vector's end or past d_v.
  static void pack_v(const AttentionTile& t, std::int64_t from, std::int64_t to) {
    const std::int64_t end = to < t.d_v ? to : t.d_v;
    for (std::int64_t j = 0; j < t.n; ++j) load_row(t.v_type, t.v[j], from, end, t.v_floats + j * kLanes, kPanel);
  }
  // Where weigh() gets position j, vector w: from what pack_v has left, or straight from the cache.
  struct Packed {
    const float* v;
    [[gnu::always_inline]] inline F load(std::int64_t j, int w) const { return V::load(v + w * kPanel + j * kLanes); }
    [[gnu::always_inline]] inline void skip(int n) { v += n * kPanel; }
  };
  template <DType type>
  struct Cached {
    const std::byte* const* v;
    std::int64_t d;
    [[gnu::always_inline]] inline F load(std::int64_t j, int w) const {
      const std::int64_t at = d + w * kLanes;
      if constexpr (type == DType::f32) return V::load(reinterpret_cast<const float*>(v[j]) + at);
      if constexpr (type == DType::f16) return V::load_f16(reinterpret_cast<const std::uint16_t*>(v[j]) + at);
      if constexpr (type == DType::bf16) return V::load_bf16(reinterpret_cast<const std::uint16_t*>(v[j]) + at);
      const std::byte* block = v[j] + at / kBlockValues * kBlockBytes;
      return V::mul(load_levels(block + kScaleBytes + at % kBlockValues), load_scale(block));
    }
    [[gnu::always_inline]] inline void skip(int n) { d += n * kLanes; }
  };

  // Asks for what is wanted next, a few rows at a time: more would fill the queue of misses and wait for it.
  struct Ahead {
    static constexpr std::int64_t kRows = 16;  // of 64 keys and 64 values: eight rows of 128 wide heads ask eight times
    const AttentionTile& t;
    std::int64_t at = 0;

    void ask() {
      if (at >= 2 * t.n_next) return;
      for (std::int64_t end = at + kRows; at < end; ++at) {
        if (at < t.n_next) {
          row(t.next_k[at], t.k_bytes);
        } else if (at < 2 * t.n_next) {
          row(t.next_v[at - t.n_next], t.v_bytes);
        }
      }
    }
    void row(const std::byte* p, std::int64_t bytes) {
      for (std::int64_t i = 0; i < bytes; i += 64) V::prefetch(p + i);
    }
  };

  // Scores of `rows` rows with `wide` groups of positions.
  template <int rows, int wide>
  static void score(const float* q, const float* k, std::int64_t d_k, float scale, float* out) {
    const std::int64_t group = padded(d_k) * kLanes;
    F sum[rows][wide];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int w = 0; w < wide; ++w) sum[r][w] = V::zero();
    }
    for (std::int64_t d = 0; d < d_k; ++d) {
      F y[wide];
#pragma GCC unroll 16
      for (int w = 0; w < wide; ++w) y[w] = V::load(k + w * group + d * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const F x = V::set1(q[d * rows + r]);
#pragma GCC unroll 16
        for (int w = 0; w < wide; ++w) sum[r][w] = V::fma(x, y[w], sum[r][w]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int w = 0; w < wide; ++w) V::store(out + r * kTile + w * kLanes, V::mul(sum[r][w], V::set1(scale)));
    }
  }

  // The same with one group, straight from the cache.
  template <int rows, DType type>
  static void score_group(const float* q, const std::byte* const* k, std::int64_t d_k, float scale, float* out) {
    F sum[rows];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) sum[r] = V::zero();
    for_each_key<type>(k, d_k, [&](std::int64_t d, F key) {
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) sum[r] = V::fma(V::set1(q[d * rows + r]), key, sum[r]);
    });
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) V::store(out + r * kTile, V::mul(sum[r], V::set1(scale)));
  }

  // acc (rescaled, where asked) plus positions `from` to `to`, in `wide` vectors of d.
  template <int rows, int wide, bool rescaled, class Values>
  static void weigh(const float* p, const Values& v, std::int64_t from, std::int64_t to, const float* rescale,
                    float* acc, std::int64_t stride) {
    F sum[rows][wide];
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int w = 0; w < wide; ++w) {
        sum[r][w] = V::load(acc + r * stride + w * kLanes);
        if constexpr (rescaled) sum[r][w] = V::mul(sum[r][w], V::set1(rescale[r]));
      }
    }
    for (std::int64_t j = from; j < to; ++j) {
      F y[wide];
#pragma GCC unroll 16
      for (int w = 0; w < wide; ++w) y[w] = v.load(j, w);
#pragma GCC unroll 16
      for (int r = 0; r < rows; ++r) {
        const F x = V::set1(p[r * kTile + j]);
#pragma GCC unroll 16
        for (int w = 0; w < wide; ++w) sum[r][w] = V::fma(x, y[w], sum[r][w]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 16
      for (int w = 0; w < wide; ++w) V::store(acc + r * stride + w * kLanes, sum[r][w]);
    }
  }

  // Rows `row` on against the `step` groups from `first` that pack_k has left.
  template <int rows, int step>
  static void score_run(const AttentionTile& t, Ahead& ahead, std::int64_t row, int first) {
    constexpr int wide = kWide<rows, step>;
    std::int32_t seen = 0;
    for (int r = 0; r < rows; ++r) seen = t.count[row + r] > seen ? t.count[row + r] : seen;
    for (int g = 0; g < step && (first + g) * kLanes < seen; g += wide) {
      score<rows, wide>(t.q + row * t.d_k, t.k_floats + g * padded(t.d_k) * kLanes, t.d_k, t.scale,
                        t.scores + row * kTile + (first + g) * kLanes);
      ahead.ask();
    }
  }
  template <int rows, int step>
  static void score_rest(const AttentionTile& t, Ahead& ahead, std::int64_t row, int first) {
    if constexpr (rows > 0) {
      const std::int64_t taken = (t.n_rows - row) & rows;
      if (taken != 0) score_run<rows, step>(t, ahead, row, first);
      score_rest<rows / 2, step>(t, ahead, row + taken, first);
    }
  }
  template <int step>
  static void score_packed(const AttentionTile& t, Ahead& ahead) {
    const std::int64_t tall = t.n_rows / kTall * kTall;
    for (int g = 0; g < kGroups && g * kLanes < t.n; g += step) {
      pack_k<step>(t, g);
      for (std::int64_t r = 0; r < tall; r += kTall) score_run<kTall, step>(t, ahead, r, g);
      score_rest<kTall / 2, step>(t, ahead, tall, g);
    }
  }

  template <int rows, DType type>
  static void score_cached(const AttentionTile& t, Ahead& ahead) {
    for (int g = 0; g * kLanes < t.n; ++g) {
      score_group<rows, type>(t.q, t.k + g * kLanes, t.d_k, t.scale, t.scores + g * kLanes);
      ahead.ask();
    }
  }

  // Rows that see different numbers of positions go together as far as all of them see.
  template <int rows, int wide, class Values>
  static void weigh_rows(const AttentionTile& t, Ahead& ahead, std::int64_t row, const Values& v, std::int64_t d) {
    const std::int64_t stride = padded(t.d_v);
    const float* p = t.scores + row * kTile;
    float* acc = t.state.acc + row * stride + d;
    std::int64_t common = t.count[row];
    for (int r = 1; r < rows; ++r) common = t.count[row + r] < common ? t.count[row + r] : common;
    weigh<rows, wide, true>(p, v, 0, common, t.rescale + row, acc, stride);
    ahead.ask();
    for (int r = 0; r < rows; ++r) {
      if (t.count[row + r] == common) continue;
      weigh<1, wide, false>(p + r * kTile, v, common, t.count[row + r], nullptr, acc + r * stride, stride);
    }
  }
  // Rows `row` on against d from `from` to `to`; v begins at `from`.
  template <int rows, int step, class Values>
  static void weigh_run(const AttentionTile& t, Ahead& ahead, std::int64_t row, Values v, std::int64_t from,
                        std::int64_t to) {
    constexpr int wide = kWide<rows, step>;
    std::int64_t d = from;
    for (; d + wide * kLanes <= to; d += wide * kLanes, v.skip(wide)) weigh_rows<rows, wide>(t, ahead, row, v, d);
    for (; d < to; d += kLanes, v.skip(1)) weigh_rows<rows, 1>(t, ahead, row, v, d);
  }
  template <int rows, int step, class Values>
  static void weigh_rest(const AttentionTile& t, Ahead& ahead, std::int64_t row, Values v, std::int64_t from,
                         std::int64_t to) {
    if constexpr (rows > 0) {
      const std::int64_t taken = (t.n_rows - row) & rows;
      if (taken != 0) weigh_run<rows, step>(t, ahead, row, v, from, to);
      weigh_rest<rows / 2, step>(t, ahead, row + taken, v, from, to);
    }
  }
  template <int step>
  static void weigh_packed(const AttentionTile& t, Ahead& ahead) {
    const std::int64_t tall = t.n_rows / kTall * kTall;
    const std::int64_t width = padded(t.d_v);
    const Packed v{t.v_floats};
    for (std::int64_t d = 0; d < width; d += step * kLanes) {
      const std::int64_t to = d + step * kLanes < width ? d + step * kLanes : width;
      pack_v(t, d, to);
      for (std::int64_t r = 0; r < tall; r += kTall) weigh_run<kTall, step>(t, ahead, r, v, d, to);
      weigh_rest<kTall / 2, step>(t, ahead, tall, v, d, to);
    }
  }
  template <int rows, DType type>
  static void weigh_cached(const AttentionTile& t, Ahead& ahead) {
    weigh_run<rows, kGroups>(t, ahead, 0, Cached<type>{t.v, 0}, 0, t.d_v);
  }

  // Scores to weights; rescale becomes exp(m - m'), and the state's maximum and sum move on.
  static void soften(const AttentionTile& t) {
    const F masked = V::set1(-__builtin_inff());
    for (std::int64_t r = 0; r < t.n_rows; ++r) {
      t.rescale[r] = 0;
      t.weight[r] = 0;
      if (t.count[r] == 0) continue;
      float* p = t.scores + r * kTile;
      F x[kGroups];
      for (int g = 0; g < kGroups; ++g) x[g] = V::load(p + g * kLanes);
      if (!t.whole || t.count[r] < kTile) {
        const F count = V::set1(static_cast<float>(t.count[r]));
        for (int g = 0; g < kGroups; ++g) x[g] = V::select(V::less(V::load(t.order + g * kLanes), count), x[g], masked);
      }
      const float largest = V::largest(V::max(V::max(x[0], x[1]), V::max(x[2], x[3])));
      const float before = t.state.max[r];
      float max = largest > before ? largest : before;
      max = max > -0x1.fffffep127F ? max : -0x1.fffffep127F;  // seen: no longer -infinity
      for (int g = 0; g < kGroups; ++g) {
        x[g] = weight(V::sub(x[g], V::set1(max)));
        V::store(p + g * kLanes, x[g]);
      }
      t.weight[r] = V::sum(V::add(V::add(x[0], x[1]), V::add(x[2], x[3])));
      t.rescale[r] = before - max;
      t.state.max[r] = max;
    }
    for (std::int64_t r = 0; r < t.n_rows; r += kLanes) {
      const F scale = weight(V::load(t.rescale + r));
      V::store(t.rescale + r, scale);
      V::store(t.state.sum + r, V::add(V::mul(V::load(t.state.sum + r), scale), V::load(t.weight + r)));
    }
  }

  // All rows are one run, so each key and each value is used once: not worth while to write it down as f32.
  template <int rows>
  static void add_once(const AttentionTile& t, Ahead& ahead) {
    if (!whole_pieces(t.k_type, t.d_k)) {
      score_packed<kGroups>(t, ahead);
    } else if (t.k_type == DType::f32) {
      score_cached<rows, DType::f32>(t, ahead);
    } else if (t.k_type == DType::f16) {
      score_cached<rows, DType::f16>(t, ahead);
    } else if (t.k_type == DType::bf16) {
      score_cached<rows, DType::bf16>(t, ahead);
    } else {
      score_cached<rows, DType::q8_0>(t, ahead);
    }
    soften(t);
    if (t.d_v % kLanes != 0) {
      weigh_packed<kGroups>(t, ahead);
    } else if (t.v_type == DType::f32) {
      weigh_cached<rows, DType::f32>(t, ahead);
    } else if (t.v_type == DType::f16) {
      weigh_cached<rows, DType::f16>(t, ahead);
    } else if (t.v_type == DType::bf16) {
      weigh_cached<rows, DType::bf16>(t, ahead);
    } else {
      weigh_cached<rows, DType::q8_0>(t, ahead);
    }
  }
  template <int step>
  static void add_packed(const AttentionTile& t, Ahead& ahead) {
    score_packed<step>(t, ahead);
    soften(t);
    weigh_packed<step>(t, ahead);
  }
  static void add_tile(const AttentionTile& t) {
    Ahead ahead{t};
    if (t.n_rows == kTall) return add_once<kTall>(t, ahead);
    if (t.n_rows == 4) return add_once<4>(t, ahead);
    if (t.n_rows == 2) return add_once<2>(t, ahead);
    if (t.n_rows == 1) return add_once<1>(t, ahead);
    // Few rows need more vectors beside each other, or each sum waits for itself.
    if (t.n_rows < kTall) return add_packed<kGroups>(t, ahead);
    add_packed<2>(t, ahead);
  }

  static void merge(const AttentionState& from, const AttentionState& into, std::int64_t n_rows, std::int64_t d_v) {
    const std::int64_t stride = padded(d_v);
    const float nothing = -__builtin_inff();
    for (std::int64_t r = 0; r < n_rows; ++r) {
      if (from.max[r] == nothing) continue;
      const float* x = from.acc + r * stride;
      float* y = into.acc + r * stride;
      if (into.max[r] == nothing) {
        into.max[r] = from.max[r];
        into.sum[r] = from.sum[r];
        for (std::int64_t i = 0; i < stride; i += kLanes) V::store(y + i, V::load(x + i));
        continue;
      }
      const float max = from.max[r] > into.max[r] ? from.max[r] : into.max[r];
      const F a = weight(V::set1(into.max[r] - max));
      const F b = weight(V::set1(from.max[r] - max));
      for (std::int64_t i = 0; i < stride; i += kLanes)
        V::store(y + i, V::fma(V::load(x + i), b, V::mul(V::load(y + i), a)));
      V::store_n(into.sum + r, V::add(V::mul(V::set1(into.sum[r]), a), V::mul(V::set1(from.sum[r]), b)), 1);
      into.max[r] = max;
    }
  }

  static void store_row(DType type, const float* from, std::int64_t n, std::byte* out) {
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const F x = V::load(from + i);
      const std::int64_t left = n - i < kLanes ? n - i : kLanes;
      if (type == DType::f32) {
        V::store_n(reinterpret_cast<float*>(out) + i, x, left);
        continue;
      }
      std::uint16_t half[kLanes];
      if (type == DType::f16) {
        V::store_f16(half, x);
      } else {
        V::store_bf16(half, x);
      }
      __builtin_memcpy(reinterpret_cast<std::uint16_t*>(out) + i, half,
                       static_cast<std::size_t>(left) * sizeof half[0]);
    }
  }
  static void finish(const AttentionState& state, std::int64_t n_rows, std::int64_t d_v, DType type,
                     std::byte* const* out) {
    const std::int64_t stride = padded(d_v);
    for (std::int64_t r = 0; r < n_rows; ++r) {
      float* x = state.acc + r * stride;
      const bool seen = state.max[r] != -__builtin_inff();
      for (std::int64_t i = 0; i < stride; i += kLanes) {
        const F y = V::div(V::load(x + i), V::set1(state.sum[r]));
        V::store(x + i, seen ? V::select(V::is_nan(y), V::set1(__builtin_nanf("")), y) : V::zero());
      }
      store_row(type, x, d_v, out[r]);
    }
  }
};

template <class V>
constexpr AttentionKernels make_attention_kernels() {
  using A = AttentionOf<V>;
  return {.pack_q = A::pack_q, .add_tile = A::add_tile, .merge = A::merge, .finish = A::finish};
}

}  // namespace conclave
