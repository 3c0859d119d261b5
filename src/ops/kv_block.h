// The cache's own q8_0 encoder: plain rounding that every backend can repeat bit for bit, where src/quant/q8_0
// searches. kv_write.h states it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "quant/half.h"
#include "quant/q8_0.h"

namespace conclave {

inline constexpr std::int64_t kKvBlock = 32;

inline BlockQ8_0 encode_kv_block(const float* x) {
  float largest = 0;
  bool finite = true;
  for (int i = 0; i < kKvBlock; ++i) {
    largest = std::max(largest, std::fabs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  BlockQ8_0 block{};
  if (!finite) {
    block.d = f32_to_f16(NAN);
    return block;
  }
  const float d = largest / 127.0F;
  const float inverse = d > 0 && std::isfinite(1.0F / d) ? 1.0F / d : 0.0F;
  block.d = f32_to_f16(d);
  for (int i = 0; i < kKvBlock; ++i) {
    // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, as nearbyint does, without a call.
    const float rounded = (x[i] * inverse + 0x1.8p23F) - 0x1.8p23F;
    block.qs[i] = static_cast<std::int8_t>(std::clamp(rounded, -127.0F, 127.0F));
  }
  return block;
}

}  // namespace conclave
