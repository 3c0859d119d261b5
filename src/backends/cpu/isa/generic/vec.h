// Sixteen lanes in plain C++, four vectors of 16 bytes as the compilers know them on every machine: what each instruction
// set's Vec means, and the row that runs anywhere. Every function gives the same bits on every row: IEEE operations, each
// rounded once.
//
//   F   16 floats            I   16 int32, or 64 bytes            M   16 yes-or-no
//
// (One vector of 64 bytes would be the shorter way to write it, but g++ takes those apart into single elements.)
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"

namespace conclave {

#define CONCLAVE_INLINE [[gnu::always_inline]] static inline

struct Generic {
  typedef float F4 __attribute__((vector_size(16)));
  typedef std::int32_t I4 __attribute__((vector_size(16)));
  typedef std::uint32_t U4 __attribute__((vector_size(16)));
  typedef std::int16_t S8 __attribute__((vector_size(16)));
  struct F {
    F4 v[4];
  };
  struct I {
    I4 v[4];
  };
  struct N {
    S8 v[4];
  };
  using M = I;                        // -1: yes, 0: no
  static constexpr int kMaxRows = 2;  // rows of a product tile whose sums stay in registers
  static constexpr int kBias = 0;     // added to signed levels before dot_signed()
  // Sums of dot()s in 16 bits, where they are the faster ones: N holds two partial sums a lane, widen() adds them up.
  // As many steps as 16 bits hold: 32767 / (2 * 127 * the largest level).
  static constexpr bool kNarrow = true;

  // The four parts, one after the other.
  template <class Part, class Make>
  CONCLAVE_INLINE Part parts(Make&& make) {
    return {{make(0), make(1), make(2), make(3)}};
  }

