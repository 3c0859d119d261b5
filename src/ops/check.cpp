#include "ops/check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"

namespace conclave {
namespace {

std::string type_names(std::span<const DType> types) {
  std::vector<std::string_view> names;
  for (const DType type : types) names.push_back(dtype_info(type).name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool matches(std::span<const std::int64_t> dims, std::initializer_list<std::int64_t> expected) {
  return std::equal(dims.begin(), dims.end(), expected.begin(), expected.end(),
                    [](std::int64_t is, std::int64_t want) { return want == kAny || is == want; });
}

std::string expected_text(std::initializer_list<std::int64_t> dims) {
  std::string text = "[";
  for (const std::int64_t d : dims) {
    if (text.size() > 1) text += ',';
    text += d == kAny ? "any" : std::to_string(d);
  }
  return text + "]";
}

// Two rows of a written tensor must not share bytes.
bool folds_onto_itself(const Tensor& t) {
  std::int64_t inner = row_bytes(t);
  for (int i = t.rank - 2; i >= 0; --i) {
    if (t.dim(i) > 1 && t.stride(i) < inner) return true;
    inner = t.dim(i) > 1 ? (t.dim(i) - 1) * t.stride(i) + inner : inner;
  }
  return false;
}

}  // namespace

void Check::views(std::span<const Member> members, bool in_place) const {
  for (const Member& m : members) {
    if (const std::string fault = fault_of_view(*m.tensor); !fault.empty()) refuse("{} {}", m.name, fault);
    if (is_host(m.role) && m.tensor->buffer->host() == nullptr) refuse("{} is not in host memory", m.name);
    if (writes(m.role) && !byte_range(*m.tensor).empty() && folds_onto_itself(*m.tensor)) {
      refuse("{} is written, but its rows overlap", m.name);
    }
  }
  for (const Member& written : members) {
    if (!writes(written.role)) continue;
    for (const Member& other : members) {
      if (&other == &written || other.tensor->buffer != written.tensor->buffer) continue;
      if (!byte_range(*written.tensor).overlaps(byte_range(*other.tensor))) continue;
      if (in_place && !writes(other.role) && *written.tensor == *other.tensor) continue;
      refuse("{} is written and overlaps {}", written.name, other.name);
    }
  }
}

void Check::given(std::string_view name, const Tensor& t) const {
  if (!t.defined()) refuse("{} is missing", name);
}

void Check::rank(std::string_view name, const Tensor& t, int low, int high) const {
  given(name, t);
  if (t.rank < low || t.rank > high) {
    refuse("{} is {}, expected {} to {} dimensions", name, shape_text(t.shape()), low, high);
  }
}

void Check::tensor(std::string_view name, const Tensor& t, std::span<const DType> types,
                   std::initializer_list<std::int64_t> dims) const {
  given(name, t);
  if (std::find(types.begin(), types.end(), t.dtype) == types.end()) {
    refuse("{} is {}, expected {}", name, dtype_info(t.dtype).name, type_names(types));
  }
  if (!matches(t.shape(), dims)) refuse("{} is {}, expected {}", name, shape_text(t.shape()), expected_text(dims));
}

void Check::between(std::string_view name, std::int64_t value, std::int64_t low, std::int64_t high) const {
  if (value < low || value > high) refuse("{} is {}, expected {} to {}", name, value, low, high);
}

void Check::positive(std::string_view name, double value) const {
  if (!(std::isfinite(value) && value > 0)) refuse("{} is {}, expected a finite number above 0", name, value);
}

void Check::finite(std::string_view name, double value) const {
  if (!std::isfinite(value)) refuse("{} is {}, expected a finite number", name, value);
}

void Check::pairs(std::int64_t n_tokens, std::int64_t top_k) const {
  const auto pairs = checked_mul(n_tokens, top_k);
  if (!pairs || *pairs >= std::numeric_limits<std::int32_t>::max()) {
    refuse("{} tokens with {} experts each: pair ids are 32-bit", n_tokens, top_k);
  }
}

}  // namespace conclave
