// KvCache: the keys and values of several sequences in all layers, in pages.
//
// A page holds the same positions of a sequence in every layer. Pages are 64 positions long: what the CPU's attention
// takes at a time, and little to copy when a fork is written to.
#pragma once

#include <memory>
#include <vector>

#include "model/config.h"
#include "model/page_book.h"
#include "ops/device.h"
#include "ops/kv_view.h"

namespace conclave {

struct KvCacheOptions {
  DType type = DType::f16;  // f32, f16, bf16 or q8_0
  std::int64_t context = 0;
  std::int64_t max_sequences = 1;
};

// Sizes, before anything is allocated. Throws Error(invalid_argument) where the type does not suit the model, and
// Error(out_of_memory) where the bytes do not fit 64 bits.
struct KvCachePlan {
  static constexpr std::int64_t kPageSize = 64;

  KvCachePlan(const ModelConfig& config, const KvCacheOptions& options);

  KvCacheOptions options;
  PageBook::Shape pages;
  std::int64_t page_bytes = 0;  // keys, or values, of one page in one layer
  std::int64_t pool_bytes = 0;  // of all pages in one layer
  std::int64_t bytes = 0;       // keys and values of all layers
};

class KvCache {
 public:
  KvCache(Device& device, const ModelConfig& config, const KvCachePlan& plan);

  // As tokens see it of which none is further on than `context`.
  KvView layer(std::int64_t i, std::int64_t context) const;
  std::int64_t bytes() const { return plan_.bytes; }
  std::int64_t context() const { return plan_.options.context; }

  std::int32_t create() { return book_.create(); }
  std::int32_t fork(std::int32_t seq) { return book_.fork(seq); }
  void drop(std::int32_t seq) { book_.drop(seq); }
  void cut(std::int32_t seq, std::int64_t n_tokens) { book_.cut(seq, n_tokens); }
  std::int64_t length(std::int32_t seq) const { return book_.length(seq); }

  // Before a step: a place for each new token. After it: they count.
  void make_room(std::int32_t seq, std::int64_t count);
  void upload_pages();
  void advance(std::int32_t seq, std::int64_t count) { book_.advance(seq, count); }

 private:
  void copy_page(const PageBook::PageCopy& copy);

  Device& device_;
  KvCachePlan plan_;
  PageBook book_;
  std::shared_ptr<Buffer> pool_;
  std::shared_ptr<Buffer> table_;
  std::vector<KvView> layers_;
  std::vector<std::byte> page_;  // on its way from one place to another
};

}  // namespace conclave
