// Routings as models produce them, and as they go wrong: drawn on the host, and turned into the router logits that
// choose them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace conclave::bench {

enum class Skew {
  uniform,  // every expert is as likely as any other
  zipf,     // the n-th most popular expert has weight 1/n
  one_hot,  // one expert serves every token; the other slots are uniform
};
std::string_view name(Skew skew);
std::span<const Skew> all_skews();

struct RoutingShape {
  std::int64_t n_tokens = 0;
  std::int64_t n_experts = 0;
  std::int64_t top_k = 0;
};

struct DrawnRouting {
  RoutingShape shape;
  std::vector<std::int32_t> experts;  // [n_tokens, top_k], best first, distinct within a token
  std::vector<std::int32_t> used;     // the distinct experts, ascending

  std::int64_t n_distinct() const { return static_cast<std::int64_t>(used.size()); }
  // The same routing on other experts: variant v uses the experts that follow those of variant v - 1, in a ring that
  // begins with `used`. Runs that go through the variants in order meet an expert again as late as can be.
  DrawnRouting variant(std::int64_t v) const;
  // How many variants have no expert in common.
  std::int64_t n_variants() const { return n_distinct() > 0 ? shape.n_experts / n_distinct() : 1; }
};

DrawnRouting draw_routing(const RoutingShape& shape, Skew skew, std::uint64_t seed);

// f32 [n_tokens, n_experts]: top-k of them are the experts of the routing, in its order.
std::vector<float> logits_for(const DrawnRouting& routing, std::uint64_t seed);

}  // namespace conclave::bench
