#include "quant/mxfp4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "quant/nibbles.h"

namespace conclave {
namespace {

constexpr std::array<float, 16> kDoubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int kBias = 128;          // of the halved scale: 2^(e - 128)
constexpr int kLargestScale = 254;  // 255 is e8m0's NaN: decoded as a number, but not written

float half_scale(std::uint8_t e) {
  if (e < 2) return std::bit_cast<float>(0x00200000U << e);  // 2^-128 and 2^-127: subnormal
  return std::bit_cast<float>(static_cast<std::uint32_t>(e - 1) << 23);
}

// The code whose doubled value is nearest to `x`; the smaller magnitude where two are equally near.
std::uint8_t nearest_code(double x) {
  constexpr std::array<double, 7> kMiddle = {0.5, 1.5, 2.5, 3.5, 5, 7, 10};
  const double magnitude = std::abs(x);
  int code = 0;
  for (const double middle : kMiddle) code += magnitude > middle ? 1 : 0;
  return static_cast<std::uint8_t>(code == 0 || x > 0 ? code : code + 8);
}

// In terms of the decoded f32: infinite where a code passes the largest float, so that such a scale is never chosen.
double squared_error(std::span<const float, 32> values, int e) {
  const double up = std::ldexp(1.0, kBias - e);
  const float scale = half_scale(static_cast<std::uint8_t>(e));
  double error = 0;
  for (const float value : values) {
    const double rest = static_cast<double>(value) - scale * kDoubled[nearest_code(value * up)];
    error += rest * rest;
  }
  return error;
}

}  // namespace

void decode(const BlockMxfp4& block, std::span<float, 32> out) {
  const float scale = half_scale(block.e);
  for (std::size_t i = 0; i < 32; ++i) out[i] = scale * kDoubled[get_nibble(block.qs, i)];
}

void encode(std::span<const float, 32> values, BlockMxfp4& block) {
  block = {};
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  if (largest == 0) return;

  // The scale that puts the largest magnitude into 4..8 (6 is the last value), and the ones beside it: twice that
  // avoids the cut, half of it may serve the others better.
  const int middle = std::ilogb(largest) - 2 + kBias - 1;
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int e = middle - 1; e <= middle + 1; ++e) {
    const int kept = std::clamp(e, 0, kLargestScale);
    const double error = squared_error(values, kept);
    if (error < least) {
      least = error;
      best = kept;
    }
  }
  block.e = static_cast<std::uint8_t>(best);
  const double up = std::ldexp(1.0, kBias - best);
  for (std::size_t i = 0; i < 32; ++i) set_nibble(block.qs, i, nearest_code(values[i] * up));
}

}  // namespace conclave
