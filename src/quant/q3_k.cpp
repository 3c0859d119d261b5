#include "quant/q3_k.h"

#include "quant/half.h"

namespace conclave {
namespace {

int group_scale(const BlockQ3_K& block, std::size_t g) {
  const int low = (block.scales[g % 8] >> (4 * (g / 8))) & 0x0F;
  const int high = (block.scales[8 + g % 4] >> (2 * (g / 4))) & 0x03;
  return (low | (high << 4)) - 32;
}

}  // namespace

void decode(const BlockQ3_K& block, std::span<float, 256> out) {
  const float d = f16_to_f32(block.d);
  for (std::size_t g = 0; g < 16; ++g) {
    const float scale = d * static_cast<float>(group_scale(block, g));
    for (std::size_t i = 16 * g; i < 16 * (g + 1); ++i) {
      const int low = (block.qs[32 * (i / 128) + i % 32] >> (2 * ((i / 32) % 4))) & 3;
      const int high = (block.hmask[i % 32] >> (i / 32)) & 1;
      out[i] = scale * static_cast<float>(low - (high ? 0 : 4));
    }
  }
}

}  // namespace conclave
