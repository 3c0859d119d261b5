// CUDA's errors as ours: one line with what failed and where. Host code alone.
#pragma once

#include <driver_types.h>

#include <string_view>

namespace conclave::cuda {

// Throws an Error unless all is well: out_of_memory for memory, else device_failed. `doing` names the op and its shapes.
void check(cudaError_t error, std::string_view doing = {}, const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

}  // namespace conclave::cuda
