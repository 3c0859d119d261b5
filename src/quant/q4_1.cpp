#include "quant/q4_1.h"

#include "quant/half.h"
#include "quant/nibbles.h"

namespace conclave {

void decode(const BlockQ4_1& block, std::span<float, 32> out) {
  const float d = f16_to_f32(block.d);
  const float m = f16_to_f32(block.m);
  for (std::size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(get_nibble(block.qs, i)) + m;
}

}  // namespace conclave
