// Sixteen lanes as four registers of ARMv8-A NEON: the vector type that the kernels of src/backends/cpu/kernels are
// instantiated with. isa/generic/vec.h says what each function means.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace conclave {

#define CONCLAVE_INLINE [[gnu::always_inline]] static inline
// The same for each of the four registers.
#define CONCLAVE_EACH1(f, x) \
  { f((x).a), f((x).b), f((x).c), f((x).d) }
#define CONCLAVE_EACH2(f, x, y) \
  { f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d) }
#define CONCLAVE_EACH3(f, x, y, z) \
  { f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b), f((x).c, (y).c, (z).c), f((x).d, (y).d, (z).d) }

struct Neon {
  struct F {
    float32x4_t a, b, c, d;  // lanes 0 to 3, 4 to 7, 8 to 11, 12 to 15
  };
  struct I {
    int32x4_t a, b, c, d;
  };
  struct M {
    uint32x4_t a, b, c, d;  // all ones: yes
  };
  static constexpr int kMaxRows = 2;  // rows of a product tile whose sums stay in registers
  static constexpr bool kNarrow = false;
  static constexpr int kBias = 0;  // added to signed levels before dot_signed()

  CONCLAVE_INLINE F zero() { return set1(0.0F); }
  CONCLAVE_INLINE F set1(float x) {
    const float32x4_t lanes = vdupq_n_f32(x);
    return {lanes, lanes, lanes, lanes};
  }
  CONCLAVE_INLINE F load(const float* p) {
    return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
  }
  CONCLAVE_INLINE void store(float* p, F x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
  }
  CONCLAVE_INLINE F load_n(const float* p, std::int64_t n) {
    float lanes[16] = {};
    for (std::int64_t i = 0; i < n; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  CONCLAVE_INLINE void stream(float* p, F x) { store(p, x); }
  CONCLAVE_INLINE void streamed() {}
  CONCLAVE_INLINE void store_n(float* p, F x, std::int64_t n) {
    float lanes[16];
    store(lanes, x);
    for (std::int64_t i = 0; i < n; ++i) p[i] = lanes[i];
  }
  CONCLAVE_INLINE F load_f16(const std::uint16_t* p) {
    const float16x8_t lo = vreinterpretq_f16_u16(vld1q_u16(p));
    const float16x8_t hi = vreinterpretq_f16_u16(vld1q_u16(p + 8));
    return {vcvt_f32_f16(vget_low_f16(lo)), vcvt_high_f32_f16(lo), vcvt_f32_f16(vget_low_f16(hi)),
            vcvt_high_f32_f16(hi)};
  }
  CONCLAVE_INLINE F load_bf16(const std::uint16_t* p) {
    const uint16x8_t lo = vld1q_u16(p);
    const uint16x8_t hi = vld1q_u16(p + 8);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(lo), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(lo, 16)),
            vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(hi), 16)), vreinterpretq_f32_u32(vshll_high_n_u16(hi, 16))};
  }
  CONCLAVE_INLINE void store_f16(std::uint16_t* p, F x) {
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.c), x.d)));
  }
  CONCLAVE_INLINE void store_bf16(std::uint16_t* p, F x) {
    vst1q_u16(p, vcombine_u16(bf16(x.a), bf16(x.b)));
    vst1q_u16(p + 8, vcombine_u16(bf16(x.c), bf16(x.d)));
  }

  CONCLAVE_INLINE F add(F a, F b) { return CONCLAVE_EACH2(vaddq_f32, a, b); }
  CONCLAVE_INLINE F sub(F a, F b) { return CONCLAVE_EACH2(vsubq_f32, a, b); }
  CONCLAVE_INLINE F mul(F a, F b) { return CONCLAVE_EACH2(vmulq_f32, a, b); }
  CONCLAVE_INLINE F div(F a, F b) { return CONCLAVE_EACH2(vdivq_f32, a, b); }
  CONCLAVE_INLINE F fma(F a, F b, F c) { return CONCLAVE_EACH3(vfmaq_f32, c, a, b); }
  // fmax and fmin have other rules for NaN and for zeros of both signs.
  CONCLAVE_INLINE F max(F a, F b) { return CONCLAVE_EACH2(larger, a, b); }
  CONCLAVE_INLINE F min(F a, F b) { return select(less(a, b), a, b); }
  CONCLAVE_INLINE F sqrt(F x) { return CONCLAVE_EACH1(vsqrtq_f32, x); }
  CONCLAVE_INLINE F abs(F x) { return CONCLAVE_EACH1(vabsq_f32, x); }
  CONCLAVE_INLINE M less(F a, F b) { return CONCLAVE_EACH2(vcltq_f32, a, b); }
  CONCLAVE_INLINE M is_nan(F x) {
    const M number = CONCLAVE_EACH2(vceqq_f32, x, x);
    return CONCLAVE_EACH1(vmvnq_u32, number);
  }
  CONCLAVE_INLINE F select(M m, F yes, F no) { return CONCLAVE_EACH3(vbslq_f32, m, yes, no); }
  CONCLAVE_INLINE bool any(M m) { return vmaxvq_u32(vorrq_u32(vorrq_u32(m.a, m.b), vorrq_u32(m.c, m.d))) != 0; }
  CONCLAVE_INLINE F to_f(I x) { return CONCLAVE_EACH1(vcvtq_f32_s32, x); }
  CONCLAVE_INLINE I to_i(F x) { return CONCLAVE_EACH1(vcvtnq_s32_f32, x); }
  CONCLAVE_INLINE F as_f(I x) { return CONCLAVE_EACH1(vreinterpretq_f32_s32, x); }
  CONCLAVE_INLINE I as_i(F x) { return CONCLAVE_EACH1(vreinterpretq_s32_f32, x); }
  CONCLAVE_INLINE float sum(F x) {
    const float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
  }
  CONCLAVE_INLINE float largest(F x) {
    const float32x4_t four = larger(larger(x.a, x.c), larger(x.b, x.d));
    const float32x4_t two = larger(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(larger(two, vextq_f32(two, two, 1)), 0);
  }

  CONCLAVE_INLINE I izero() { return iset1(0); }
  CONCLAVE_INLINE I iset1(std::int32_t x) {
    const int32x4_t lanes = vdupq_n_s32(x);
    return {lanes, lanes, lanes, lanes};
  }
  CONCLAVE_INLINE I iload(const void* p) {
    const auto* bytes = static_cast<const std::byte*>(p);
    return {quad(bytes), quad(bytes + 16), quad(bytes + 32), quad(bytes + 48)};
  }
  CONCLAVE_INLINE void istore(void* p, I x) {
    auto* bytes = static_cast<std::uint8_t*>(p);
    vst1q_u8(bytes, vreinterpretq_u8_s32(x.a));
    vst1q_u8(bytes + 16, vreinterpretq_u8_s32(x.b));
    vst1q_u8(bytes + 32, vreinterpretq_u8_s32(x.c));
    vst1q_u8(bytes + 48, vreinterpretq_u8_s32(x.d));
  }
  CONCLAVE_INLINE I iadd(I a, I b) { return CONCLAVE_EACH2(vaddq_s32, a, b); }
  CONCLAVE_INLINE I isub(I a, I b) { return CONCLAVE_EACH2(vsubq_s32, a, b); }
  CONCLAVE_INLINE I imul(I a, I b) { return CONCLAVE_EACH2(vmulq_s32, a, b); }
  CONCLAVE_INLINE I iand(I a, I b) { return CONCLAVE_EACH2(vandq_s32, a, b); }
  CONCLAVE_INLINE I ior(I a, I b) { return CONCLAVE_EACH2(vorrq_s32, a, b); }
  CONCLAVE_INLINE I ixor(I a, I b) { return CONCLAVE_EACH2(veorq_s32, a, b); }
  template <int n>
  CONCLAVE_INLINE I shl(I x) {
    return CONCLAVE_EACH1(shl4<n>, x);
  }
  template <int n>
  CONCLAVE_INLINE I shr(I x) {
    return CONCLAVE_EACH1(shr4<n>, x);
  }
  template <int n>
  CONCLAVE_INLINE I sar(I x) {
    return CONCLAVE_EACH1(sar4<n>, x);
  }
  CONCLAVE_INLINE F half_low(I x) { return CONCLAVE_EACH1(half_low4, x); }
  CONCLAVE_INLINE I lookup16(I index, const std::int8_t* table) {
    const int8x16_t levels = vld1q_s8(table);
    return {lookup4(index.a, levels), lookup4(index.b, levels), lookup4(index.c, levels), lookup4(index.d, levels)};
  }
  CONCLAVE_INLINE I bcast(const void* p) { return iset1(word(p)); }
  CONCLAVE_INLINE I dot(I acc, I levels, I x) { return CONCLAVE_EACH3(dot4, acc, levels, x); }
  CONCLAVE_INLINE I dot_signed(I acc, I levels, I x) { return dot(acc, levels, x); }
  CONCLAVE_INLINE I dot16(I acc, I pairs, I x) { return CONCLAVE_EACH3(dot16_4, acc, pairs, x); }
  CONCLAVE_INLINE void narrow(std::int8_t* p, I x) {
    const int16x8_t lo = vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b));
    const int16x8_t hi = vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d));
    vst1q_s8(p, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
  }

  CONCLAVE_INLINE I load_columns(const std::byte* const* column, std::int64_t offset) {
    return {four_words(column, offset), four_words(column + 4, offset), four_words(column + 8, offset),
            four_words(column + 12, offset)};
  }
  CONCLAVE_INLINE void load_columns4(const std::byte* const* column, std::int64_t offset, I* out) {
    transpose4(column, offset, out[0].a, out[1].a, out[2].a, out[3].a);
    transpose4(column + 4, offset, out[0].b, out[1].b, out[2].b, out[3].b);
    transpose4(column + 8, offset, out[0].c, out[1].c, out[2].c, out[3].c);
    transpose4(column + 12, offset, out[0].d, out[1].d, out[2].d, out[3].d);
  }
  CONCLAVE_INLINE void prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }

 private:
  CONCLAVE_INLINE float32x4_t larger(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
  CONCLAVE_INLINE uint16x4_t bf16(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t upper = vshrq_n_u32(bits, 16);
    const uint32x4_t odd = vandq_u32(upper, vdupq_n_u32(1));
    const uint16x4_t rounded = vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF))), 16);
    const uint16x4_t quiet = vorr_u16(vmovn_u32(upper), vdup_n_u16(0x40));
    return vbsl_u16(vmovn_u32(vceqq_f32(x, x)), rounded, quiet);
  }
  CONCLAVE_INLINE float32x4_t half_low4(int32x4_t x) { return vcvt_f32_f16(vreinterpret_f16_s16(vmovn_s32(x))); }
  CONCLAVE_INLINE int32x4_t lookup4(int32x4_t index, int8x16_t levels) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(levels, vreinterpretq_u8_s32(index)));
  }
  // The instructions' immediate for right shifts is 1 to 32.
  template <int n>
  CONCLAVE_INLINE int32x4_t shl4(int32x4_t x) {
    return vshlq_n_s32(x, n);
  }
  template <int n>
  CONCLAVE_INLINE int32x4_t shr4(int32x4_t x) {
    if constexpr (n == 0) {
      return x;
    } else {
      return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(x), n));
    }
  }
  template <int n>
  CONCLAVE_INLINE int32x4_t sar4(int32x4_t x) {
    if constexpr (n == 0) {
      return x;
    } else {
      return vshrq_n_s32(x, n);
    }
  }
  // Products of bytes 4n .. 4n + 3 are first summed by twos, which 16 bits hold: at most 2 * 128 * 127.
  CONCLAVE_INLINE int32x4_t dot4(int32x4_t acc, int32x4_t levels, int32x4_t x) {
    const int8x16_t w = vreinterpretq_s8_s32(levels);
    const int8x16_t v = vreinterpretq_s8_s32(x);
    const int16x8_t lo = vmull_s8(vget_low_s8(w), vget_low_s8(v));
    const int16x8_t hi = vmull_high_s8(w, v);
    return vpadalq_s16(acc, vpaddq_s16(lo, hi));
  }
  CONCLAVE_INLINE int32x4_t dot16_4(int32x4_t acc, int32x4_t pairs, int32x4_t x) {
    const int16x8_t w = vreinterpretq_s16_s32(pairs);
    const int16x8_t v = vreinterpretq_s16_s32(x);
    return vaddq_s32(acc, vpaddq_s32(vmull_s16(vget_low_s16(w), vget_low_s16(v)), vmull_high_s16(w, v)));
  }
  CONCLAVE_INLINE int32x4_t quad(const std::byte* p) {
    return vreinterpretq_s32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(p)));
  }
  CONCLAVE_INLINE std::int32_t word(const void* p) {
    std::int32_t x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  CONCLAVE_INLINE int32x4_t four_words(const std::byte* const* column, std::int64_t offset) {
    return int32x4_t{word(column[0] + offset), word(column[1] + offset), word(column[2] + offset),
                     word(column[3] + offset)};
  }
  CONCLAVE_INLINE void transpose4(const std::byte* const* column, std::int64_t offset, int32x4_t& out0, int32x4_t& out1,
                                  int32x4_t& out2, int32x4_t& out3) {
    const int32x4_t r0 = quad(column[0] + offset);
    const int32x4_t r1 = quad(column[1] + offset);
    const int32x4_t r2 = quad(column[2] + offset);
    const int32x4_t r3 = quad(column[3] + offset);
    const int64x2_t a = vreinterpretq_s64_s32(vzip1q_s32(r0, r1));
    const int64x2_t b = vreinterpretq_s64_s32(vzip1q_s32(r2, r3));
    const int64x2_t c = vreinterpretq_s64_s32(vzip2q_s32(r0, r1));
    const int64x2_t d = vreinterpretq_s64_s32(vzip2q_s32(r2, r3));
    out0 = vreinterpretq_s32_s64(vzip1q_s64(a, b));
    out1 = vreinterpretq_s32_s64(vzip2q_s64(a, b));
    out2 = vreinterpretq_s32_s64(vzip1q_s64(c, d));
    out3 = vreinterpretq_s32_s64(vzip2q_s64(c, d));
  }
};

#undef CONCLAVE_EACH3
#undef CONCLAVE_EACH2
#undef CONCLAVE_EACH1
#undef CONCLAVE_INLINE

}  // namespace conclave
