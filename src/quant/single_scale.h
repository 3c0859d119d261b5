// The encoder of a block of 32 under one f16 scale: q4_0, q5_0 and q8_0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/level_fit.h"

namespace conclave {

struct SingleScale {
  std::uint16_t d = 0;  // f16
  std::array<std::int8_t, 32> levels{};
};

// x[i] ~ d * levels[i], levels in `range`, least squared error. `reach`: the levels (signed, fractions too) on which
// the value of largest magnitude lands in the scales to start from.
SingleScale encode_single_scale(std::span<const float, 32> values, LevelRange range, std::span<const double> reach);

}  // namespace conclave
