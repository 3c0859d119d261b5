// Scratch memory laid out before anything is allocated: every part aligned, every sum checked.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/checked.h"
#include "base/fail.h"

namespace conclave {

class ScratchLayout {
 public:
  // `count` elements of `bytes` each; returns where they start.
  std::int64_t add(std::int64_t count, std::int64_t bytes) {
    const auto size = checked_mul(count, bytes);
    const auto padded = size ? checked_add<std::int64_t>(*size, kAlignment - 1) : std::nullopt;
    const auto end = padded ? checked_add(end_, *padded / kAlignment * kAlignment) : std::nullopt;
    if (!end) fail(ErrorCode::out_of_memory, "scratch of {} times {} bytes does not fit into memory", count, bytes);
    const std::int64_t begin = end_;
    end_ = *end;
    return begin;
  }
  template <class Element>
  std::int64_t add(std::int64_t count) {
    return add(count, static_cast<std::int64_t>(sizeof(Element)));
  }
  std::int64_t bytes() const { return end_; }

 private:
  static constexpr std::int64_t kAlignment = 256;
  std::int64_t end_ = 0;
};

template <class Element>
Element* scratch_at(std::byte* base, std::int64_t offset) {
  return reinterpret_cast<Element*>(base + offset);
}

}  // namespace conclave
