#include "backends/cuda/cuda_check.h"

#include <cuda_runtime_api.h>

#include <string>

#include "base/fail.h"

namespace conclave::cuda {

void check(int status, std::string_view doing, const char* file, int line) {
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // one that can be recovered from must not be found again by the next call
  std::string_view name = file;
  name = name.substr(name.rfind('/') + 1);
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device_failed;
  fail(code, "cuda: {}{}{} ({}, {}:{})", doing, doing.empty() ? "" : ": ", cudaGetErrorString(error),
       cudaGetErrorName(error), name, line);
}

}  // namespace conclave::cuda
