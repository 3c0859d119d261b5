#include "model/kv_cache.h"

#include <algorithm>

#include "base/checked.h"
#include "base/fail.h"

namespace conclave {
namespace {

std::int64_t times(std::int64_t a, std::int64_t b) {
  const auto product = checked_mul(a, b);
  if (!product) fail(ErrorCode::out_of_memory, "the KV cache is larger than 64 bits can count");
  return *product;
}

}  // namespace

KvCachePlan::KvCachePlan(const ModelConfig& config, const KvCacheOptions& given) : options(given) {
  const DTypeInfo& type = dtype_info(options.type);
  const std::int64_t d_head = config.attention.d_head;
  if (d_head % type.per_block != 0) {
    fail(ErrorCode::invalid_argument, "a KV cache of type {} needs heads of whole blocks of {}; this model's have {}",
         type.name, type.per_block, d_head);
  }
  pages = {.n_seqs = options.max_sequences,
           .max_pages = (options.context + kPageSize - 1) / kPageSize,
           .page_size = kPageSize};
  const std::int64_t position_bytes = config.attention.n_kv_heads * (d_head / type.per_block) * type.bytes;
  page_bytes = times(kPageSize, position_bytes);
  pool_bytes = times(times(pages.n_seqs, pages.max_pages), page_bytes);
  bytes = times(pool_bytes, 2 * config.n_layers);
}

KvCache::KvCache(Device& device, const ModelConfig& config, const KvCachePlan& plan)
    : device_(device), plan_(plan), book_(plan.pages), page_(static_cast<std::size_t>(plan.page_bytes)) {
  const PageBook::Shape& pages = plan.pages;
  const std::int64_t n_pages = pages.n_pages();
  pool_ = device.allocate(plan.bytes);
  table_ = device.allocate(n_pages * static_cast<std::int64_t>(sizeof(std::int32_t)));
  const Tensor table = dense(*table_, 0, DType::i32, {pages.n_seqs, pages.max_pages});
  const auto pool = [&](std::int64_t i) {
    return dense(*pool_, i * plan.pool_bytes, plan.options.type,
                 {n_pages, pages.page_size, config.attention.n_kv_heads, config.attention.d_head});
  };
  for (std::int64_t i = 0; i < config.n_layers; ++i) {
    layers_.push_back({.k = pool(2 * i), .v = pool(2 * i + 1), .pages = table});
  }
}

KvView KvCache::layer(std::int64_t i, std::int64_t context) const {
  KvView view = layers_[static_cast<std::size_t>(i)];
  const std::int64_t n_pages =
      std::min((context + KvCachePlan::kPageSize - 1) / KvCachePlan::kPageSize, view.pages.dim(1));
  view.pages = slice(view.pages, 1, 0, n_pages);
  return view;
}

void KvCache::make_room(std::int32_t seq, std::int64_t count) {
  if (const auto copy = book_.make_room(seq, count)) copy_page(*copy);
}

void KvCache::upload_pages() {
  device_.upload(*table_, 0, std::as_bytes(book_.table()));
}

void KvCache::copy_page(const PageBook::PageCopy& copy) {
  const std::int64_t used = plan_.page_bytes / plan_.pages.page_size * copy.n_slots;
  const std::span<std::byte> bytes(page_.data(), static_cast<std::size_t>(used));
  for (const KvView& layer : layers_) {
    for (const Tensor& pool : {layer.k, layer.v}) {
      device_.download(*pool_, pool.byte_offset + copy.from * plan_.page_bytes, bytes);
      device_.upload(*pool_, pool.byte_offset + copy.to * plan_.page_bytes, bytes);
    }
  }
}

}  // namespace conclave
