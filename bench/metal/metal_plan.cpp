#include "bench/metal/metal_plan.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "backends/metal/metal_op.h"
#include "backends/metal/product_plan.h"
#include "bench/kernels/model_shapes.h"

namespace conclave::bench {
namespace {

// Memory that a plan may talk about and nobody touches.
class NoMemory final : public Buffer {
 public:
  explicit NoMemory(std::int64_t bytes) : Buffer(nullptr, bytes) {}
};

class PlannedLayer {
 public:
  PlannedLayer(const ModelShape& m, std::int64_t n_tokens, DType gate_up, DType down) {
    const std::int64_t pairs = n_tokens * m.top_k;
    op_.rule = {.top_k = m.top_k, .renormalize = true};
    op_.x = tensor(DType::f32, {n_tokens, m.d_model});
    op_.logits = tensor(DType::f32, {n_tokens, m.n_experts});
    op_.gate = tensor(gate_up, {m.n_experts, m.d_ff, m.d_model});
    op_.up = tensor(gate_up, {m.n_experts, m.d_ff, m.d_model});
    op_.down = tensor(down, {m.n_experts, m.d_model, m.d_ff});
    op_.routing = {.experts = tensor(DType::i32, {n_tokens, m.top_k}),
                   .weights = tensor(DType::f32, {n_tokens, m.top_k})};
    op_.groups = {.offsets = tensor(DType::i32, {m.n_experts + 1}),
                  .row_pair = tensor(DType::i32, {pairs}),
                  .pair_row = tensor(DType::i32, {n_tokens, m.top_k})};
    op_.hidden = tensor(DType::f32, {pairs, m.d_ff});
    op_.expert_out = tensor(DType::f32, {pairs, m.d_model});
    op_.residual = tensor(DType::f32, {n_tokens, m.d_model});
    op_.next = {.weight = tensor(DType::f32, {m.d_model}), .out = tensor(DType::f32, {n_tokens, m.d_model})};
  }

  const MoeFfn& op() const { return op_; }

  double floor_bytes() const {
    const std::int64_t pairs = op_.groups.row_pair.dim(0);
    return metal::weight_bytes(op_.gate, pairs) + metal::weight_bytes(op_.up, pairs) +
           metal::weight_bytes(op_.down, pairs) + metal::tensor_bytes(op_.x) + metal::tensor_bytes(op_.logits) +
           metal::tensor_bytes(op_.routing.experts) + metal::tensor_bytes(op_.routing.weights) +
           2 * metal::tensor_bytes(op_.residual) + metal::tensor_bytes(op_.next.weight) +
           metal::tensor_bytes(op_.next.out);
  }

 private:
  Tensor tensor(DType type, std::initializer_list<std::int64_t> dims) {
    buffers_.push_back(std::make_unique<NoMemory>(dense_bytes(type, {dims.begin(), dims.size()})));
    return dense(*buffers_.back(), 0, type, dims);
  }

  std::vector<std::unique_ptr<NoMemory>> buffers_;
  MoeFfn op_;
};

// What moe_group would write into the grid of a product.
std::int64_t even_groups(const MoeFfn& op, const metal::ProductPlan& plan, std::int64_t columns) {
  const std::int64_t pairs = op.groups.row_pair.dim(0);
  return metal::even_tiles(pairs, op.logits.dim(1), plan.tile_rows) * metal::ceil_div(columns, plan.columns);
}

}  // namespace

LayerPlan plan_layer(const std::string& model, std::int64_t n_tokens, DType gate_up, DType down) {
  const PlannedLayer layer(model_shape(model), n_tokens, gate_up, down);
  const MoeFfn& op = layer.op();
  const metal::Target target;
  LayerPlan plan{.floor_bytes = layer.floor_bytes()};
  for (const auto& step : metal::make_metal_op(op, target).steps) {
    const auto& dispatch = std::get<metal::Dispatch>(step);
    PlannedDispatch planned{dispatch.kernel,
                            static_cast<std::int64_t>(dispatch.groups.x) * dispatch.groups.y * dispatch.groups.z,
                            dispatch.threads, dispatch.bytes};
    if (dispatch.indirect) {
      const bool is_gate_up = dispatch.kernel.find("gate_up") != std::string::npos;
      const std::int64_t pairs = op.groups.row_pair.dim(0);
      planned.groups = even_groups(op, metal::product_plan(target, pairs, op.logits.dim(1), is_gate_up),
                                   is_gate_up ? op.gate.dim(1) : op.down.dim(1));
    }
    plan.bytes += planned.bytes;
    plan.dispatches.push_back(std::move(planned));
  }
  return plan;
}

int run_metal_plan(const MetalPlanOptions& options, const BenchOutput& output) {
  const std::vector<std::string> models =
      options.models.empty() ? std::vector{std::string(kMainModel)} : options.models;
  constexpr double kMiB = 1 << 20;
  if (!options.json) {
    output.print(fmt::format(
        "The MoE layer from router logits to the next norm, as the metal device plans it; nothing is "
        "run.\n\n{:<16} {:<6} {:<6} {:>6}  {:>10} {:>8}  {:>9} {:>9} {:>7} {:>13}\n",
        "model", "gate", "down", "tokens", "dispatches", "sources'", "MiB", "floor MiB", "x floor", "MiB per token"));
  }
  for (const std::string& model : models) {
    for (const std::int64_t tokens : options.tokens) {
      const LayerPlan plan = plan_layer(model, tokens, options.gate_up, options.down);
      if (options.json) {
        nlohmann::ordered_json line = {{"model", model},
                                       {"gate_up", dtype_info(options.gate_up).name},
                                       {"down", dtype_info(options.down).name},
                                       {"tokens", tokens},
                                       {"dispatches", plan.dispatches.size()},
                                       {"source_dispatches", source_dispatches(tokens)},
                                       {"bytes", plan.bytes},
                                       {"floor_bytes", plan.floor_bytes}};
        for (const PlannedDispatch& d : plan.dispatches) {
          line["plan"].push_back(
              {{"kernel", d.kernel}, {"groups", d.groups}, {"threads", d.threads}, {"bytes", d.bytes}});
        }
        output.print(line.dump() + "\n");
        continue;
      }
      output.print(fmt::format("{:<16} {:<6} {:<6} {:>6}  {:>10} {:>8}  {:>9.2f} {:>9.2f} {:>7.3f} {:>13.3f}\n", model,
                               dtype_info(options.gate_up).name, dtype_info(options.down).name, tokens,
                               plan.dispatches.size(), source_dispatches(tokens), plan.bytes / kMiB,
                               plan.floor_bytes / kMiB, plan.bytes / plan.floor_bytes,
                               plan.bytes / kMiB / static_cast<double>(tokens)));
      for (const PlannedDispatch& d : plan.dispatches) {
        output.print(fmt::format("    {:<22} {:>7} threadgroups of {:>4} threads {:>11.2f} MiB\n", d.kernel, d.groups,
                                 d.threads, d.bytes / kMiB));
      }
    }
  }
  return 0;
}

}  // namespace conclave::bench
