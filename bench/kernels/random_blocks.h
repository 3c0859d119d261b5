// Weights without a model: random blocks of any format, finite and of ordinary size.
#pragma once

#include <cstddef>
#include <span>

#include "support/rng.h"
#include "tensor/dtype.h"

namespace conclave::bench {

inline constexpr double kWeightSize = 0.02;  // the standard deviation that trained weights have, about

// Fills a whole number of blocks: random bits in every field, with scales that make the weights' standard deviation
// about `size` (within a factor of two: each block has a scale of its own).
void random_blocks(DType type, std::span<std::byte> blocks, double size, test::Rng& rng);

}  // namespace conclave::bench
