#include "quant/q2_k.h"

#include "quant/half.h"

namespace conclave {

void decode(const BlockQ2_K& block, std::span<float, 256> out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::uint8_t packed = block.scales[i / 16];
    const float scale = d * static_cast<float>(packed & 0x0F);
    const float min = dmin * static_cast<float>(packed >> 4);
    const int level = (block.qs[32 * (i / 128) + i % 32] >> (2 * ((i / 32) % 4))) & 3;
    out[i] = scale * static_cast<float>(level) - min;
  }
}

}  // namespace conclave
