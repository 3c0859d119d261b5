#include "gguf/header_bytes.h"

#include <algorithm>
#include <span>

#include "base/fail.h"

namespace conclave::gguf {
namespace {

// Steps double between these, so that a small header is one small read and a large one is never read much too far.
constexpr std::uint64_t kFirstStep = 64 * 1024;
constexpr std::uint64_t kLastStep = 4 * 1024 * 1024;

}  // namespace

void HeaderBytes::resize(std::uint64_t bytes) {
  void* const moved = std::realloc(bytes_.get(), std::max<std::uint64_t>(bytes, 1));
  if (moved == nullptr) {
    fail(ErrorCode::out_of_memory, "{}: no memory for {} bytes of header", file_->shown_path(), bytes);
  }
  (void)bytes_.release();
  bytes_.reset(static_cast<std::byte*>(moved));
}

bool HeaderBytes::read_on(std::uint64_t end) {
  while (loaded_ < end) {
    const std::uint64_t step = std::clamp(loaded_, kFirstStep, kLastStep);
    const std::uint64_t count = std::min(step, file_->size() - loaded_);
    if (count == 0) return false;
    resize(loaded_ + count);
    const std::size_t got = file_->read_at(loaded_, std::span(bytes_.get() + loaded_, count));
    loaded_ += got;
    if (got < count) return loaded_ >= end;
  }
  return true;
}

void HeaderBytes::shrink_to(std::uint64_t bytes) {
  resize(bytes);
  loaded_ = bytes;
}

}  // namespace conclave::gguf
