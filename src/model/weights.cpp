#include "model/weights.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fail.h"
#include "base/memory.h"
#include "quant/codec.h"

namespace conclave {
namespace {

using Dims = std::initializer_list<std::int64_t>;

// One buffer per part of the file, from its first byte to the end of its last tensor: offsets stay those of the file,
// so that a view's alignment is its real one.
std::map<std::uint32_t, std::shared_ptr<Buffer>> map_parts(const gguf::File& file) {
  struct Extent {
    const std::byte* base;
    std::uint64_t end;
  };
  std::map<std::uint32_t, Extent> extents;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    const std::byte* base = file.data(tensor).data() - tensor.offset;
    Extent& extent = extents.try_emplace(tensor.part, Extent{base, 0}).first->second;
    extent.end = std::max(extent.end, tensor.offset + tensor.bytes);
  }
  std::map<std::uint32_t, std::shared_ptr<Buffer>> parts;
  for (const auto& [part, extent] : extents) {
    // Nothing writes to weights; a Buffer has no const form.
    parts[part] =
        std::make_shared<BorrowedBuffer>(const_cast<std::byte*>(extent.base), static_cast<std::int64_t>(extent.end));
  }
  return parts;
}

std::uint64_t weight_bytes(const gguf::File& file) {
  std::uint64_t bytes = 0;
  for (const gguf::TensorInfo& tensor : file.tensors()) bytes += tensor.bytes;
  return bytes;
}

class WeightLoader {
 public:
  WeightLoader(const gguf::File& file, Device& device, const LoadProgress& progress)
      : file_(file), device_(device), progress_(progress), parts_(map_parts(file)), total_bytes_(weight_bytes(file)) {}

  // Whether there is room for what the device does not reach.
  void check_room(std::int64_t n_params) const {
    const bool reached =
        std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) { return device_.reaches(*part.second); });
    const std::optional<std::int64_t> room = reached ? std::nullopt : device_.available_bytes();
    const auto needed = static_cast<std::int64_t>(total_bytes_);
    if (!room || needed <= *room) return;
    const auto bits = [&](std::int64_t bytes) {
      return 8 * static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(n_params, 1));
    };
    fail(ErrorCode::out_of_memory,
         "{}: the weights take {} and {} are free, {} too little; they have {:.1f} bits each, fewer than {:.1f} would "
         "fit",
         device_.name(), size_text(total_bytes_), size_text(static_cast<std::uint64_t>(*room)),
         size_text(total_bytes_ - static_cast<std::uint64_t>(*room)), bits(needed), bits(*room));
  }

  // The tensor on the device, with the dimensions that the model gives it; not defined where the model has none.
  Tensor load(TensorRef info, Dims dims) {
    if (info == nullptr) return {};
    Buffer& part = *parts_.at(info->part);
    const Tensor tensor = dense(part, static_cast<std::int64_t>(info->offset), *info->type->dtype, dims);
    if (device_.reaches(part)) return tensor;
    const Tensor copy = upload(file_.data(*info), tensor.dtype, dims);
    done_bytes_ += info->bytes;
    if (progress_) progress_(done_bytes_, total_bytes_);
    return copy;
  }

  // As f32, whatever float type the file has.
  Tensor load_f32(TensorRef info, std::int64_t n) {
    if (info == nullptr || *info->type->dtype == DType::f32) return load(info, {n});
    std::vector<float> values(static_cast<std::size_t>(n));
    decode(*info->type->dtype, file_.data(*info), values);
    return upload(std::as_bytes(std::span<const float>(values)), DType::f32, {n});
  }

  // Gives weights that are used together to the device, which may keep them in its own way; a copy that it does not use
  // is dropped.
  void prepare(std::initializer_list<Tensor*> together) {
    std::vector<Tensor> weights;
    for (const Tensor* tensor : together) weights.push_back(*tensor);
    const std::vector<Tensor> prepared = device_.prepare(weights);
    CONCLAVE_CHECK(prepared.size() == weights.size(), "prepare() must give back as many tensors as it got");
    std::size_t i = 0;
    for (Tensor* tensor : together) {
      const Buffer* before = tensor->buffer;
      *tensor = prepared[i++];
      if (tensor->buffer != before) std::erase_if(copies_, [&](const auto& copy) { return copy.get() == before; });
    }
  }

  std::vector<std::shared_ptr<Buffer>> buffers() && {
    for (auto& [part, buffer] : parts_) copies_.push_back(std::move(buffer));
    return std::move(copies_);
  }

 private:
  Tensor upload(std::span<const std::byte> bytes, DType type, Dims dims) {
    copies_.push_back(device_.allocate(static_cast<std::int64_t>(bytes.size())));
    device_.upload(*copies_.back(), 0, bytes);
    return dense(*copies_.back(), 0, type, dims);
  }

  const gguf::File& file_;
  Device& device_;
  const LoadProgress& progress_;
  std::map<std::uint32_t, std::shared_ptr<Buffer>> parts_;
  std::uint64_t total_bytes_;
  std::uint64_t done_bytes_ = 0;
  std::vector<std::shared_ptr<Buffer>> copies_;
};

