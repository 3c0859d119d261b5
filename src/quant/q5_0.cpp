#include "quant/q5_0.h"

#include "quant/half.h"
#include "quant/nibbles.h"
#include "quant/single_scale.h"

namespace conclave {

void decode(const BlockQ5_0& block, std::span<float, 32> out) {
  const float d = f16_to_f32(block.d);
  for (std::size_t i = 0; i < 32; ++i) {
    const int high = (block.qh[i / 8] >> (i % 8)) & 1;
    const int level = (get_nibble(block.qs, i) | (high << 4)) - 16;
    out[i] = d * static_cast<float>(level);
  }
}

void encode(std::span<const float, 32> values, BlockQ5_0& block) {
  // As in q4_0: the largest magnitude may land on either end, or be cut off when that suits the others.
  static constexpr std::array<double, 16> kReach = {-17.5, -17,   -16.5, -16.25, -16, -15.75, -15.5, -15,
                                                    -14.5, 16.25, 15.75, 15.5,   15,  14.75,  14.5,  14};
  const SingleScale fit = encode_single_scale(values, {-16, 15}, kReach);
  block = {.d = fit.d, .qh = {}, .qs = {}};
  for (std::size_t i = 0; i < 32; ++i) {
    const auto level = static_cast<std::uint8_t>(fit.levels[i] + 16);
    set_nibble(block.qs, i, level & 0x0FU);
    block.qh[i / 8] = static_cast<std::uint8_t>(block.qh[i / 8] | (level >> 4) << (i % 8));
  }
}

}  // namespace conclave
