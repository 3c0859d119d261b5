// Norms, rotation and cache write of heads in one launch; of one token attention, too. Host code alone.
#pragma once

#include <optional>

#include "backends/cuda/fusion.h"

namespace conclave::cuda {

// Where that is what the ops from `first` on are.
std::optional<FusedOps> fuse_heads(std::span<const Op> ops, std::size_t first, const Target& target);

}  // namespace conclave::cuda
