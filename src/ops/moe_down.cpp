#include "ops/moe_down.h"

#include <algorithm>

#include "ops/check.h"
#include "ops/product.h"

namespace conclave {

void validate(const MoeDown& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny});
  check.tensor("down", op.down, kWeight, {kAny, kAny, op.x.dim(1)});
  check.between("the number of experts", op.down.dim(0), 0, kMaxExperts);
  check.pairs(op.x.dim(0), 1);
  check.tensor("offsets", op.offsets, kI32, {op.down.dim(0) + 1});
  check.tensor("out", op.out, kFloat, {op.x.dim(0), op.down.dim(1)});
}

void reference(const MoeDown& op) {
  for (std::int64_t e = 0; e < op.down.dim(0); ++e) {
    const std::int64_t begin = std::max<std::int64_t>(load_i32(op.offsets, {e}), 0);
    const std::int64_t end = std::min<std::int64_t>(load_i32(op.offsets, {e + 1}), op.x.dim(0));
    Rows x;
    for (std::int64_t r = begin; r < end; ++r) x.push_back(load_row(op.x, {r}));
    if (x.empty()) continue;
    product(x, select_outer(op.down, e), [&](std::size_t m, std::int64_t n, double value) {
      store(op.out, {begin + static_cast<std::int64_t>(m), n}, value);
    });
  }
}

}  // namespace conclave
