// Memory of one device. A tensor names a buffer and an offset; an address exists only inside the backend that owns it,
// or, where the device's memory is the host's, as host().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace conclave {

class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::int64_t bytes() const { return bytes_; }
  std::byte* host() const { return host_; }  // null where the host cannot address this memory

 protected:
  Buffer(std::byte* host, std::int64_t bytes) : host_(host), bytes_(bytes) {}

 private:
  std::byte* host_;
  std::int64_t bytes_;
};

// Host memory that this process owns, aligned to 64 bytes, filled with zeros.
class HostBuffer final : public Buffer {
 public:
  static std::shared_ptr<HostBuffer> make(std::int64_t bytes);
  ~HostBuffer() override;

 private:
  using Buffer::Buffer;
};

// Host memory that somebody else keeps alive: a mapped file, a caller's vector.
class BorrowedBuffer final : public Buffer {
 public:
  BorrowedBuffer(std::byte* data, std::int64_t bytes) : Buffer(data, bytes) {}
};

}  // namespace conclave
