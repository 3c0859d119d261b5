#include "quant/iq4_xs.h"

#include "quant/half.h"
#include "quant/iq4_levels.h"
#include "quant/nibbles.h"

namespace conclave {

void decode(const BlockIq4_XS& block, std::span<float, 256> out) {
  const float d = f16_to_f32(block.d);
  for (std::size_t g = 0; g < 8; ++g) {
    const int low = (block.scales_l[g / 2] >> (4 * (g % 2))) & 0x0F;
    const int high = (block.scales_h >> (2 * g)) & 0x03;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    for (std::size_t i = 0; i < 32; ++i) {
      out[32 * g + i] = scale * static_cast<float>(kIq4Levels[get_nibble(block.qs[g], i)]);
    }
  }
}

}  // namespace conclave
