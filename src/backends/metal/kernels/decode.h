// Weights of every format as f32: bit for bit what src/quant decodes, which also has the pictures of the blocks.
//
// decode_weight() is one weight of any format; a Format decodes kUnit weights of its own at a time, from blocks whose
// fields are read as bytes, or as the 16-bit words that blocks of even size have at even offsets. A row needs the alignment
// of its type and no more.
#pragma once

#include "backends/metal/kernels/kernel.h"

static inline float half_at(const device uchar* block, int i) {
  return float(*(const device half*)(block + i));
}
static inline int signed_at(const device uchar* block, int i) {
  return int(((const device char*)block)[i]);
}
// Level i of the 32 in 16 bytes (quant/nibbles.h).
static inline int nibble_at(const device uchar* qs, int i) {
  return (qs[i % 16] >> (4 * (i / 16))) & 0x0F;
}

// The 16 levels of quant/iq4_levels.h, eight to a word: a table in registers.
static inline float iq4_level(int index) {
  const ulong levels = index < 8 ? 0xF6EADDCFBFAD9881ul : 0x7159453526190D01ul;
  return float(char((levels >> (8 * (index % 8))) & 0xFF));
}

// Twice an e2m1 number, an integer; minus zero is plus zero.
static inline float mxfp4_doubled(int code) {
  const int magnitude = int((0xC8643210u >> (4 * (code % 8))) & 0x0F);
  return float(code < 8 ? magnitude : -magnitude);
}
// 2^(e - 128): subnormal for 0 and 1.
static inline float mxfp4_half_scale(int e) {
  return as_type<float>(e < 2 ? 0x00200000u << e : uint(e - 1) << 23);
}

// Group g's 6-bit scale and minimum in the 12 bytes of quant/k_scales.h.
struct KScale {
  float scale;
  float minimum;
};
static inline KScale k_scale_at(const device uchar* packed, int g) {
  if (g < 4) return {float(packed[g] & 0x3F), float(packed[g + 4] & 0x3F)};
  const int low = packed[g + 4];
  return {float((low & 0x0F) | ((packed[g - 4] >> 6) << 4)), float((low >> 4) | ((packed[g] >> 6) << 4))};
}

// Weight i of a block, one function per format.
static inline float q4_0_weight(const device uchar* b, int i) {
  return half_at(b, 0) * float(nibble_at(b + 2, i) - 8);
}
static inline float q4_1_weight(const device uchar* b, int i) {
  return half_at(b, 0) * float(nibble_at(b + 4, i)) + half_at(b, 2);
}
static inline float q5_0_weight(const device uchar* b, int i) {
  const int high = (b[2 + i / 8] >> (i % 8)) & 1;
  return half_at(b, 0) * float((nibble_at(b + 6, i) | (high << 4)) - 16);
}
static inline float q5_1_weight(const device uchar* b, int i) {
  const int high = (b[4 + i / 8] >> (i % 8)) & 1;
  return half_at(b, 0) * float(nibble_at(b + 8, i) | (high << 4)) + half_at(b, 2);
}
static inline float q8_0_weight(const device uchar* b, int i) {
  return float(signed_at(b, 2 + i)) * half_at(b, 0);
}
static inline float q2_k_weight(const device uchar* b, int i) {
  const int packed = b[i / 16];
  const float scale = half_at(b, 80) * float(packed & 0x0F);
  const float minimum = half_at(b, 82) * float(packed >> 4);
  const int level = (b[16 + 32 * (i / 128) + i % 32] >> (2 * ((i / 32) % 4))) & 3;
  return scale * float(level) - minimum;
}
static inline float q3_k_weight(const device uchar* b, int i) {
  const int g = i / 16;
  const int scale_low = (b[96 + g % 8] >> (4 * (g / 8))) & 0x0F;
  const int scale_high = (b[104 + g % 4] >> (2 * (g / 4))) & 3;
  const float scale = half_at(b, 108) * float((scale_low | (scale_high << 4)) - 32);
  const int low = (b[32 + 32 * (i / 128) + i % 32] >> (2 * ((i / 32) % 4))) & 3;
  const bool high = ((b[i % 32] >> (i / 32)) & 1) != 0;
  return scale * float(high ? low : low - 4);
}
static inline float q4_k_weight(const device uchar* b, int i) {
  const int g = i / 32;
  const KScale k = k_scale_at(b + 4, g);
  const int level = (b[16 + 32 * (g / 2) + i % 32] >> (4 * (g % 2))) & 0x0F;
  return half_at(b, 0) * k.scale * float(level) - half_at(b, 2) * k.minimum;
}
static inline float q5_k_weight(const device uchar* b, int i) {
  const int g = i / 32;
  const KScale k = k_scale_at(b + 4, g);
  const int low = (b[48 + 32 * (g / 2) + i % 32] >> (4 * (g % 2))) & 0x0F;
  const int high = (b[16 + i % 32] >> g) & 1;
  return half_at(b, 0) * k.scale * float(low | (high << 4)) - half_at(b, 2) * k.minimum;
}
static inline float q6_k_weight(const device uchar* b, int i) {
  const int part = i / 128;
  const int low = (b[64 * part + i % 64] >> (4 * ((i / 64) % 2))) & 0x0F;
  const int high = (b[128 + 32 * part + i % 32] >> (2 * ((i / 32) % 4))) & 3;
  return half_at(b, 208) * float(signed_at(b, 192 + i / 16)) * float((low | (high << 4)) - 32);
}
static inline float iq4_nl_weight(const device uchar* b, int i) {
  return half_at(b, 0) * iq4_level(nibble_at(b + 2, i));
}
static inline float iq4_xs_weight(const device uchar* b, int i) {
  const int g = i / 32;
  const int low = (b[4 + g / 2] >> (4 * (g % 2))) & 0x0F;
  const int high = (int(*(const device ushort*)(b + 2)) >> (2 * g)) & 3;
  return half_at(b, 0) * float((low | (high << 4)) - 32) * iq4_level(nibble_at(b + 8 + 16 * g, i % 32));
}
static inline float mxfp4_weight(const device uchar* b, int i) {
  return mxfp4_half_scale(b[0]) * mxfp4_doubled(nibble_at(b + 1, i));
}

