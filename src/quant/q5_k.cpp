#include "quant/q5_k.h"

#include "quant/half.h"
#include "quant/k_affine.h"

namespace conclave {

void decode(const BlockQ5_K& block, std::span<float, 256> out) {
  const float d = f16_to_f32(block.d);
  const float dmin = f16_to_f32(block.dmin);
  const KScales scales = unpack(block.scales);
  for (std::size_t g = 0; g < 8; ++g) {
    const float scale = d * static_cast<float>(scales.scale[g]);
    const float min = dmin * static_cast<float>(scales.min[g]);
    for (std::size_t l = 0; l < 32; ++l) {
      const int low = (block.qs[32 * (g / 2) + l] >> (4 * (g % 2))) & 0x0F;
      const int high = (block.qh[l] >> g) & 1;
      out[32 * g + l] = scale * static_cast<float>(low | (high << 4)) - min;
    }
  }
}

void encode(std::span<const float, 256> values, BlockQ5_K& block) {
  const KAffine fit = encode_k_affine(values, 31);
  block = {.d = fit.d, .dmin = fit.dmin, .scales = pack(fit.scales), .qh = {}, .qs = {}};
  for (std::size_t i = 0; i < 256; ++i) {
    std::uint8_t& low = block.qs[32 * (i / 64) + i % 32];
    std::uint8_t& high = block.qh[i % 32];
    low = static_cast<std::uint8_t>(low | ((fit.levels[i] & 0x0F) << (4 * ((i / 32) % 2))));
    high = static_cast<std::uint8_t>(high | ((fit.levels[i] >> 4) << (i / 32)));
  }
}

}  // namespace conclave
