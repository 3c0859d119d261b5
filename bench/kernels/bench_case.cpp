#include "bench/kernels/bench_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cpu.h"
#include "base/fail.h"
#include "bench/kernels/random_blocks.h"

namespace conclave::bench {
namespace {

std::int64_t bytes_with(const RowKey& key, std::int64_t n_experts) {
  if (key.kind->weights == nullptr) return 0;
  std::int64_t bytes = 0;
  for (const Dims& dims : key.kind->weights(*key.model, n_experts)) bytes += aligned_bytes(key.format, dims);
  return bytes;
}

std::uint64_t seed_of(const RowKey& key) {
  return test::fnv1a(key.kind->part, test::fnv1a(key.kind->op)) + static_cast<std::uint64_t>(key.n_tokens);
}

}  // namespace

RotationRule rotation_rule(std::int64_t memory_limit) {
  constexpr std::int64_t kLeast = 256 << 20;
  return {.bytes = std::max(4 * cache_sizes().l3, kLeast), .memory_limit = memory_limit};
}

std::int64_t experts_in_memory(const RowKey& key, std::int64_t memory_limit) {
  const std::int64_t least = bytes_with(key, key.model->top_k);
  if (least > memory_limit) {
    fail(ErrorCode::out_of_memory, "{} of {} in {} needs {:.1f} GiB of weights, the limit is {:.1f}: raise --memory",
         key.kind->op, key.model->name, dtype_info(key.format).name, static_cast<double>(least) / (1 << 30),
         static_cast<double>(memory_limit) / (1 << 30));
  }
  std::int64_t n = key.model->n_experts;
  while (n > key.model->top_k && bytes_with(key, n) > memory_limit) --n;
  return n;
}

std::int64_t layer_bytes(const RowKey& key, std::int64_t memory_limit) {
  return bytes_with(key, experts_in_memory(key, memory_limit));
}

std::int64_t pile_bytes(const RowKey& key, const RotationRule& rule) {
  const std::int64_t layer = layer_bytes(key, rule.memory_limit);
  if (layer == 0) return 0;
  // Twice, because a run may touch a little more than half of a layer's experts: then two layers are read in turn.
  const std::int64_t layers =
      std::min((2 * rule.bytes + layer - 1) / layer, std::max(rule.memory_limit / layer, std::int64_t{1}));
  return layers * layer;
}

CaseMaker::CaseMaker(const RowKey& for_key, const WeightPile* pile, const RotationRule& rule)
    : key(for_key),
      shape(*for_key.model),
      n_tokens(for_key.n_tokens),
      n_experts(experts_in_memory(for_key, rule.memory_limit)),
      rng(seed_of(for_key)),
      pile_(pile),
      rule_(rule) {}

Tensor CaseMaker::blank(DType type, const Dims& dims) {
  buffers_.push_back(HostBuffer::make(std::max<std::int64_t>(dense_bytes(type, dims), 1)));
  return dense(*buffers_.back(), 0, type, dims);
}

Tensor CaseMaker::blocks(DType type, const Dims& dims, double size) {
  const Tensor t = blank(type, dims);
  random_blocks(type, {t.buffer->host(), static_cast<std::size_t>(dense_bytes(type, dims))}, size, rng);
  return t;
}

Tensor CaseMaker::values(const Dims& dims, double size) {
  return blocks(DType::f32, dims, size);
}

Tensor CaseMaker::floats(const Dims& dims, const std::vector<float>& content) {
  const Tensor t = blank(DType::f32, dims);
  CONCLAVE_CHECK(element_count(t) == static_cast<std::int64_t>(content.size()), shape_text(dims));
  std::memcpy(t.buffer->host(), content.data(), content.size() * sizeof(float));
  return t;
}

Tensor CaseMaker::ints(const Dims& dims, const std::vector<std::int32_t>& content) {
  const Tensor t = blank(DType::i32, dims);
  CONCLAVE_CHECK(element_count(t) == static_cast<std::int64_t>(content.size()), shape_text(dims));
  std::memcpy(t.buffer->host(), content.data(), content.size() * sizeof(std::int32_t));
  return t;
}

std::int64_t CaseMaker::n_layers() const {
  const std::int64_t bytes = bytes_with(key, n_experts);
  CONCLAVE_CHECK(pile_ != nullptr && bytes > 0 && bytes <= pile_->size(), std::string(key.kind->op));
  return pile_->size() / bytes;
}

std::vector<Tensor> CaseMaker::layer(std::int64_t i) const {
  std::int64_t at = i * bytes_with(key, n_experts);
  std::vector<Tensor> weights;
  for (const Dims& dims : key.kind->weights(shape, n_experts)) {
    weights.push_back(pile_->view(at, dims));
    at += aligned_bytes(key.format, dims);
  }
  return weights;
}

std::int64_t CaseMaker::slots_for(double bytes_per_run, std::int64_t most) const {
  const double runs = std::ceil(static_cast<double>(rule_.bytes) / std::max(bytes_per_run, 1.0));
  return std::max<std::int64_t>(static_cast<std::int64_t>(std::min(runs, static_cast<double>(most))), 1);
}

std::vector<CaseMaker::ExpertSlot> CaseMaker::expert_slots() {
  const DrawnRouting drawn = draw_routing({n_tokens, n_experts, shape.top_k}, key.skew, rng.bits());
  const std::int64_t layers = n_layers();
  const double touched = static_cast<double>(bytes_with(key, n_experts)) * static_cast<double>(drawn.n_distinct()) /
                         static_cast<double>(n_experts);
  std::vector<ExpertSlot> slots;
  for (std::int64_t i = 0; i < slots_for(touched, layers * drawn.n_variants()); ++i) {
    const std::int64_t variant = i / layers;
    slots.push_back({.routing = drawn.variant(variant), .variant = variant, .weights = layer(i % layers)});
  }
  return slots;
}

BenchCase CaseMaker::finish(BenchCase made) {
  made.buffers = std::move(buffers_);
  return made;
}

double moved_bytes(const Op& op, const std::vector<Share>& shares) {
  double bytes = 0;
  for (const Access& access : accesses(op)) {
    if (access.role == Role::scratch) continue;
    double times = access.role == Role::inout ? 2 : 1;
    for (const Share& share : shares) {
      if (share.name == access.name) times *= share.share;
    }
    bytes += times * static_cast<double>(row_bytes(access.tensor)) * static_cast<double>(row_count(access.tensor));
  }
  return bytes;
}

Window window(std::int64_t n, std::int64_t count, test::Rng& rng) {
  const std::int64_t held = std::min(n, count);
  return {.first = rng.integer(0, n - held), .count = held};
}

Tensor slice(const Tensor& t, int dim, const Window& w) {
  return conclave::slice(t, dim, w.first, w.count);
}

}  // namespace conclave::bench
