#include "report/routing_trace.h"

#include <limits>

#include "base/checked.h"
#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {
namespace {

constexpr std::size_t kShownModelBytes = 120;

void require_range(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return;
  fail(ErrorCode::invalid_argument, "routing trace: {} is {}: it must be from {} to {}", name, value, low, high);
}

void require_size(std::string_view name, std::size_t size, std::int64_t wanted) {
  if (static_cast<std::int64_t>(size) == wanted) return;
  fail(ErrorCode::invalid_argument, "routing trace: {} has {} entries, not {}", name, size, wanted);
}

}  // namespace

void validate(const RoutingTrace& trace) {
  require_range("n_layers", trace.n_layers, 1, RoutingTrace::kMaxLayers);
  require_range("n_experts", trace.n_experts, 1, RoutingTrace::kMaxExperts);
  require_range("top_k", trace.top_k, 1, trace.n_experts);
  require_range("the number of tokens", trace.n_tokens(), 1, std::numeric_limits<std::int32_t>::max());
  // At most 2^10 * 2^31 * 2^12: it fits.
  const std::int64_t n_pairs = trace.n_layers * trace.n_tokens() * trace.top_k;
  require_size("experts", trace.experts.size(), n_pairs);
  require_size("weights", trace.weights.size(), n_pairs);
  if (!trace.layer_numbers.empty()) require_size("layer_numbers", trace.layer_numbers.size(), trace.n_layers);
  for (std::size_t i = 0; i < trace.experts.size(); ++i) {
    const std::int32_t expert = trace.experts[i];
    if (expert >= 0 && expert < trace.n_experts) continue;
    const auto row = static_cast<std::int64_t>(i) / trace.top_k;
    fail(ErrorCode::invalid_argument, "routing trace: layer {}, token {}: expert {} is not in 0 to {}",
         trace.layer_number(row / trace.n_tokens()), row % trace.n_tokens(), expert, trace.n_experts - 1);
  }
}

std::string shown_model(const RoutingTrace& trace) {
  return trace.model.empty() ? "(no name)" : printable(trace.model, kShownModelBytes);
}

std::string shown_token(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t special = text.find_first_of("\n\r\t");
    out += printable(text.substr(0, special), std::numeric_limits<std::size_t>::max());
    if (special == std::string_view::npos) break;
    out += text[special] == '\n' ? "\\n" : text[special] == '\r' ? "\\r" : "\\t";
    text.remove_prefix(special + 1);
  }
  return out;
}

}  // namespace conclave
