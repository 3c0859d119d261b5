// RoutingRecorder: the routing of a sequence as it comes out of a session's steps, made into a trace.
#pragma once

#include <vector>

#include "conclave/session.h"
#include "report/routing_trace.h"

namespace conclave {

class RoutingRecorder {
 public:
  explicit RoutingRecorder(std::int64_t n_layers) : layers_(static_cast<std::size_t>(n_layers)) {}

  // Rows of a layer come in the order of their tokens, as StepHooks::routing gives them for one sequence.
  void add(const RoutingRow& row) {
    Layer& layer = layers_[static_cast<std::size_t>(row.layer)];
    layer.experts.insert(layer.experts.end(), row.experts.begin(), row.experts.end());
    layer.weights.insert(layer.weights.end(), row.weights.begin(), row.weights.end());
  }

  // Moves what was recorded into `trace`.
  void finish(RoutingTrace& trace) {
    for (Layer& layer : layers_) {
      trace.experts.insert(trace.experts.end(), layer.experts.begin(), layer.experts.end());
      trace.weights.insert(trace.weights.end(), layer.weights.begin(), layer.weights.end());
      layer = {};
    }
  }

 private:
  struct Layer {
    std::vector<std::int32_t> experts;  // [n_tokens][top_k]
    std::vector<float> weights;
  };
  std::vector<Layer> layers_;
};

}  // namespace conclave
