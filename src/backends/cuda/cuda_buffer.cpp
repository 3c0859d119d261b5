#include "backends/cuda/cuda_buffer.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "backends/cuda/cuda_check.h"
#include "base/fail.h"

namespace conclave::cuda {

std::shared_ptr<CudaBuffer> CudaBuffer::make(int device, std::int64_t bytes, CUstream_st* stream) {
  if (bytes < 0) fail(ErrorCode::invalid_argument, "cuda:{}: a buffer of {} bytes was asked for", device, bytes);
  check(cudaSetDevice(device));
  void* data = nullptr;
  // Reads of whole 16-byte words near a buffer's end stay inside what was allocated.
  const cudaError_t error = cudaMalloc(&data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)) + 16);
  if (error == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total));
    fail(ErrorCode::out_of_memory, "cuda:{}: {} bytes were asked for, and {} of {} are free", device, bytes, free,
         total);
  }
  check(error);
  const auto buffer = std::shared_ptr<CudaBuffer>(new CudaBuffer(stream, static_cast<std::byte*>(data), bytes));
  check(cudaMemsetAsync(data, 0, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)) + 16, stream));
  return buffer;
}

CudaBuffer::~CudaBuffer() {
  cudaFree(data_);
}

View view_of(const Tensor& tensor) {
  View view;
  if (!tensor.defined()) return view;
  const auto& buffer = static_cast<const CudaBuffer&>(*tensor.buffer);
  view.data = buffer.data() + tensor.byte_offset;
  view.planes = buffer.has_planes();
  view.type = tensor.dtype;
  view.rank = tensor.rank;
  std::copy(tensor.dims.begin(), tensor.dims.end(), view.dims);
  std::copy(tensor.strides.begin(), tensor.strides.end(), view.strides);
  return view;
}

std::optional<std::int64_t> even_stride(const View& v) {
  if (v.rank == 2 || (v.rank == 3 && v.dims[1] == 1)) return v.strides[0];
  if (v.rank == 3 && (v.dims[0] <= 1 || v.dims[1] == 0 || v.strides[0] == v.dims[1] * v.strides[1])) {
    return v.strides[1];
  }
  return std::nullopt;
}

std::int32_t* ints_of(const Tensor& tensor) {
  return reinterpret_cast<std::int32_t*>(view_of(tensor).data);
}

}  // namespace conclave::cuda
