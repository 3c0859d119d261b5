// Sixteen columns of a block format, one chunk of 256 weights each, unpacked for the product kernels: levels as bytes in
// the order [k / 4][column][k % 4], and what multiplies their sums. One unpack per format, for every vector type: the
// formats' bits are drawn in src/quant.
//
// Nothing here reads past the last byte of a block, which may be the last byte of a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backends/cpu/product_kernels.h"

namespace conclave {

struct WeightTile {
  alignas(64) std::uint8_t level[64][64];   // [k / 4][column * 4 + k % 4]
  alignas(64) std::int32_t scale[16][16];   // [group][column]: superblocks' integer scales
  alignas(64) std::int16_t fold[8][16][2];  // [pair of groups][column][group]: what multiplies sums of activations
  alignas(64) float d[8][16];               // [block][column]; superblocks have one
  alignas(64) float m[8][16];               // minimum's factor (q2_k q4_k q5_k), or the block's minimum (q4_1 q5_1)
};

// What a format's weights are: superblocks with integer scales per group, or blocks of 32 with a scale each.
//   kOffset   what a level stands above its value; kSigned levels have V::kBias added instead
template <class V>
struct Unpack {
  using F = typename V::F;
  using I = typename V::I;
  using Columns = const std::byte* const*;

  [[gnu::always_inline]] static inline void put(WeightTile& t, int at, I level) { V::istore(t.level[at], level); }
  [[gnu::always_inline]] static inline I mask(I x, std::int32_t bits) { return V::iand(x, V::iset1(bits)); }
  [[gnu::always_inline]] static inline I biased(I x) {
    if constexpr (V::kBias == 128) return V::ixor(x, V::iset1(static_cast<std::int32_t>(0x80808080U)));
    return x;
  }
  // Byte b of each lane, unsigned or signed.
  template <int b>
  [[gnu::always_inline]] static inline I byte_of(I x) {
    return mask(V::template shr<8 * b>(x), 0xFF);
  }
  template <int b>
  [[gnu::always_inline]] static inline I signed_byte_of(I x) {
    return V::template sar<24>(V::template shl<24 - 8 * b>(x));
  }
  // Two lanes of integers as 16-bit halves: what dot16() takes.
  [[gnu::always_inline]] static inline I halves(I low, I high) {
    return V::ior(mask(low, 0xFFFF), V::template shl<16>(high));
  }

  // q4_k and q5_k: d, dmin and the 12 bytes of k_scales.h.
  [[gnu::always_inline]] static inline void k_header(Columns w, WeightTile& t) {
    I head[4];
    V::load_columns4(w, 0, head);
    V::store(t.d[0], V::half_low(head[0]));
    V::store(t.m[0], V::half_low(V::template shr<16>(head[0])));
    const I scale_low = mask(head[1], 0x3F3F3F3F);
    const I min_low = mask(head[2], 0x3F3F3F3F);
    const I scale_high = V::ior(mask(head[3], 0x0F0F0F0F), mask(V::template shr<2>(head[1]), 0x30303030));
    const I min_high =
        V::ior(mask(V::template shr<4>(head[3]), 0x0F0F0F0F), mask(V::template shr<2>(head[2]), 0x30303030));
    V::istore(t.scale[0], byte_of<0>(scale_low));
    V::istore(t.scale[1], byte_of<1>(scale_low));
    V::istore(t.scale[2], byte_of<2>(scale_low));
    V::istore(t.scale[3], byte_of<3>(scale_low));
    V::istore(t.scale[4], byte_of<0>(scale_high));
    V::istore(t.scale[5], byte_of<1>(scale_high));
    V::istore(t.scale[6], byte_of<2>(scale_high));
    V::istore(t.scale[7], byte_of<3>(scale_high));
    V::istore(t.fold[0], halves(byte_of<0>(min_low), byte_of<1>(min_low)));
    V::istore(t.fold[1], halves(byte_of<2>(min_low), byte_of<3>(min_low)));
    V::istore(t.fold[2], halves(byte_of<0>(min_high), byte_of<1>(min_high)));
    V::istore(t.fold[3], halves(byte_of<2>(min_high), byte_of<3>(min_high)));
  }

  static void q4_k(Columns w, WeightTile& t) {
    k_header(w, t);
    for (int c = 0; c < 4; ++c) {
      I packed[8];
      V::load_columns4(w, 16 + 32 * c, packed);
      V::load_columns4(w, 32 + 32 * c, packed + 4);
      for (int j = 0; j < 8; ++j) {
        put(t, 16 * c + j, mask(packed[j], 0x0F0F0F0F));
        put(t, 16 * c + 8 + j, mask(V::template shr<4>(packed[j]), 0x0F0F0F0F));
      }
    }
  }

