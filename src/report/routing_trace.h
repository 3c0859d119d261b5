// Which experts served which token: what every form of the report is made from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace conclave {

struct TracedToken {
  std::int32_t id = 0;
  std::string text;  // any bytes: a token may be half a character
};

// Expert layers only: a model may have dense layers between them. [l][t][s] lies at (l * n_tokens + t) * top_k + s, slots
// in the order in which the router chose.
struct RoutingTrace {
  static constexpr std::int64_t kMaxLayers = 1024;
  static constexpr std::int64_t kMaxExperts = 4096;

  std::string model;         // the name to show: any bytes
  std::string architecture;  // likewise
  std::int64_t n_layers = 0;
  std::int64_t n_experts = 0;
  std::int64_t top_k = 0;
  std::vector<std::int32_t> layer_numbers;  // [n_layers]: as the model counts them, ascending; empty: 0, 1, 2 ...
  std::vector<TracedToken> tokens;
  std::vector<std::int32_t> experts;  // [n_layers][n_tokens][top_k]
  std::vector<float> weights;         // [n_layers][n_tokens][top_k]

  std::int64_t n_tokens() const { return static_cast<std::int64_t>(tokens.size()); }
  std::int32_t layer_number(std::int64_t layer) const {
    return layer_numbers.empty() ? static_cast<std::int32_t>(layer) : layer_numbers[static_cast<std::size_t>(layer)];
  }
  std::size_t pair(std::int64_t layer, std::int64_t token, std::int64_t slot) const {
    return static_cast<std::size_t>((layer * n_tokens() + token) * top_k + slot);
  }
};

// At least one layer, expert, slot and token, arrays of the right sizes, every expert in 0 .. n_experts-1; throws Error
// where not. What takes a trace below wants it validated.
void validate(const RoutingTrace& trace);

// A name out of a file as it is shown: one line, no control characters, not too long.
std::string shown_model(const RoutingTrace& trace);

// A token's bytes as one line: what would break or hide it is escaped (\n, \t, \x1b), a leading or lone blank stays.
std::string shown_token(std::string_view text);

}  // namespace conclave