// Element k of a row of any weight type.
static inline float decode_weight(int type, const device uchar* row, long k) {
  const int at_32 = int(k % 32);
  const int at_256 = int(k % 256);
  switch (type) {
    case kQ4_0:
      return q4_0_weight(row + k / 32 * 18, at_32);
    case kQ4_1:
      return q4_1_weight(row + k / 32 * 20, at_32);
    case kQ5_0:
      return q5_0_weight(row + k / 32 * 22, at_32);
    case kQ5_1:
      return q5_1_weight(row + k / 32 * 24, at_32);
    case kQ8_0:
      return q8_0_weight(row + k / 32 * 34, at_32);
    case kQ2_K:
      return q2_k_weight(row + k / 256 * 84, at_256);
    case kQ3_K:
      return q3_k_weight(row + k / 256 * 110, at_256);
    case kQ4_K:
      return q4_k_weight(row + k / 256 * 144, at_256);
    case kQ5_K:
      return q5_k_weight(row + k / 256 * 176, at_256);
    case kQ6_K:
      return q6_k_weight(row + k / 256 * 210, at_256);
    case kIQ4_NL:
      return iq4_nl_weight(row + k / 32 * 18, at_32);
    case kIQ4_XS:
      return iq4_xs_weight(row + k / 256 * 136, at_256);
    case kMXFP4:
      return mxfp4_weight(row + k / 32 * 17, at_32);
    default:
      return load_float(type, row, k);
  }
}

// Formats. unpack(type, row, k, n, out): weights k .. k + 15 of a row, k a multiple of 16; those from k + n on are 0. Only
// rows of plain numbers can end inside of a unit.
struct Plain32 {
  static void unpack(int, const device uchar* row, long k, int n, thread float* out) {
    const device float* from = (const device float*)row + k;
    for (int i = 0; i < kUnit; ++i) out[i] = i < n ? from[i] : 0.0f;
  }
};
struct Plain16 {
  static void unpack(int, const device uchar* row, long k, int n, thread float* out) {
    const device half* from = (const device half*)row + k;
    for (int i = 0; i < kUnit; ++i) out[i] = i < n ? float(from[i]) : 0.0f;
  }
};
struct PlainB16 {
  static void unpack(int, const device uchar* row, long k, int n, thread float* out) {
    const device ushort* from = (const device ushort*)row + k;
    for (int i = 0; i < kUnit; ++i) out[i] = i < n ? bf16_to_float(from[i]) : 0.0f;
  }
};

// Sixteen 4-bit levels, from the low or the high nibbles of 16 bytes, times a scale, less a minimum.
static inline void unpack_nibbles(const device uchar* qs, int shift, float scale, float less, thread float* out) {
  const device ushort* words = (const device ushort*)qs;
  for (int i = 0; i < 8; ++i) {
    const int word = words[i];
    out[2 * i] = scale * float((word >> shift) & 0x0F) - less;
    out[2 * i + 1] = scale * float((word >> (shift + 8)) & 0x0F) - less;
  }
}

