#include "report/routing_stats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace conclave {
namespace {

LayerStats layer_stats(const RoutingTrace& trace, std::int64_t layer) {
  std::vector<std::int64_t> load(static_cast<std::size_t>(trace.n_experts));
  std::vector<double> weight(load.size());
  const std::int64_t n_pairs = trace.n_tokens() * trace.top_k;
  const std::size_t first = trace.pair(layer, 0, 0);
  for (std::size_t i = first; i < first + static_cast<std::size_t>(n_pairs); ++i) {
    const auto expert = static_cast<std::size_t>(trace.experts[i]);
    ++load[expert];
    if (std::isfinite(trace.weights[i])) weight[expert] += trace.weights[i];
  }
  LayerStats stats = load_stats(std::move(load));
  stats.weight = std::move(weight);
  return stats;
}

}  // namespace

LayerStats load_stats(std::vector<std::int64_t> load) {
  LayerStats stats{.load = std::move(load)};
  const auto n_pairs = static_cast<double>(std::accumulate(stats.load.begin(), stats.load.end(), std::int64_t{0}));
  const auto n_experts = static_cast<double>(stats.load.size());
  stats.mean = n_pairs / n_experts;
  for (std::size_t e = 0; e < stats.load.size(); ++e) {
    if (stats.load[e] == 0) {
      stats.unused.push_back(static_cast<std::int32_t>(e));
      continue;
    }
    const double p = static_cast<double>(stats.load[e]) / n_pairs;
    stats.entropy -= p * std::log2(p);
    if (stats.load[e] > stats.load[static_cast<std::size_t>(stats.busiest)]) {
      stats.busiest = static_cast<std::int32_t>(e);
    }
  }
  stats.entropy = std::max(stats.entropy, 0.0);  // of one expert: not -0
  if (n_pairs == 0) return stats;
  stats.imbalance = stats.relative(stats.busiest);
  stats.evenness = stats.load.size() == 1 ? 1.0 : stats.entropy / std::log2(n_experts);
  return stats;
}

RoutingStats routing_stats(const RoutingTrace& trace) {
  RoutingStats stats;
  for (std::int64_t layer = 0; layer < trace.n_layers; ++layer) {
    const LayerStats& last = stats.layers.emplace_back(layer_stats(trace, layer));
    stats.max_relative = std::max(stats.max_relative, last.imbalance);
    stats.mean_evenness += last.evenness / static_cast<double>(trace.n_layers);
    stats.mean_imbalance += last.imbalance / static_cast<double>(trace.n_layers);
    stats.n_unused += static_cast<std::int64_t>(last.unused.size());
  }
  return stats;
}

double heat_position(double relative, const RoutingStats& stats) {
  return std::clamp(std::sqrt(relative / stats.max_relative), 0.0, 1.0);
}

std::string range_text(std::span<const std::int32_t> ascending) {
  std::string text;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += fmt::format("{}", ascending[i]);
    if (last > i) text += fmt::format("{}{}", last == i + 1 ? ", " : "-", ascending[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace conclave
