#include "bench/kernels/skewed_routing.h"

#include <algorithm>
#include <array>

#include "bench/kernels/permutations.h"

namespace conclave::bench {
namespace {

constexpr std::array kSkews = {Skew::uniform, Skew::zipf, Skew::one_hot};

// One expert that is not chosen yet, by weight; chosen ones get weight 0.
std::int32_t draw_one(std::vector<double>& weights, test::Rng& rng) {
  double sum = 0;
  for (const double w : weights) sum += w;
  double left = rng.uniform() * sum;
  std::size_t chosen = 0;
  for (std::size_t e = 0; e < weights.size(); ++e) {
    if (weights[e] == 0) continue;
    chosen = e;  // the last one with a weight, should rounding pass the end
    left -= weights[e];
    if (left < 0) break;
  }
  weights[chosen] = 0;
  return static_cast<std::int32_t>(chosen);
}

// Popularity by expert. The popular ones stand anywhere: their place in memory must not matter.
std::vector<double> popularity(std::int64_t n_experts, Skew skew, test::Rng& rng) {
  std::vector<double> weights(static_cast<std::size_t>(n_experts), 1.0);
  const std::vector<std::int32_t> order = shuffled(n_experts, rng);
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    double& weight = weights[static_cast<std::size_t>(order[rank])];
    if (skew == Skew::zipf) weight = 1.0 / static_cast<double>(rank + 1);
    if (skew == Skew::one_hot && rank == 0) weight = 1e12;  // drawn first by every token
  }
  return weights;
}

}  // namespace

std::string_view name(Skew skew) {
  switch (skew) {
    case Skew::uniform:
      return "uniform";
    case Skew::zipf:
      return "zipf";
    case Skew::one_hot:
      return "one-hot";
  }
  return "?";
}

std::span<const Skew> all_skews() {
  return kSkews;
}

DrawnRouting draw_routing(const RoutingShape& shape, Skew skew, std::uint64_t seed) {
  test::Rng rng(seed);
  const std::vector<double> weights = popularity(shape.n_experts, skew, rng);
  DrawnRouting routing{.shape = shape};
  for (std::int64_t t = 0; t < shape.n_tokens; ++t) {
    std::vector<double> left = weights;
    for (std::int64_t s = 0; s < shape.top_k; ++s) routing.experts.push_back(draw_one(left, rng));
  }
  routing.used = routing.experts;
  std::sort(routing.used.begin(), routing.used.end());
  routing.used.erase(std::unique(routing.used.begin(), routing.used.end()), routing.used.end());
  return routing;
}

DrawnRouting DrawnRouting::variant(std::int64_t v) const {
  std::vector<std::int32_t> ring = used;
  for (std::int32_t e = 0; e < shape.n_experts; ++e) {
    if (!std::binary_search(used.begin(), used.end(), e)) ring.push_back(e);
  }
  std::vector<std::int32_t> becomes(static_cast<std::size_t>(shape.n_experts));
  DrawnRouting moved{.shape = shape};
  for (std::size_t i = 0; i < used.size(); ++i) {
    const std::size_t place = (static_cast<std::size_t>(v) * used.size() + i) % ring.size();
    becomes[static_cast<std::size_t>(used[i])] = ring[place];
    moved.used.push_back(ring[place]);
  }
  std::sort(moved.used.begin(), moved.used.end());
  for (const std::int32_t e : experts) moved.experts.push_back(becomes[static_cast<std::size_t>(e)]);
  return moved;
}

std::vector<float> logits_for(const DrawnRouting& routing, std::uint64_t seed) {
  test::Rng rng(seed);
  const auto n_experts = static_cast<std::size_t>(routing.shape.n_experts);
  const auto top_k = static_cast<std::size_t>(routing.shape.top_k);
  std::vector<float> logits(static_cast<std::size_t>(routing.shape.n_tokens) * n_experts);
  for (float& l : logits) l = static_cast<float>(-4 * rng.uniform());
  for (std::size_t pair = 0; pair < routing.experts.size(); ++pair) {
    const std::size_t token = pair / top_k;
    // Between 0.25 and 2, falling with the slot: a chosen expert's lead, as routers give it.
    const double lead = 2.0 - 1.75 * static_cast<double>(pair % top_k) / static_cast<double>(top_k);
    logits[token * n_experts + static_cast<std::size_t>(routing.experts[pair])] = static_cast<float>(lead);
  }
  return logits;
}

}  // namespace conclave::bench
