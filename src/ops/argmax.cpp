#include "ops/argmax.h"

#include <cmath>

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

void validate(const Argmax& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny});
  check.between("the length of a row", op.x.dim(1), 1, INT32_MAX);
  check.optional("live", op.live, kI32, {1});
  check.tensor("ids", op.ids, kI32, {op.x.dim(0)});
}

void reference(const Argmax& op) {
  const std::int64_t n_live = live_rows(op.live, op.x.dim(0));
  for (std::int64_t r = 0; r < n_live; ++r) {
    std::int64_t winner = -1;
    float best = -INFINITY;
    for (std::int64_t d = 0; d < op.x.dim(1); ++d) {
      const float value = load(op.x, {r, d});
      if (value > best) {  // false for NaN and for ties
        best = value;
        winner = d;
      }
    }
    store_i32(op.ids, {r}, winner);
  }
}

}  // namespace conclave
