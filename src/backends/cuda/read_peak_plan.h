// For benchmarks: how fast this GPU reads its memory.
#pragma once

#include "backends/cuda/view.h"

namespace conclave::cuda {

// Reads `bytes` (a multiple of 16) as wide as it goes; *sink depends on all of them.
int launch_read(const std::byte* from, std::int64_t bytes, std::uint32_t* sink, int multiprocessors,
                const Stream& stream);

}  // namespace conclave::cuda
