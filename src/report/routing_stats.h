// How evenly the experts of each layer were used.
//
//   load[e]     how many (token, slot) pairs chose expert e
//   weight[e]   the sum of their weights (non-finite ones count 0)
//   relative    load[e] / mean load: 1 is an even share, n_experts / top_k the most there can be
//   imbalance   the largest of these: max / mean
//   entropy     of load / sum of loads, in bits; evenness = entropy / log2(n_experts), 1 for a single expert. A short
//               text cannot reach 1: n pairs touch at most n experts
//   unused      experts that no token chose
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "report/routing_trace.h"

namespace conclave {

struct LayerStats {
  std::vector<std::int64_t> load;  // [n_experts]
  std::vector<double> weight;      // [n_experts]
  double mean = 0;
  double imbalance = 0;
  double entropy = 0;
  double evenness = 0;
  std::int32_t busiest = 0;  // the expert of the largest load, the lowest of equals
  std::vector<std::int32_t> unused;

  double relative(std::int64_t expert) const {
    return static_cast<double>(load[static_cast<std::size_t>(expert)]) / mean;
  }
};

struct RoutingStats {
  std::vector<LayerStats> layers;
  double max_relative = 0;    // over all layers: where colour scales end
  double mean_evenness = 0;   // over layers
  double mean_imbalance = 0;  // over layers
  std::int64_t n_unused = 0;  // over layers
};

RoutingStats routing_stats(const RoutingTrace& trace);

// Of the loads of one layer, at least one, without weights. Where all are 0, so is everything but `unused`.
LayerStats load_stats(std::vector<std::int64_t> load);

// Where on a colour scale from 0 to 1 a relative load lies: by its square root, since most experts are near an even share
// and few are far above.
double heat_position(double relative, const RoutingStats& stats);

// "0-3, 7, 12-13"
std::string range_text(std::span<const std::int32_t> ascending);

}  // namespace conclave
