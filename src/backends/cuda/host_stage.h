// HostStage: some host memory that the GPU copies from and to by itself, without the driver staging what it copies and
// waiting for it. What a step is told and what it tells goes through here.
#pragma once

#include <cstddef>
#include <span>

namespace conclave::cuda {

class HostStage {
 public:
  explicit HostStage(std::size_t bytes);
  ~HostStage();
  HostStage(const HostStage&) = delete;
  HostStage& operator=(const HostStage&) = delete;

  std::size_t size() const { return size_; }
  std::size_t left() const { return size_ - used_; }
  // The next `bytes` of it, at most left(). They are the caller's until clear().
  std::span<std::byte> take(std::size_t bytes);
  // No copy is under way any more.
  void clear() { used_ = 0; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
  std::size_t used_ = 0;
};

}  // namespace conclave::cuda
