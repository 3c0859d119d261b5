// Sixteen lanes in plain C++ with the compilers' vector types: what every instruction set's Vec means, and the row that
// runs anywhere. Every function gives the same bits on every row: IEEE operations, each rounded once.
//
//   F   16 floats            I   16 int32, or 64 bytes            M   16 yes-or-no
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "quant/half.h"

namespace conclave {

struct Generic {
  typedef float F __attribute__((vector_size(64)));
  typedef std::int32_t I __attribute__((vector_size(64)));
  typedef std::int32_t M __attribute__((vector_size(64)));
  typedef std::uint32_t U __attribute__((vector_size(64)));
  typedef std::int16_t S __attribute__((vector_size(64)));
  static constexpr int kMaxRows = 2;  // rows of a product tile whose sums stay in registers
  static constexpr int kBias = 0;     // added to signed levels before dot_signed()

#define CONCLAVE_INLINE [[gnu::always_inline]] static inline

  CONCLAVE_INLINE F zero() {
    return F{};
  }
  CONCLAVE_INLINE F set1(float x) {
    return x - F{};
  }
  CONCLAVE_INLINE F load(const float* p) {
    F x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  CONCLAVE_INLINE void store(float* p, F x) {
    std::memcpy(p, &x, sizeof x);
  }
  // The first n (1 to 16) lanes; the others are 0, and are not stored.
  CONCLAVE_INLINE F load_n(const float* p, std::int64_t n) {
    F x{};
    for (std::int64_t i = 0; i < n; ++i) x[i] = p[i];
    return x;
  }
  CONCLAVE_INLINE void store_n(float* p, F x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) p[i] = x[i];
  }
  CONCLAVE_INLINE F load_f16(const std::uint16_t* p) {
    F x;
    for (int i = 0; i < 16; ++i) x[i] = f16_to_f32(p[i]);
    return x;
  }
  CONCLAVE_INLINE F load_bf16(const std::uint16_t* p) {
    F x;
    for (int i = 0; i < 16; ++i) x[i] = bf16_to_f32(p[i]);
    return x;
  }
  CONCLAVE_INLINE void store_f16(std::uint16_t* p, F x) {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(x[i]);
  }
  CONCLAVE_INLINE void store_bf16(std::uint16_t* p, F x) {
    for (int i = 0; i < 16; ++i) p[i] = f32_to_bf16(x[i]);
  }

