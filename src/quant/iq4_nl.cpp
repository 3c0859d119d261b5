#include "quant/iq4_nl.h"

#include "quant/half.h"
#include "quant/iq4_levels.h"
#include "quant/nibbles.h"

namespace conclave {

void decode(const BlockIq4_NL& block, std::span<float, 32> out) {
  const float d = f16_to_f32(block.d);
  for (std::size_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(kIq4Levels[get_nibble(block.qs, i)]);
}

}  // namespace conclave
