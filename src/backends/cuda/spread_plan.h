// Blocks of few rows begin while a product still runs, in the room that it leaves: many of them on a few
// multiprocessors.
#pragma once

#include <cstdint>

namespace conclave::cuda {

// Shared memory that such a block asks for and does not use: it keeps more than two of them from sharing one. Every GPU
// has so much.
inline constexpr std::int64_t kSpreadBytes = 96 * 1024;

}  // namespace conclave::cuda
