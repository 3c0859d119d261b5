#include "model/workspace.h"

#include <algorithm>

#include "base/checked.h"
#include "base/fail.h"
#include "model/views.h"

namespace conclave {
namespace {

constexpr std::int64_t kAlignment = 64;

[[noreturn]] void too_large() {
  fail(ErrorCode::out_of_memory, "the activations of a step are larger than 64 bits can count");
}

std::int64_t padded_bytes(DType type, std::span<const std::int64_t> dims) {
  std::int64_t bytes = dtype_info(type).bytes;
  for (const std::int64_t dim : dims) {
    const auto product = checked_mul(bytes, dim);
    if (!product) too_large();
    bytes = *product;
  }
  const auto padded = checked_add(bytes, kAlignment - 1);
  if (!padded) too_large();
  return *padded / kAlignment * kAlignment;
}

Tensor first_if(const Tensor& t, std::int64_t n) {
  return t.defined() ? first(t, n) : t;
}

}  // namespace

// The one list of what there is: sizes and tensors both come from it.
template <class Visit>
void Workspace::visit(Tensors& t, const ModelConfig& c, const WorkspaceShape& shape, Visit&& visit) {
  using Dims = std::initializer_list<std::int64_t>;
  const auto f32 = [&](Tensor& tensor, Dims dims) { visit(tensor, DType::f32, dims); };
  const auto i32 = [&](Tensor& tensor, Dims dims) { visit(tensor, DType::i32, dims); };
  const std::int64_t n = shape.max_tokens;
  const std::int64_t n_out = shape.max_out;
  const std::int64_t q_width = c.attention.n_heads * c.attention.d_head;
  const std::int64_t kv_width = c.attention.n_kv_heads * c.attention.d_head;
  const ExpertConfig& e = c.experts;
  const std::int64_t n_pairs = n * e.rule.top_k;

  const auto row_scratch = [&](RowScratch& rows, std::int64_t count) {
    f32(rows.x, {count, c.d_model});
    f32(rows.projected, {count, c.d_model});
    f32(rows.attn_in, {count, c.d_model});
    f32(rows.ffn_in, {count, c.d_model});
    f32(rows.attended, {count, q_width});
  };
  row_scratch(t.rows, n);
  row_scratch(t.out, n_out);
  f32(t.q, {n, q_width});
  f32(t.k, {n, kv_width});
  f32(t.v, {n, kv_width});
  f32(t.logits, {n_out, c.n_vocab});
  i32(t.best, {n_out});
  i32(t.top, {2, n_out, kTopLogits});

  f32(t.moe.logits, {n, e.n_experts});
  i32(t.moe.groups.offsets, {e.n_experts + 1});
  i32(t.moe.groups.row_pair, {n_pairs});
  i32(t.moe.groups.pair_row, {n, e.rule.top_k});
  f32(t.moe.hidden, {n_pairs, e.d_ff});
  f32(t.moe.expert_out, {n_pairs, c.d_model});
  if (e.d_ff_shared > 0) {
    f32(t.moe.shared_hidden, {n, e.d_ff_shared});
    f32(t.moe.shared_out, {n, c.d_model});
  }
  t.routings.resize(shape.trace_routing ? static_cast<std::size_t>(c.n_layers) : 1);
  for (Routing& routing : t.routings) {
    i32(routing.experts, {n, e.rule.top_k});
    f32(routing.weights, {n, e.rule.top_k});
  }
  i32(t.expert_counts, {c.n_layers, e.n_experts});
}

std::int64_t Workspace::bytes_for(const ModelConfig& config, const WorkspaceShape& shape) {
  Tensors unused;
  std::int64_t bytes = 0;
  visit(unused, config, shape, [&](Tensor&, DType type, std::span<const std::int64_t> dims) {
    const auto sum = checked_add(bytes, padded_bytes(type, dims));
    if (!sum) too_large();
    bytes = *sum;
  });
  return bytes;
}

Workspace::Workspace(Device& device, const ModelConfig& config, const WorkspaceShape& shape)
    : top_k_(config.experts.rule.top_k), buffer_(device.allocate(bytes_for(config, shape))) {
  std::int64_t offset = 0;
  visit(tensors_, config, shape, [&](Tensor& tensor, DType type, std::span<const std::int64_t> dims) {
    tensor = dense(*buffer_, offset, type, dims);
    offset += padded_bytes(type, dims);
  });
}

namespace {

RowScratch first_rows(const RowScratch& s, std::int64_t n) {
  return {.x = first(s.x, n),
          .projected = first(s.projected, n),
          .attn_in = first(s.attn_in, n),
          .ffn_in = first(s.ffn_in, n),
          .attended = first(s.attended, n)};
}

}  // namespace

RowScratch Workspace::rows(std::int64_t n_tokens) const {
  return first_rows(tensors_.rows, n_tokens);
}

RowScratch Workspace::out_rows(std::int64_t n_out) const {
  return first_rows(tensors_.out, n_out);
}

AttentionScratch Workspace::attention(std::int64_t n_tokens) const {
  return {.normed = first(tensors_.rows.attn_in, n_tokens),
          .q = first(tensors_.q, n_tokens),
          .k = first(tensors_.k, n_tokens),
          .v = first(tensors_.v, n_tokens),
          .attended = first(tensors_.rows.attended, n_tokens)};
}

Tensor Workspace::logits(std::int64_t n_out) const {
  return first(tensors_.logits, n_out);
}

Tensor Workspace::best(std::int64_t n_out) const {
  return first(tensors_.best, n_out);
}

TopLogits Workspace::top(std::int64_t n_out) const {
  const Tensor& t = tensors_.top;
  const Tensor ids = dense(*t.buffer, t.byte_offset, DType::i32, {n_out, kTopLogits});
  const std::int64_t after = t.byte_offset + n_out * ids.stride(0);
  return {.ids = ids, .values = dense(*t.buffer, after, DType::f32, {n_out, kTopLogits})};
}

Routing Workspace::routing(std::int64_t layer) const {
  return tensors_.routings[tensors_.routings.size() == 1 ? 0 : static_cast<std::size_t>(layer)];
}

MoeScratch Workspace::moe(std::int64_t layer, const Tensor& normed, const Tensor& live) const {
  const std::int64_t n = normed.dim(0);
  const MoeScratch& s = tensors_.moe;
  const Routing kept = routing(layer);
  return {.normed = normed,
          .live = live,
          .logits = first(s.logits, n),
          .routing = {.experts = first(kept.experts, n),
                      .weights = first(kept.weights, n),
                      .counts = select_outer(tensors_.expert_counts, layer)},
          .groups = {.offsets = s.groups.offsets,
                     .row_pair = first(s.groups.row_pair, n * top_k_),
                     .pair_row = first(s.groups.pair_row, n)},
          .hidden = first(s.hidden, n * top_k_),
          .expert_out = first(s.expert_out, n * top_k_),
          .shared_hidden = first_if(s.shared_hidden, n),
          .shared_out = first_if(s.shared_out, n)};
}

}  // namespace conclave