  template <int c>
  [[gnu::always_inline]] static inline void q5_k_pair(Columns w, WeightTile& t, const I* high) {
    I packed[8];
    V::load_columns4(w, 48 + 32 * c, packed);
    V::load_columns4(w, 64 + 32 * c, packed + 4);
    for (int j = 0; j < 8; ++j) {
      const I first = V::template shl<4>(mask(V::template shr<2 * c>(high[j]), 0x01010101));
      const I second = V::template shl<4>(mask(V::template shr<2 * c + 1>(high[j]), 0x01010101));
      put(t, 16 * c + j, V::ior(mask(packed[j], 0x0F0F0F0F), first));
      put(t, 16 * c + 8 + j, V::ior(mask(V::template shr<4>(packed[j]), 0x0F0F0F0F), second));
    }
  }
  static void q5_k(Columns w, WeightTile& t) {
    k_header(w, t);
    I high[8];
    V::load_columns4(w, 16, high);
    V::load_columns4(w, 32, high + 4);
    q5_k_pair<0>(w, t, high);
    q5_k_pair<1>(w, t, high);
    q5_k_pair<2>(w, t, high);
    q5_k_pair<3>(w, t, high);
  }

  // Sixteen signed scales, four to a lane, stored and folded.
  [[gnu::always_inline]] static inline void signed_scales(const I* packed, WeightTile& t) {
    for (int q = 0; q < 4; ++q) {
      const I s0 = signed_byte_of<0>(packed[q]);
      const I s1 = signed_byte_of<1>(packed[q]);
      const I s2 = signed_byte_of<2>(packed[q]);
      const I s3 = signed_byte_of<3>(packed[q]);
      V::istore(t.scale[4 * q], s0);
      V::istore(t.scale[4 * q + 1], s1);
      V::istore(t.scale[4 * q + 2], s2);
      V::istore(t.scale[4 * q + 3], s3);
      V::istore(t.fold[2 * q], halves(s0, s1));
      V::istore(t.fold[2 * q + 1], halves(s2, s3));
    }
  }

  template <int half>
  [[gnu::always_inline]] static inline void q6_k_half(Columns w, WeightTile& t) {
    I high[8];
    V::load_columns4(w, 128 + 32 * half, high);
    V::load_columns4(w, 144 + 32 * half, high + 4);
    for (int part = 0; part < 2; ++part) {  // bytes 32 * part of this half's ql: groups part and part + 2 of four
      I low[8];
      V::load_columns4(w, 64 * half + 32 * part, low);
      V::load_columns4(w, 64 * half + 32 * part + 16, low + 4);
      for (int j = 0; j < 8; ++j) {
        const I bits = part == 0 ? high[j] : V::template shr<2>(high[j]);
        const I upper = V::template shl<4>(mask(bits, 0x03030303));
        const I upper_next = mask(bits, 0x30303030);
        put(t, 32 * half + 8 * part + j, V::ior(mask(low[j], 0x0F0F0F0F), upper));
        put(t, 32 * half + 8 * part + 16 + j, V::ior(mask(V::template shr<4>(low[j]), 0x0F0F0F0F), upper_next));
      }
    }
  }
  [[gnu::always_inline]] static inline void q6_k_header(Columns w, WeightTile& t) {
    I scales[4];
    V::load_columns4(w, 192, scales);
    signed_scales(scales, t);
    V::store(t.d[0], V::half_low(V::template shr<16>(V::load_columns(w, 206))));
  }
  static void q6_k(Columns w, WeightTile& t) {
    q6_k_header(w, t);
    q6_k_half<0>(w, t);
    q6_k_half<1>(w, t);
  }

  // q2_k and q3_k: two bits at 2s of byte 32 * half + l.
  template <int s>
  [[gnu::always_inline]] static inline I two_bits(I packed) {
    return mask(V::template shr<2 * s>(packed), 0x03030303);
  }

