// CUDA's errors as ours: one line with what failed and where. Host code alone.
#pragma once

#include <string_view>

namespace conclave::cuda {

// Throws an Error unless all is well: out_of_memory for memory, else device_failed. `doing` names the op and its shapes.
// Launchers give their cudaError_t as an int, so that their headers need no CUDA.
void check(int error, std::string_view doing = {}, const char* file = __builtin_FILE(), int line = __builtin_LINE());

}  // namespace conclave::cuda