LayerWeights load_layer(WeightLoader& loader, const LayerTensors& t, const ModelConfig& c) {
  const std::int64_t d_model = c.d_model;
  const std::int64_t d_head = c.attention.d_head;
  const std::int64_t q = c.attention.n_heads * d_head;
  const std::int64_t kv = c.attention.n_kv_heads * d_head;
  const bool per_head = c.attention.qk_norm == QkNorm::per_head;
  const auto [n_experts, d_ff, d_shared] = std::tuple(c.experts.n_experts, c.experts.d_ff, c.experts.d_ff_shared);

  LayerWeights w;
  w.attn_norm = loader.load(t.attn_norm, {d_model});
  w.attention = {.q = loader.load(t.attn_q, {q, d_model}),
                 .k = loader.load(t.attn_k, {kv, d_model}),
                 .v = loader.load(t.attn_v, {kv, d_model}),
                 .out = loader.load(t.attn_out, {d_model, q}),
                 .q_bias = loader.load(t.q_bias, {q}),
                 .k_bias = loader.load(t.k_bias, {kv}),
                 .v_bias = loader.load(t.v_bias, {kv}),
                 .q_norm = loader.load(t.q_norm, {per_head ? d_head : q}),
                 .k_norm = loader.load(t.k_norm, {per_head ? d_head : kv})};
  w.ffn_norm = loader.load(t.ffn_norm, {d_model});
  w.moe = {.router = loader.load(t.router, {n_experts, d_model}),
           .gate = loader.load(t.gate, {n_experts, d_ff, d_model}),
           .up = loader.load(t.up, {n_experts, d_ff, d_model}),
           .down = loader.load(t.down, {n_experts, d_model, d_ff}),
           .shared = {.gate = loader.load(t.shared_gate, {d_shared, d_model}),
                      .up = loader.load(t.shared_up, {d_shared, d_model}),
                      .down = loader.load(t.shared_down, {d_model, d_shared}),
                      .gate_inp = loader.load(t.shared_router, {d_model})}};

  loader.prepare({&w.attention.q, &w.attention.k, &w.attention.v});
  loader.prepare({&w.attention.out});
  loader.prepare({&w.moe.gate, &w.moe.up});
  loader.prepare({&w.moe.down});
  if (w.moe.shared.gate.defined()) {
    loader.prepare({&w.moe.shared.gate, &w.moe.shared.up});
    loader.prepare({&w.moe.shared.down});
  }
  return w;
}

}  // namespace

ModelWeights load_weights(const gguf::File& file, const ModelDescription& model, Device& device,
                          const LoadProgress& progress) {
  const ModelConfig& c = model.config;
  const ModelTensors& t = model.tensors;
  WeightLoader loader(file, device, progress);
  loader.check_room(model.size.n_params);
  ModelWeights w;
  w.token_embd = loader.load(t.token_embd, {c.n_vocab, c.d_model});
  w.output_norm = loader.load(t.output_norm, {c.d_model});
  if (t.tied()) {
    loader.prepare({&w.token_embd});
    w.output = w.token_embd;
  } else {
    w.output = loader.load(t.output, {c.n_vocab, c.d_model});
    loader.prepare({&w.token_embd});
    loader.prepare({&w.output});
  }
  const Tensor rope_factors = loader.load_f32(t.rope_factors, c.rope.n_dims / 2);
  for (const LayerTensors& layer : t.layers) {
    w.layers.push_back(load_layer(loader, layer, c));
    w.layers.back().attention.rope_factors = rope_factors;
  }
  w.buffers = std::move(loader).buffers();
  return w;
}

}  // namespace conclave
