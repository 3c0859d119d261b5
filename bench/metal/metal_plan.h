// What the Metal backend would launch for the MoE layer of a model, from router logits to the next norm: dispatches,
// threadgroups and bytes, computed by the backend's own plan and not run. `conclave bench --plan --device metal`.
//
// Bytes are what kernels read and write at least once; of experts, as many as the pairs can choose, each as often as its
// rows, spread evenly, fill tiles. The floor is what any program must move: the chosen experts' weights, logits and
// activations in, routing, residual and norm out. No time is told: none can be measured without an Apple GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/kernels/kernel_bench.h"
#include "tensor/dtype.h"

namespace conclave::bench {

struct MetalPlanOptions {
  std::vector<std::string> models;  // empty: Qwen3-30B-A3B alone
  std::vector<std::int64_t> tokens = {1, 8, 32, 512};
  DType gate_up = DType::q4_k;
  DType down = DType::q6_k;
  bool json = false;
};

struct PlannedDispatch {
  std::string kernel;
  std::int64_t groups = 0;  // threadgroups; of an indirect dispatch, with rows spread evenly
  std::int64_t threads = 0;
  double bytes = 0;
};
struct LayerPlan {
  std::vector<PlannedDispatch> dispatches;
  double bytes = 0;
  double floor_bytes = 0;
};
// Of the layer of a model (bench/kernels/model_shapes.h) for so many tokens.
LayerPlan plan_layer(const std::string& model, std::int64_t n_tokens, DType gate_up, DType down);

// How many dispatches the Metal programs that this backend is measured by have in such a layer.
constexpr std::int64_t source_dispatches(std::int64_t n_tokens) {
  return n_tokens == 1 ? 4 : 8;
}

int run_metal_plan(const MetalPlanOptions& options, const BenchOutput& output);

}  // namespace conclave::bench
