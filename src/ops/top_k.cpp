#include "ops/top_k.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/float_order.h"
#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kNothing = -std::numeric_limits<float>::infinity();

float ranked_value(float x) {
  return x > kNothing ? std::min(x, kLargest) + 0.0F : kNothing;
}

std::uint64_t top_key(float x, std::int32_t index) {
  const float value = ranked_value(x);
  if (value == kNothing) return 0;
  return std::uint64_t{ascending_bits(value)} << 32 | ~static_cast<std::uint32_t>(index);
}
std::int32_t index_of_key(std::uint64_t key) {
  return key == 0 ? -1 : static_cast<std::int32_t>(~static_cast<std::uint32_t>(key));
}
float value_of_key(std::uint64_t key) {
  return key == 0 ? kNothing : from_ascending_bits(static_cast<std::uint32_t>(key >> 32));
}

void validate(const TopK& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny});
  check.between("the length of a row", op.x.dim(1), 1, INT32_MAX);
  check.optional("live", op.live, kI32, {1});
  check.tensor("ids", op.ids, kI32, {op.x.dim(0), kAny});
  check.between("k", op.ids.dim(1), 1, TopK::kMostPlaces);
  check.tensor("values", op.values, kF32, {op.x.dim(0), op.ids.dim(1)});
}

void reference(const TopK& op) {
  const std::int64_t k = op.ids.dim(1);
  for (std::int64_t r = 0; r < live_rows(op.live, op.x.dim(0)); ++r) {
    std::vector<std::uint64_t> keys(static_cast<std::size_t>(std::max(k, op.x.dim(1))));
    for (std::int64_t i = 0; i < op.x.dim(1); ++i) {
      keys[static_cast<std::size_t>(i)] = top_key(load(op.x, {r, i}), static_cast<std::int32_t>(i));
    }
    std::sort(keys.begin(), keys.end(), std::greater<>());
    for (std::int64_t i = 0; i < k; ++i) {
      store_i32(op.ids, {r, i}, index_of_key(keys[static_cast<std::size_t>(i)]));
      store(op.values, {r, i}, value_of_key(keys[static_cast<std::size_t>(i)]));
    }
  }
}

}  // namespace conclave
