#include "quant/q5_0.h"

#include "quant/half.h"
#include "quant/nibbles.h"

namespace conclave {

void decode(const BlockQ5_0& block, std::span<float, 32> out) {
  const float d = f16_to_f32(block.d);
  for (std::size_t i = 0; i < 32; ++i) {
    const int high = (block.qh[i / 8] >> (i % 8)) & 1;
    const int level = (get_nibble(block.qs, i) | (high << 4)) - 16;
    out[i] = d * static_cast<float>(level);
  }
}

}  // namespace conclave
