#include "bench/model/traffic.h"

#include <algorithm>

#include "tensor/dtype.h"

namespace conclave::bench {

TrafficMeter::Product TrafficMeter::product_of(TensorRef tensor) {
  if (tensor == nullptr) return {};
  double elements = 1;
  for (const std::int64_t d : tensor->dims) elements *= static_cast<double>(d);
  return {.bytes = static_cast<double>(tensor->bytes),
          .int8_ops_per_row = is_block(*tensor->type->dtype) ? 2 * elements : 0};
}

void TrafficMeter::add(Product& to, TensorRef tensor) {
  const Product product = product_of(tensor);
  to.bytes += product.bytes;
  to.int8_ops_per_row += product.int8_ops_per_row;
}

TrafficMeter::TrafficMeter(const ModelDescription& model, double kv_bytes_per_token)
    : kv_bytes_per_token_(kv_bytes_per_token) {
  const auto n_experts = static_cast<double>(model.config.experts.n_experts);
  for (const LayerTensors& t : model.tensors.layers) {
    Layer layer;
    for (const TensorRef each :
         {t.attn_norm, t.attn_q, t.attn_k, t.attn_v, t.q_bias, t.k_bias, t.v_bias, t.q_norm, t.k_norm}) {
      add(layer.every, each);
    }
    for (const TensorRef each :
         {t.attn_out, t.ffn_norm, t.router, t.shared_router, t.shared_gate, t.shared_up, t.shared_down}) {
      add(layer.chosen, each);
    }
    for (const TensorRef each : {t.gate, t.up, t.down}) add(layer.expert, each);
    layer.expert.bytes /= n_experts;
    layer.expert.int8_ops_per_row /= n_experts;
    layers_.push_back(layer);
  }
  add(head_, model.tensors.output_norm);
  add(head_, model.tensors.output);
  embedding_row_bytes_ = product_of(model.tensors.token_embd).bytes / static_cast<double>(model.config.n_vocab);
  pairs_.assign(layers_.size(), std::vector<std::int64_t>(static_cast<std::size_t>(model.config.experts.n_experts)));
}

void TrafficMeter::route(const RoutingRow& row, bool out) {
  const auto layer = static_cast<std::size_t>(row.layer);
  if (layer + 1 == layers_.size() && !out) return;
  for (const std::int32_t expert : row.experts) ++pairs_[layer][static_cast<std::size_t>(expert)];
}

void TrafficMeter::add_work(const Product& product, std::int64_t rows) {
  if (rows == 0) return;
  total_.weight_bytes += product.bytes;
  total_.int8_ops += product.int8_ops_per_row * static_cast<double>(rows);
}

void TrafficMeter::end_chunk(std::int64_t n_tokens, std::int64_t n_out, std::int64_t n_cached) {
  total_.weight_bytes += embedding_row_bytes_ * static_cast<double>(n_tokens);
  total_.kv_bytes += kv_bytes_per_token_ * static_cast<double>(n_cached);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const bool last = i + 1 == layers_.size();
    add_work(layers_[i].every, n_tokens);
    add_work(layers_[i].chosen, last ? n_out : n_tokens);
    for (std::int64_t& pairs : pairs_[i]) {
      add_work(layers_[i].expert, pairs);
      total_.experts += pairs > 0 ? 1 : 0;
      pairs = 0;
    }
    total_.layers += last && n_out == 0 ? 0 : 1;
  }
  add_work(head_, n_out);
}

}  // namespace conclave::bench
