#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "base/fail.h"

namespace conclave {
namespace {

constexpr std::align_val_t kAlignment{64};
// From here on memory comes from the system as pages that are zero without being touched: what a large buffer holds in
// reserve (a cache for a long context, scratch for the largest batch) costs nothing until it is used.
constexpr std::int64_t kPagesFrom = 1 << 20;

void* take(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes > 0 ? bytes : 1);
  if (bytes >= kPagesFrom) {
    void* const pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
#ifdef MADV_HUGEPAGE
    // Rows of activations lie thousands of bytes apart: with small pages each would take an entry of the TLB. A wish, no
    // more: it does not matter whether the system grants it.
    ::madvise(pages, size, MADV_HUGEPAGE);
#endif
    return pages;
  }
  void* const memory = ::operator new(size, kAlignment, std::nothrow);
  if (memory != nullptr) std::memset(memory, 0, size);
  return memory;
}

}  // namespace

std::shared_ptr<HostBuffer> HostBuffer::make(std::int64_t bytes) {
  if (bytes < 0) fail(ErrorCode::invalid_argument, "a buffer of {} bytes cannot be made", bytes);
  void* const memory = take(bytes);
  if (memory == nullptr) fail(ErrorCode::out_of_memory, "no host memory for a buffer of {} bytes", bytes);
  return std::shared_ptr<HostBuffer>(new HostBuffer(static_cast<std::byte*>(memory), bytes));
}

HostBuffer::~HostBuffer() {
  if (bytes() >= kPagesFrom) {
    ::munmap(host(), static_cast<std::size_t>(bytes()));
  } else {
    ::operator delete(host(), kAlignment);
  }
}

}  // namespace conclave
