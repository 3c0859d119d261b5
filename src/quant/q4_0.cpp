#include "quant/q4_0.h"

#include "quant/half.h"
#include "quant/nibbles.h"
#include "quant/single_scale.h"

namespace conclave {

void decode(const BlockQ4_0& block, std::span<float, 32> out) {
  const float d = f16_to_f32(block.d);
  for (std::size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(get_nibble(block.qs, i) - 8);
}

void encode(std::span<const float, 32> values, BlockQ4_0& block) {
  // The largest magnitude may land on -8 (either sign of d), on 7, or be cut off when that suits the others.
  static constexpr std::array<double, 16> kReach = {-9.5, -9,   -8.75, -8.5, -8.25, -8,  -7.75, -7.5,
                                                    -7,   -6.5, 8,     7.5,  7.25,  7.0, 6.75,  6.5};
  const SingleScale fit = encode_single_scale(values, {-8, 7}, kReach);
  block = {.d = fit.d, .qs = {}};
  for (std::size_t i = 0; i < 32; ++i) set_nibble(block.qs, i, static_cast<std::uint8_t>(fit.levels[i] + 8));
}

}  // namespace conclave