  CONCLAVE_INLINE F zero() { return F{}; }
  CONCLAVE_INLINE F set1(float x) {
    return parts<F>([&](int) __attribute__((always_inline)) { return F4{x, x, x, x}; });
  }
  CONCLAVE_INLINE F load(const float* p) {
    F x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  CONCLAVE_INLINE void store(float* p, F x) { std::memcpy(p, &x, sizeof x); }
  // At a multiple of 64 bytes, past the caches where that can be said. Ordered before later stores by streamed().
  CONCLAVE_INLINE void stream(float* p, F x) { store(p, x); }
  CONCLAVE_INLINE void streamed() {}
  // The first n (1 to 16) lanes; the others are 0, and are not stored.
  CONCLAVE_INLINE F load_n(const float* p, std::int64_t n) {
    F x{};
    std::memcpy(&x, p, static_cast<std::size_t>(n) * sizeof(float));
    return x;
  }
  CONCLAVE_INLINE void store_n(float* p, F x, std::int64_t n) {
    std::memcpy(p, &x, static_cast<std::size_t>(n) * sizeof(float));
  }
  // Lane by lane, through memory.
  template <class Make>
  CONCLAVE_INLINE F lanes(Make&& make) {
    float x[16];
    for (int i = 0; i < 16; ++i) x[i] = make(i);
    return load(x);
  }
  CONCLAVE_INLINE F load_f16(const std::uint16_t* p) {
    return lanes([&](int i) __attribute__((always_inline)) { return f16_to_f32(p[i]); });
  }
  CONCLAVE_INLINE F load_bf16(const std::uint16_t* p) {
    return lanes([&](int i) __attribute__((always_inline)) { return bf16_to_f32(p[i]); });
  }
  CONCLAVE_INLINE void store_f16(std::uint16_t* p, F x) {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(x.v[i / 4][i % 4]);
  }
  CONCLAVE_INLINE void store_bf16(std::uint16_t* p, F x) {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_bf16(x.v[i / 4][i % 4]);
  }

  CONCLAVE_INLINE F add(F a, F b) {
    return parts<F>([&](int i) __attribute__((always_inline)) { return a.v[i] + b.v[i]; });
  }
  CONCLAVE_INLINE F sub(F a, F b) {
    return parts<F>([&](int i) __attribute__((always_inline)) { return a.v[i] - b.v[i]; });
  }
  CONCLAVE_INLINE F mul(F a, F b) {
    return parts<F>([&](int i) __attribute__((always_inline)) { return a.v[i] * b.v[i]; });
  }
  CONCLAVE_INLINE F div(F a, F b) {
    return parts<F>([&](int i) __attribute__((always_inline)) { return a.v[i] / b.v[i]; });
  }
  CONCLAVE_INLINE F fma(F a, F b, F c) {
    return lanes([&](int i) __attribute__((always_inline)) {
      return std::fmaf(a.v[i / 4][i % 4], b.v[i / 4][i % 4], c.v[i / 4][i % 4]);
    });
  }
  CONCLAVE_INLINE F max(F a, F b) {  // b where either is NaN
    return parts<F>([&](int i) __attribute__((always_inline)) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  CONCLAVE_INLINE F min(F a, F b) {
    return parts<F>([&](int i) __attribute__((always_inline)) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  CONCLAVE_INLINE F sqrt(F x) {
    return lanes([&](int i) __attribute__((always_inline)) { return std::sqrt(x.v[i / 4][i % 4]); });
  }
  CONCLAVE_INLINE F abs(F x) { return as_f(iand(as_i(x), iset1(0x7FFFFFFF))); }
  CONCLAVE_INLINE M less(F a, F b) {
    return parts<M>([&](int i) __attribute__((always_inline)) { return a.v[i] < b.v[i]; });
  }
  CONCLAVE_INLINE M is_nan(F x) {
    return parts<M>([&](int i) __attribute__((always_inline)) { return x.v[i] != x.v[i]; });
  }
  CONCLAVE_INLINE F select(M m, F yes, F no) {
    return parts<F>([&](int i) __attribute__((always_inline)) { return m.v[i] ? yes.v[i] : no.v[i]; });
  }
  CONCLAVE_INLINE bool any(M m) {
    const I4 all = m.v[0] | m.v[1] | m.v[2] | m.v[3];
    return (all[0] | all[1] | all[2] | all[3]) != 0;
  }
  CONCLAVE_INLINE F to_f(I x) {
    return parts<F>([&](int i) __attribute__((always_inline)) { return __builtin_convertvector(x.v[i], F4); });
  }
  // To nearest, ties to even; |x| below 2^22. The sum has its fraction rounded away by the addition itself.
  CONCLAVE_INLINE I to_i(F x) {
    const F magic = set1(0x1.8p23F);
    return isub(as_i(add(x, magic)), as_i(magic));
  }
  CONCLAVE_INLINE F as_f(I x) { return std::bit_cast<F>(x); }
  CONCLAVE_INLINE I as_i(F x) { return std::bit_cast<I>(x); }
  // Folded in halves: lanes i and i + 8, then i + 4, i + 2, i + 1.
  CONCLAVE_INLINE float sum(F x) {
    const F4 four = (x.v[0] + x.v[2]) + (x.v[1] + x.v[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
  }
  CONCLAVE_INLINE float largest(F x) {
    const auto larger = [](auto a, auto b) { return a > b ? a : b; };
    const F4 four = larger(larger(x.v[0], x.v[2]), larger(x.v[1], x.v[3]));
    return larger(larger(four[0], four[2]), larger(four[1], four[3]));
  }

  // Sums, differences and products wrap around.
  CONCLAVE_INLINE I izero() { return I{}; }
  CONCLAVE_INLINE I iset1(std::int32_t x) {
    return parts<I>([&](int) __attribute__((always_inline)) { return I4{x, x, x, x}; });
  }
  // (Through memcpy g++ would copy levels to the stack and load them from there.)
  typedef std::int32_t Anywhere __attribute__((vector_size(16), aligned(1), may_alias));
  CONCLAVE_INLINE I iload(const void* p) {
    return parts<I>([&](int i) __attribute__((always_inline))->I4 { return static_cast<const Anywhere*>(p)[i]; });
  }
  CONCLAVE_INLINE void istore(void* p, I x) { std::memcpy(p, &x, sizeof x); }
  CONCLAVE_INLINE I iadd(I a, I b) {
    return parts<I>([&](int i) __attribute__((always_inline)) {
      return std::bit_cast<I4>(std::bit_cast<U4>(a.v[i]) + std::bit_cast<U4>(b.v[i]));
    });
  }
  CONCLAVE_INLINE I isub(I a, I b) {
    return parts<I>([&](int i) __attribute__((always_inline)) {
      return std::bit_cast<I4>(std::bit_cast<U4>(a.v[i]) - std::bit_cast<U4>(b.v[i]));
    });
  }
  CONCLAVE_INLINE I imul(I a, I b) {
    return parts<I>([&](int i) __attribute__((always_inline)) {
      return std::bit_cast<I4>(std::bit_cast<U4>(a.v[i]) * std::bit_cast<U4>(b.v[i]));
    });
  }
  CONCLAVE_INLINE I iand(I a, I b) {
    return parts<I>([&](int i) __attribute__((always_inline)) { return a.v[i] & b.v[i]; });
  }
  CONCLAVE_INLINE I ior(I a, I b) {
    return parts<I>([&](int i) __attribute__((always_inline)) { return a.v[i] | b.v[i]; });
  }
  CONCLAVE_INLINE I ixor(I a, I b) {
    return parts<I>([&](int i) __attribute__((always_inline)) { return a.v[i] ^ b.v[i]; });
  }
  template <int n>
  CONCLAVE_INLINE I shl(I x) {
    return parts<I>([&](int i)
                        __attribute__((always_inline)) { return std::bit_cast<I4>(std::bit_cast<U4>(x.v[i]) << n); });
  }
  template <int n>
  CONCLAVE_INLINE I shr(I x) {  // logical
    return parts<I>([&](int i)
                        __attribute__((always_inline)) { return std::bit_cast<I4>(std::bit_cast<U4>(x.v[i]) >> n); });
  }
  template <int n>
  CONCLAVE_INLINE I sar(I x) {  // arithmetic
    return parts<I>([&](int i) __attribute__((always_inline)) { return x.v[i] >> n; });
  }
  // The lower 16 bits of each lane, which are an f16.
  CONCLAVE_INLINE F half_low(I x) {
    return lanes([&](int i) __attribute__((always_inline)) {
      return f16_to_f32(static_cast<std::uint16_t>(x.v[i / 4][i % 4]));
    });
  }
  // Each byte (0 to 15) replaced by that entry of the table.
  CONCLAVE_INLINE I lookup16(I index, const std::int8_t* table) {
    std::int8_t bytes[64];
    istore(bytes, index);
    for (int i = 0; i < 64; ++i) bytes[i] = table[bytes[i]];
    return iload(bytes);
  }
  // Four bytes at p in every lane.
  CONCLAVE_INLINE I bcast(const void* p) {
    std::int32_t x;
    std::memcpy(&x, p, sizeof x);
    return iset1(x);
  }
  // acc[n] + sum over j = 0..3 of levels[4n + j] * x[4n + j]; levels 0 to 127, x -127 to 127. dot_signed() also takes
  // levels -128 to 127, to which kBias has been added.
  CONCLAVE_INLINE I dot(I acc, I levels, I x) { return dot_signed(acc, levels, x); }
  CONCLAVE_INLINE I dot_signed(I acc, I levels, I x) {
    const N two = parts<N>([&](int i) __attribute__((always_inline)) {  // at most 2 * 128 * 127
      const S8 w = std::bit_cast<S8>(levels.v[i]);
      const S8 v = std::bit_cast<S8>(x.v[i]);
      return ((w << 8) >> 8) * ((v << 8) >> 8) + (w >> 8) * (v >> 8);
    });
    return iadd(acc, widen(two));
  }
  CONCLAVE_INLINE N narrow_zero() { return N{}; }
  CONCLAVE_INLINE N narrow_dot(N acc, I levels, I x) {  // levels 0 to 127
    return parts<N>([&](int i) __attribute__((always_inline)) {
      const S8 w = std::bit_cast<S8>(levels.v[i]);
      const S8 v = std::bit_cast<S8>(x.v[i]);
      return acc.v[i] + (w & 0xFF) * ((v << 8) >> 8) + (w >> 8) * (v >> 8);
    });
  }
  CONCLAVE_INLINE I widen(N acc) {
    return parts<I>([&](int i) __attribute__((always_inline)) {
      const I4 pair = std::bit_cast<I4>(acc.v[i]);
      return (pair >> 16) + ((pair << 16) >> 16);
    });
  }
  // acc[n] + pairs[2n] * x[2n] + pairs[2n + 1] * x[2n + 1] over 16-bit halves.
  CONCLAVE_INLINE I dot16(I acc, I pairs, I x) {
    return parts<I>([&](int i) __attribute__((always_inline)) {
      const I4 a = pairs.v[i];
      const I4 b = x.v[i];
      return acc.v[i] + (a >> 16) * (b >> 16) + ((a << 16) >> 16) * ((b << 16) >> 16);
    });
  }
  // Lanes within -128 .. 127, as 16 bytes.
  CONCLAVE_INLINE void narrow(std::int8_t* p, I x) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(x.v[i / 4][i % 4]);
  }

  // Lane n: the four bytes at column[n] + offset.
  CONCLAVE_INLINE I load_columns(const std::byte* const* column, std::int64_t offset) {
    std::int32_t x[16];
    for (int n = 0; n < 16; ++n) std::memcpy(&x[n], column[n] + offset, sizeof x[n]);
    return iload(x);
  }
  // The same at offset, offset + 4, offset + 8 and offset + 12.
  CONCLAVE_INLINE void load_columns4(const std::byte* const* column, std::int64_t offset, I* out) {
    for (int j = 0; j < 4; ++j) out[j] = load_columns(column, offset + 4 * j);
  }
  CONCLAVE_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
};

#undef CONCLAVE_INLINE

}  // namespace conclave
