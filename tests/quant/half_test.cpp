#include "quant/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace conclave {
namespace {

// The definition, in f64: (-1)^s * 2^(e - 15) * 1.m, and 2^-14 * 0.m where e is 0.
double f16_by_definition(std::uint32_t bits) {
  const double sign = (bits & 0x8000U) ? -1 : 1;
  const int exponent = static_cast<int>((bits >> 10) & 0x1FU);
  const double mantissa = (bits & 0x3FFU) / 1024.0;
  if (exponent == 0) return sign * std::ldexp(mantissa, -14);
  return sign * std::ldexp(1 + mantissa, exponent - 15);
}

bool f16_is_nan(std::uint32_t bits) {
  return (bits & 0x7FFFU) > 0x7C00U;
}

TEST(F16, WidensEveryValue) {
  int n_nan = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f16_to_f32(static_cast<std::uint16_t>(bits));
    EXPECT_EQ(std::signbit(value), (bits & 0x8000U) != 0) << bits;
    if (f16_is_nan(bits)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      ++n_nan;
    } else if ((bits & 0x7FFFU) == 0x7C00U) {
      EXPECT_TRUE(std::isinf(value)) << bits;
    } else {
      EXPECT_EQ(value, f16_by_definition(bits)) << bits;
    }
  }
  EXPECT_EQ(n_nan, 2 * 1023);
}

TEST(F16, RoundTripsEveryValue) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint16_t back = f32_to_f16(f16_to_f32(static_cast<std::uint16_t>(bits)));
    const std::uint32_t expected = f16_is_nan(bits) ? bits | 0x200U : bits;  // a NaN comes back quiet, payload kept
    EXPECT_EQ(back, expected);
  }
}

// Between each finite value and the next: the middle goes to the even one, a hair to either side goes to the nearer
// one.
TEST(F16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = f16_to_f32(static_cast<std::uint16_t>(bits));
    const float high = f16_to_f32(static_cast<std::uint16_t>(bits + 1));
    const float middle = (low + high) / 2;  // exact: one bit more than an f16 has
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const float s = sign ? -1.0F : 1.0F;
      EXPECT_EQ(f32_to_f16(s * middle), sign | even);
      EXPECT_EQ(f32_to_f16(s * std::nextafter(middle, 0.0F)), sign | bits);
      EXPECT_EQ(f32_to_f16(s * std::nextafter(middle, high)), sign | (bits + 1));
    }
  }
}

TEST(F16, OverflowsToInfinity) {
  EXPECT_EQ(f32_to_f16(65504.0F), 0x7BFF);
  EXPECT_EQ(f32_to_f16(std::nextafter(65520.0F, 0.0F)), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(f32_to_f16(-65520.0F), 0xFC00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7C00);
}

TEST(F16, UnderflowsToSignedZero) {
  EXPECT_EQ(f32_to_f16(0x1p-25F), 0x0000);  // the middle of 0 and 2^-24: even
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25F, 1.0F)), 0x0001);
  EXPECT_EQ(f32_to_f16(-0x1p-26F), 0x8000);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(F16, NanStaysNan) {
  for (const std::uint32_t bits : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0x7FFFFFFFU}) {
    const std::uint16_t half = f32_to_f16(std::bit_cast<float>(bits));
    EXPECT_TRUE(f16_is_nan(half)) << bits;
    EXPECT_EQ(half >> 15, bits >> 31);
  }
}

TEST(Bf16, RoundTripsEveryValue) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool nan = (bits & 0x7FFFU) > 0x7F80U;
    EXPECT_EQ(f32_to_bf16(bf16_to_f32(static_cast<std::uint16_t>(bits))), nan ? bits | 0x40U : bits);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const std::uint32_t middle = (bits << 16) | 0x8000U;
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(middle)), bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(middle - 1)), bits);
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(middle + 1)), bits + 1);
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x80000000U | (middle + 1))), 0x8000U | (bits + 1));
  }
}

TEST(Bf16, NanStaysNanWhenItsPayloadIsCutOff) {
  const std::uint16_t bits = f32_to_bf16(std::bit_cast<float>(0x7F800001U));
  EXPECT_EQ(bits, 0x7FC0);
  EXPECT_TRUE(std::isnan(bf16_to_f32(bits)));
}

}  // namespace
}  // namespace conclave
