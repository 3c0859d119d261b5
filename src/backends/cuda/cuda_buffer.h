// Memory of a GPU, and tensors in it as kernels see them.
#pragma once

#include <memory>
#include <optional>

#include "backends/cuda/view.h"
#include "tensor/tensor.h"

namespace conclave::cuda {

class CudaBuffer final : public Buffer {
 public:
  // `device`: which GPU it lies on. Filled with zeros by the stream, as everything else is done there. Throws
  // Error(out_of_memory) with what was asked for and what is free.
  static std::shared_ptr<CudaBuffer> make(int device, std::int64_t bytes, CUstream_st* stream);
  ~CudaBuffer() override;

  std::byte* data() const { return data_; }
  CUstream_st* stream() const { return stream_; }
  // Whether what lies in it is weights as prepare() lays them out (weight_planes.h).
  bool has_planes() const { return planes_; }
  void set_planes() { planes_ = true; }

 private:
  CudaBuffer(CUstream_st* stream, std::byte* data, std::int64_t bytes)
      : Buffer(nullptr, bytes), stream_(stream), data_(data) {}

  CUstream_st* stream_;
  std::byte* data_;
  bool planes_ = false;
};

// A tensor that was not given has no data. Its buffer must be a CudaBuffer: Device::compile() has seen to that.
View view_of(const Tensor& tensor);
// Bytes from row to row, where all innermost rows of a tensor of rank 2 or 3 lie evenly.
std::optional<std::int64_t> even_stride(const View& v);
// The address of a tensor's first element; null where it was not given.
template <class T>
T* data_of(const Tensor& tensor) {
  return reinterpret_cast<T*>(view_of(tensor).data);
}
std::int32_t* ints_of(const Tensor& tensor);

}  // namespace conclave::cuda