struct Q4_0 {
  static void unpack(int, const device uchar* row, long k, int, thread float* out) {
    const device uchar* b = row + k / 32 * 18;
    const float d = half_at(b, 0);
    const device ushort* words = (const device ushort*)(b + 2);
    const int shift = k % 32 == 0 ? 0 : 4;
    for (int i = 0; i < 8; ++i) {
      const int word = words[i];
      out[2 * i] = d * float(((word >> shift) & 0x0F) - 8);
      out[2 * i + 1] = d * float(((word >> (shift + 8)) & 0x0F) - 8);
    }
  }
};
struct Q8_0 {
  static void unpack(int, const device uchar* row, long k, int, thread float* out) {
    const device uchar* b = row + k / 32 * 34;
    const float d = half_at(b, 0);
    const device ushort* words = (const device ushort*)(b + 2 + k % 32);
    for (int i = 0; i < 8; ++i) {
      const int word = words[i];
      out[2 * i] = float(char(word & 0xFF)) * d;
      out[2 * i + 1] = float(char(word >> 8)) * d;
    }
  }
};
struct Mxfp4 {
  static void unpack(int, const device uchar* row, long k, int, thread float* out) {
    const device uchar* b = row + k / 32 * 17;
    const float scale = mxfp4_half_scale(b[0]);
    const int shift = k % 32 == 0 ? 0 : 4;
    for (int i = 0; i < 16; ++i) out[i] = scale * mxfp4_doubled((b[1 + i] >> shift) & 0x0F);
  }
};
struct Q4_K {
  static void unpack(int, const device uchar* row, long k, int, thread float* out) {
    const device uchar* b = row + k / 256 * 144;
    const int i = int(k % 256);
    const int g = i / 32;
    const KScale s = k_scale_at(b + 4, g);
    unpack_nibbles(b + 16 + 32 * (g / 2) + i % 32, 4 * (g % 2), half_at(b, 0) * s.scale, half_at(b, 2) * s.minimum,
                   out);
  }
};
struct Q5_K {
  static void unpack(int, const device uchar* row, long k, int, thread float* out) {
    const device uchar* b = row + k / 256 * 176;
    const int at = int(k % 256);
    const int g = at / 32;
    const KScale s = k_scale_at(b + 4, g);
    const float scale = half_at(b, 0) * s.scale;
    const float less = half_at(b, 2) * s.minimum;
    const int shift = 4 * (g % 2);
    const device ushort* low = (const device ushort*)(b + 48 + 32 * (g / 2) + at % 32);
    const device ushort* high = (const device ushort*)(b + 16 + at % 32);
    for (int i = 0; i < 8; ++i) {
      const int four = low[i] >> shift;
      const int fifth = high[i] >> g;
      out[2 * i] = scale * float((four & 0x0F) | ((fifth & 1) << 4)) - less;
      out[2 * i + 1] = scale * float(((four >> 8) & 0x0F) | (((fifth >> 8) & 1) << 4)) - less;
    }
  }
};
struct Q6_K {
  static void unpack(int, const device uchar* row, long k, int, thread float* out) {
    const device uchar* b = row + k / 256 * 210;
    const int at = int(k % 256);
    const int part = at / 128;
    const float scale = half_at(b, 208) * float(signed_at(b, 192 + at / 16));
    const device ushort* low = (const device ushort*)(b + 64 * part + at % 64);
    const device ushort* high = (const device ushort*)(b + 128 + 32 * part + at % 32);
    const int shift = 4 * ((at / 64) % 2);
    const int high_shift = 2 * ((at / 32) % 4);
    for (int i = 0; i < 8; ++i) {
      const int four = low[i] >> shift;
      const int two = high[i] >> high_shift;
      out[2 * i] = scale * float(((four & 0x0F) | ((two & 3) << 4)) - 32);
      out[2 * i + 1] = scale * float((((four >> 8) & 0x0F) | (((two >> 8) & 3) << 4)) - 32);
    }
  }
};
// Every other format, weight by weight: slower, and right.
struct AnyFormat {
  static void unpack(int type, const device uchar* row, long k, int n, thread float* out) {
    for (int i = 0; i < kUnit; ++i) out[i] = i < n ? decode_weight(type, row, k + i) : 0.0f;
  }
};
