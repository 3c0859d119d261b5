// A tensor's elements from where they lie into the format they are to be stored in, on all threads of a pool, and out
// in order: nothing larger than a few megabytes is held at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/dtype.h"

namespace conclave {

// Elements that lie together. A tensor is made of one such piece, or of several of equal length (the experts of a
// layer, the rows of a matrix in another order).
struct SourcePiece {
  DType type;
  std::span<const std::byte> bytes;
};

struct RecodeJob {
  std::string name;  // of the tensor, for messages
  std::vector<SourcePiece> pieces;
  std::int64_t piece_elements = 0;  // of each; whole blocks of both formats
  DType to = DType::f32;            // one that can_encode(), or the type of all pieces: then bytes are copied
};

class Recoder {
 public:
  explicit Recoder(ThreadPool& pool) : pool_(&pool) {}

  // Hands the bytes of the encoded tensor to `sink`, in order. The bytes do not depend on the number of threads. Throws
  // Error where a value cannot be stored (not finite in a block format, too large for f16), naming the tensor.
  void run(const RecodeJob& job, const std::function<void(std::span<const std::byte>)>& sink);

 private:
  ThreadPool* pool_;
  std::vector<std::byte> encoded_;
};

}  // namespace conclave
