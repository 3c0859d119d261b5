// Host memory that the GPU copies from and to by itself, without the driver staging what it copies and waiting for it.
//
// HostStage is some of it that what a step is told and what it tells goes through: a ring, since one step may still be
// copied from it while the next one is filled in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave::cuda {

class PinnedBytes {
 public:
  explicit PinnedBytes(std::size_t size);
  ~PinnedBytes();
  PinnedBytes(const PinnedBytes&) = delete;
  PinnedBytes& operator=(const PinnedBytes&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_;
};

class HostStage {
 public:
  explicit HostStage(std::size_t bytes) : bytes_(bytes), ring_{.size = bytes} {}

  std::size_t size() const { return ring_.size; }
  bool has_room(std::size_t bytes) const { return ring_.has_room(bytes); }
  // The next `bytes` of it, where there is room. They are the caller's until they are released.
  std::span<std::byte> take(std::size_t bytes) { return {bytes_.data() + ring_.take(bytes), bytes}; }

  // How far it has been taken; and that no copy is under way any more of what was taken until then.
  std::uint64_t taken() const { return ring_.taken; }
  void release(std::uint64_t until) { ring_.release(until); }
  void release_all() { ring_.release_all(); }

  // Which bytes: positions count on for ever, a position's place is its remainder.
  struct Ring {
    static constexpr std::size_t kAlignment = 64;
    std::size_t size;  // a multiple of the alignment
    std::uint64_t taken = 0;
    std::uint64_t released = 0;

    bool has_room(std::size_t bytes) const { return begin_of(bytes) + bytes <= released + size; }
    std::size_t take(std::size_t bytes) {
      const std::uint64_t begin = begin_of(bytes);
      taken = (begin + bytes + kAlignment - 1) / kAlignment * kAlignment;
      return begin % size;
    }
    void release(std::uint64_t until) { released = until > released ? until : released; }
    // From the start again, so that all of it is in one piece.
    void release_all() { taken = released = (taken + size - 1) / size * size; }

   private:
    // Bytes are in one piece: what does not fit before the end begins after it.
    std::uint64_t begin_of(std::size_t bytes) const {
      return taken % size + bytes <= size ? taken : (taken / size + 1) * size;
    }
  };

 private:
  PinnedBytes bytes_;
  Ring ring_;
};

}  // namespace conclave::cuda