  static void q2_k(Columns w, WeightTile& t) {
    I scales[4];
    V::load_columns4(w, 0, scales);
    for (int q = 0; q < 4; ++q) {
      const I scale = mask(scales[q], 0x0F0F0F0F);
      const I min = mask(V::template shr<4>(scales[q]), 0x0F0F0F0F);
      V::istore(t.scale[4 * q], byte_of<0>(scale));
      V::istore(t.scale[4 * q + 1], byte_of<1>(scale));
      V::istore(t.scale[4 * q + 2], byte_of<2>(scale));
      V::istore(t.scale[4 * q + 3], byte_of<3>(scale));
      V::istore(t.fold[2 * q], halves(byte_of<0>(min), byte_of<1>(min)));
      V::istore(t.fold[2 * q + 1], halves(byte_of<2>(min), byte_of<3>(min)));
    }
    const I factors = V::load_columns(w, 80);
    V::store(t.d[0], V::half_low(factors));
    V::store(t.m[0], V::half_low(V::template shr<16>(factors)));
    for (int half = 0; half < 2; ++half) {
      I packed[8];
      V::load_columns4(w, 16 + 32 * half, packed);
      V::load_columns4(w, 32 + 32 * half, packed + 4);
      for (int j = 0; j < 8; ++j) {
        put(t, 32 * half + j, two_bits<0>(packed[j]));
        put(t, 32 * half + 8 + j, two_bits<1>(packed[j]));
        put(t, 32 * half + 16 + j, two_bits<2>(packed[j]));
        put(t, 32 * half + 24 + j, two_bits<3>(packed[j]));
      }
    }
  }

  template <int half>
  [[gnu::always_inline]] static inline void q3_k_half(Columns w, WeightTile& t, const I* high) {
    I packed[8];
    V::load_columns4(w, 32 + 32 * half, packed);
    V::load_columns4(w, 48 + 32 * half, packed + 4);
    const auto third = [](I bit) __attribute__((always_inline)) {
      return V::template shl<2>(mask(bit, 0x01010101));
    };
    for (int j = 0; j < 8; ++j) {
      put(t, 32 * half + j, V::ior(two_bits<0>(packed[j]), third(V::template shr<4 * half>(high[j]))));
      put(t, 32 * half + 8 + j, V::ior(two_bits<1>(packed[j]), third(V::template shr<4 * half + 1>(high[j]))));
      put(t, 32 * half + 16 + j, V::ior(two_bits<2>(packed[j]), third(V::template shr<4 * half + 2>(high[j]))));
      put(t, 32 * half + 24 + j, V::ior(two_bits<3>(packed[j]), third(V::template shr<4 * half + 3>(high[j]))));
    }
  }
  static void q3_k(Columns w, WeightTile& t) {
    // Bytes 94 to 109: two of qs, the 12 of the scales, d.
    I tail[4];
    V::load_columns4(w, 94, tail);
    V::store(t.d[0], V::half_low(V::template shr<16>(tail[3])));
    const I low_first = V::ior(V::template shr<16>(tail[0]), V::template shl<16>(tail[1]));   // scales[0..3]
    const I low_second = V::ior(V::template shr<16>(tail[1]), V::template shl<16>(tail[2]));  // scales[4..7]
    const I high = V::ior(V::template shr<16>(tail[2]), V::template shl<16>(tail[3]));        // scales[8..11]
    const auto six_bits = [](I low, I two) __attribute__((always_inline)) {
      const I stored = V::ior(mask(low, 0x0F0F0F0F), V::template shl<4>(mask(two, 0x03030303)));
      // Less 32, byte by byte: 0 .. 63 has no borrow once bit 7 is set.
      return V::ixor(V::isub(V::ior(stored, V::iset1(static_cast<std::int32_t>(0x80808080U))), V::iset1(0x20202020)),
                     V::iset1(static_cast<std::int32_t>(0x80808080U)));
    };
    const I scales[4] = {six_bits(low_first, high), six_bits(low_second, V::template shr<2>(high)),
                         six_bits(V::template shr<4>(low_first), V::template shr<4>(high)),
                         six_bits(V::template shr<4>(low_second), V::template shr<6>(high))};
    signed_scales(scales, t);
    I masks[8];
    V::load_columns4(w, 0, masks);
    V::load_columns4(w, 16, masks + 4);
    q3_k_half<0>(w, t, masks);
    q3_k_half<1>(w, t, masks);
  }

