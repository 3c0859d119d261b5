#include "ops/add.h"

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

void validate(const Add& op) {
  const Check check(op);
  check.tensor("a", op.a, kFloat, {kAny, kAny});
  check.rank("b", op.b, 1, 2);
  if (op.b.rank == 1) {
    check.tensor("b", op.b, kFloat, {op.a.dim(1)});
  } else {
    check.tensor("b", op.b, kFloat, {op.a.dim(0), op.a.dim(1)});
  }
  check.optional("live", op.live, kI32, {1});
  check.tensor("out", op.out, kFloat, {op.a.dim(0), op.a.dim(1)});
}

void reference(const Add& op) {
  const std::int64_t n_live = live_rows(op.live, op.a.dim(0));
  for (std::int64_t r = 0; r < n_live; ++r) {
    for (std::int64_t d = 0; d < op.a.dim(1); ++d) {
      const float b = op.b.rank == 1 ? load(op.b, {d}) : load(op.b, {r, d});
      store(op.out, {r, d}, static_cast<double>(load(op.a, {r, d})) + static_cast<double>(b));
    }
  }
}

}  // namespace conclave