  CONCLAVE_INLINE F add(F a, F b) {
    return a + b;
  }
  CONCLAVE_INLINE F sub(F a, F b) {
    return a - b;
  }
  CONCLAVE_INLINE F mul(F a, F b) {
    return a * b;
  }
  CONCLAVE_INLINE F div(F a, F b) {
    return a / b;
  }
  CONCLAVE_INLINE F fma(F a, F b, F c) {
    F x;
    for (int i = 0; i < 16; ++i) x[i] = std::fmaf(a[i], b[i], c[i]);
    return x;
  }
  CONCLAVE_INLINE F max(F a, F b) {
    return a > b ? a : b;
  }  // b where either is NaN
  CONCLAVE_INLINE F min(F a, F b) {
    return a < b ? a : b;
  }
  CONCLAVE_INLINE F sqrt(F x) {
    for (int i = 0; i < 16; ++i) x[i] = std::sqrt(x[i]);
    return x;
  }
  CONCLAVE_INLINE F abs(F x) {
    return as_f(as_i(x) & 0x7FFFFFFF);
  }
  CONCLAVE_INLINE F round(F x) {  // to the nearest integer, ties to even
    for (int i = 0; i < 16; ++i) x[i] = std::nearbyintf(x[i]);
    return x;
  }
  CONCLAVE_INLINE M less(F a, F b) {
    return a < b;
  }
  CONCLAVE_INLINE M is_nan(F x) {
    return x != x;
  }
  CONCLAVE_INLINE F select(M m, F yes, F no) {
    return m ? yes : no;
  }
  CONCLAVE_INLINE bool any(M m) {
    int all = 0;
    for (int i = 0; i < 16; ++i) all |= m[i];
    return all != 0;
  }
  CONCLAVE_INLINE F to_f(I x) {
    return __builtin_convertvector(x, F);
  }
  // To nearest, ties to even; |x| below 2^22. The sum has its fraction rounded away by the addition itself.
  CONCLAVE_INLINE I to_i(F x) {
    return as_i(x + 0x1.8p23F) - as_i(F{} + 0x1.8p23F);
  }
  CONCLAVE_INLINE F as_f(I x) {
    return std::bit_cast<F>(x);
  }
  CONCLAVE_INLINE I as_i(F x) {
    return std::bit_cast<I>(x);
  }
  // Folded in halves: lanes i and i + 8, then i + 4, i + 2, i + 1.
  CONCLAVE_INLINE float sum(F x) {
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) x[i] += x[i + half];
    }
    return x[0];
  }
  CONCLAVE_INLINE float largest(F x) {
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) x[i] = x[i] > x[i + half] ? x[i] : x[i + half];
    }
    return x[0];
  }

  CONCLAVE_INLINE I izero() {
    return I{};
  }
  CONCLAVE_INLINE I iset1(std::int32_t x) {
    return x - I{};
  }
  CONCLAVE_INLINE I iload(const void* p) {
    I x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  CONCLAVE_INLINE void istore(void* p, I x) {
    std::memcpy(p, &x, sizeof x);
  }
  CONCLAVE_INLINE I iadd(I a, I b) {
    return a + b;
  }
  CONCLAVE_INLINE I isub(I a, I b) {
    return a - b;
  }
  CONCLAVE_INLINE I imul(I a, I b) {
    return a * b;
  }
  CONCLAVE_INLINE I iand(I a, I b) {
    return a & b;
  }
  CONCLAVE_INLINE I ior(I a, I b) {
    return a | b;
  }
  CONCLAVE_INLINE I ixor(I a, I b) {
    return a ^ b;
  }
  template <int n>
  CONCLAVE_INLINE I shl(I x) {
    return std::bit_cast<I>(std::bit_cast<U>(x) << n);
  }
  template <int n>
  CONCLAVE_INLINE I shr(I x) {  // logical
    return std::bit_cast<I>(std::bit_cast<U>(x) >> n);
  }
  template <int n>
  CONCLAVE_INLINE I sar(I x) {  // arithmetic
    return x >> n;
  }
  // The lower 16 bits of each lane, which are an f16.
  CONCLAVE_INLINE F half_low(I x) {
    F y;
    for (int i = 0; i < 16; ++i) y[i] = f16_to_f32(static_cast<std::uint16_t>(x[i]));
    return y;
  }
  // Each byte (0 to 15) replaced by that entry of the table.
  CONCLAVE_INLINE I lookup16(I index, const std::int8_t* table) {
    typedef std::int8_t B __attribute__((vector_size(64)));
    B bytes = std::bit_cast<B>(index);
    for (int i = 0; i < 64; ++i) bytes[i] = table[bytes[i]];
    return std::bit_cast<I>(bytes);
  }
  // Four bytes at p in every lane.
  CONCLAVE_INLINE I bcast(const void* p) {
    std::int32_t x;
    std::memcpy(&x, p, sizeof x);
    return iset1(x);
  }
  // acc[n] + sum over j = 0..3 of levels[4n + j] * x[4n + j]; levels 0 to 127, x -127 to 127. dot_signed() also takes
  // levels -128 to 127, to which kBias has been added.
  CONCLAVE_INLINE I dot(I acc, I levels, I x) {
    const S w = std::bit_cast<S>(levels);
    const S v = std::bit_cast<S>(x);
    const S even = (w << 8) >> 8;
    const S odd = w >> 8;
    const S two = even * ((v << 8) >> 8) + odd * (v >> 8);  // at most 2 * 128 * 127
    const I pair = std::bit_cast<I>(two);
    return acc + (pair >> 16) + ((pair << 16) >> 16);
  }
  CONCLAVE_INLINE I dot_signed(I acc, I levels, I x) {
    return dot(acc, levels, x);
  }
  // acc[n] + pairs[2n] * x[2n] + pairs[2n + 1] * x[2n + 1] over 16-bit halves.
  CONCLAVE_INLINE I dot16(I acc, I pairs, I x) {
    return acc + (pairs >> 16) * (x >> 16) + ((pairs << 16) >> 16) * ((x << 16) >> 16);
  }
  // Lanes within -128 .. 127, as 16 bytes.
  CONCLAVE_INLINE void narrow(std::int8_t* p, I x) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(x[i]);
  }

  // Lane n: the four bytes at column[n] + offset.
  CONCLAVE_INLINE I load_columns(const std::byte* const* column, std::int64_t offset) {
    I x;
    for (int n = 0; n < 16; ++n) {
      std::int32_t word;
      std::memcpy(&word, column[n] + offset, sizeof word);
      x[n] = word;
    }
    return x;
  }
  // The same at offset, offset + 4, offset + 8 and offset + 12.
  CONCLAVE_INLINE void load_columns4(const std::byte* const* column, std::int64_t offset, I* out) {
    for (int j = 0; j < 4; ++j) out[j] = load_columns(column, offset + 4 * j);
  }
  CONCLAVE_INLINE void prefetch(const void* p) {
    __builtin_prefetch(p, 0, 2);
  }

#undef CONCLAVE_INLINE
};

}  // namespace conclave
