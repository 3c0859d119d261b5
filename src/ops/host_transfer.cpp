#include "ops/host_transfer.h"

#include <cstring>

#include "base/fail.h"

namespace conclave {
namespace {

std::byte* place(const Buffer& buffer, std::int64_t offset, std::size_t bytes) {
  if (buffer.host() == nullptr) fail(ErrorCode::invalid_argument, "the buffer is not in host memory");
  check_range(buffer, offset, bytes);
  return buffer.host() + offset;
}

}  // namespace

void check_range(const Buffer& buffer, std::int64_t offset, std::size_t bytes) {
  const auto size = static_cast<std::int64_t>(bytes);
  if (offset < 0 || size > buffer.bytes() || offset > buffer.bytes() - size) {
    fail(ErrorCode::invalid_argument, "{} bytes at {} are outside a buffer of {}", bytes, offset, buffer.bytes());
  }
}

void host_upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) {
  std::byte* at = place(to, offset, bytes.size());
  if (!bytes.empty()) std::memcpy(at, bytes.data(), bytes.size());
}

void host_download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) {
  const std::byte* at = place(from, offset, bytes.size());
  if (!bytes.empty()) std::memcpy(bytes.data(), at, bytes.size());
}

}  // namespace conclave
