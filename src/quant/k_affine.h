// The encoder of q4_k and q5_k: 8 groups of 32 values, x[i] ~ (d * scale[g]) * level[i] - dmin * min[g].
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "quant/k_scales.h"

namespace conclave {

struct KAffine {
  std::uint16_t d = 0;     // f16, never negative
  std::uint16_t dmin = 0;  // f16; negative where every group lies above zero
  KScales scales{};
  std::array<std::uint8_t, 256> levels{};
};

// Least squared error over levels 0..max_level.
KAffine encode_k_affine(std::span<const float, 256> values, int max_level);

}  // namespace conclave
