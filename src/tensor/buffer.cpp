#include "tensor/buffer.h"

#include <cstring>
#include <new>

#include "base/fail.h"

namespace conclave {
namespace {
constexpr std::align_val_t kAlignment{64};
}

std::shared_ptr<HostBuffer> HostBuffer::make(std::int64_t bytes) {
  if (bytes < 0) fail(ErrorCode::invalid_argument, "a buffer of {} bytes cannot be made", bytes);
  const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  void* memory = ::operator new(size, kAlignment, std::nothrow);
  if (memory == nullptr) fail(ErrorCode::out_of_memory, "no host memory for a buffer of {} bytes", bytes);
  std::memset(memory, 0, size);
  return std::shared_ptr<HostBuffer>(new HostBuffer(static_cast<std::byte*>(memory), bytes));
}

HostBuffer::~HostBuffer() {
  ::operator delete(host(), kAlignment);
}

}  // namespace conclave