  // The 16 bytes at `offset`: low nibbles are weights 0 .. 15, high nibbles 16 .. 31.
  [[gnu::always_inline]] static inline void nibbles(Columns w, std::int64_t offset, I* low, I* high) {
    I packed[4];
    V::load_columns4(w, offset, packed);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      low[j] = mask(packed[j], 0x0F0F0F0F);
      high[j] = mask(V::template shr<4>(packed[j]), 0x0F0F0F0F);
    }
  }
  // The same with levels from a table.
  [[gnu::always_inline]] static inline void looked_up(Columns w, std::int64_t offset, const std::int8_t* table,
                                                      I* level) {
    nibbles(w, offset, level, level + 4);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) level[j] = biased(V::lookup16(level[j], table));
  }
  static constexpr std::int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  static constexpr std::int8_t kMxfp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

  template <int g>
  [[gnu::always_inline]] static inline I iq4_xs_scale(I low, I high) {
    const I stored =
        V::ior(mask(V::template shr<4 * g>(low), 0x0F), V::template shl<4>(mask(V::template shr<2 * g>(high), 0x03)));
    return V::isub(stored, V::iset1(32));
  }
  static void iq4_xs(Columns w, WeightTile& t) {
    const I head = V::load_columns(w, 0);
    const I low = V::load_columns(w, 4);
    const I high = V::template shr<16>(head);
    V::store(t.d[0], V::half_low(head));
    const I s[8] = {iq4_xs_scale<0>(low, high), iq4_xs_scale<1>(low, high), iq4_xs_scale<2>(low, high),
                    iq4_xs_scale<3>(low, high), iq4_xs_scale<4>(low, high), iq4_xs_scale<5>(low, high),
                    iq4_xs_scale<6>(low, high), iq4_xs_scale<7>(low, high)};
    for (int g = 0; g < 8; ++g) {
      V::istore(t.scale[g], s[g]);
      if (g % 2 == 1) V::istore(t.fold[g / 2], halves(s[g - 1], s[g]));
      I level[8];
      looked_up(w, 8 + 16 * g, kIq4, level);
      for (int j = 0; j < 8; ++j) put(t, 8 * g + j, level[j]);
    }
  }

  // Blocks of 32, in registers.
  struct Block {
    I level[8];
    F d;
    F m;  // the minimum of those that have one
  };
  // The blocks at column offset `at`.
#define CONCLAVE_BLOCK [[gnu::always_inline]] static inline Block
  CONCLAVE_BLOCK q4_0(Columns w, std::int64_t at) {
    Block block;
    block.d = V::half_low(V::load_columns(w, at));
    nibbles(w, at + 2, block.level, block.level + 4);
    return block;
  }
  CONCLAVE_BLOCK q4_1(Columns w, std::int64_t at) {
    Block block;
    factors(V::load_columns(w, at), block);
    nibbles(w, at + 4, block.level, block.level + 4);
    return block;
  }
  CONCLAVE_BLOCK q5_0(Columns w, std::int64_t at) {
    Block block;
    block.d = V::half_low(V::load_columns(w, at));
    nibbles(w, at + 6, block.level, block.level + 4);
    add_fifths(V::load_columns(w, at + 2), block);
    return block;
  }
  CONCLAVE_BLOCK q5_1(Columns w, std::int64_t at) {
    Block block;
    factors(V::load_columns(w, at), block);
    nibbles(w, at + 8, block.level, block.level + 4);
    add_fifths(V::load_columns(w, at + 4), block);
    return block;
  }
  CONCLAVE_BLOCK q8_0(Columns w, std::int64_t at) {
    Block block;
    block.d = V::half_low(V::load_columns(w, at));
    V::load_columns4(w, at + 2, block.level);
    V::load_columns4(w, at + 18, block.level + 4);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) block.level[j] = biased(block.level[j]);
    return block;
  }
  CONCLAVE_BLOCK iq4_nl(Columns w, std::int64_t at) {
    Block block;
    block.d = V::half_low(V::load_columns(w, at));
    looked_up(w, at + 2, kIq4, block.level);
    return block;
  }
  CONCLAVE_BLOCK mxfp4(Columns w, std::int64_t at) {
    Block block;
    // 2^(e - 128), half the block's scale; below e = 2 a subnormal.
    const I e = mask(V::load_columns(w, at), 0xFF);
    const I normal = V::template shl<23>(V::isub(e, V::iset1(1)));
    const I subnormal = V::iadd(V::iset1(0x00200000), V::imul(e, V::iset1(0x00200000)));  // e is 0 or 1
    const auto is_small = V::less(V::to_f(e), V::set1(2.0F));
    block.d = V::select(is_small, V::as_f(subnormal), V::as_f(normal));
    looked_up(w, at + 1, kMxfp4Doubled, block.level);
    return block;
  }
#undef CONCLAVE_BLOCK

 private:
  [[gnu::always_inline]] static inline void factors(I head, Block& block) {
    block.d = V::half_low(head);
    block.m = V::half_low(V::template shr<16>(head));
  }
  // Bits 4j .. 4j+3 of each lane as bit 4 of the four bytes of vector j.
  template <int j>
  [[gnu::always_inline]] static inline I fifth(I bits) {
    const I four = mask(V::template shr<4 * j>(bits), 0x0F);
    return V::template shl<4>(mask(V::imul(four, V::iset1(0x00204081)), 0x01010101));
  }
  [[gnu::always_inline]] static inline void add_fifths(I bits, Block& block) {
    [&]<int... j>(std::integer_sequence<int, j...>) __attribute__((always_inline)) {
      ((block.level[j] = V::ior(block.level[j], fifth<j>(bits))), ...);
    }
    (std::make_integer_sequence<int, 8>());
  }
};

}  // namespace conclave
