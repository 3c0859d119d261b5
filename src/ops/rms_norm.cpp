#include "ops/rms_norm.h"

#include <cmath>

#include "ops/check.h"
#include "ops/host_access.h"
#include "ops/rows.h"

namespace conclave {

void validate(const RmsNorm& op) {
  const Check check(op);
  check.rank("x", op.x, 2, 3);
  if (op.x.rank == 2) {
    check.tensor("x", op.x, kFloat, {kAny, kAny});
    check.tensor("out", op.out, kFloat, {op.x.dim(0), op.x.dim(1)});
  } else {
    check.tensor("x", op.x, kFloat, {kAny, kAny, kAny});
    check.tensor("out", op.out, kFloat, {op.x.dim(0), op.x.dim(1), op.x.dim(2)});
  }
  check.tensor("weight", op.weight, kFloat, {op.x.inner()});
  check.optional("live", op.live, kI32, {1});
  check.positive("eps", static_cast<double>(op.eps));
}

void reference(const RmsNorm& op) {
  const std::int64_t heads = op.x.rank == 3 ? op.x.dim(1) : 1;
  const std::int64_t n_rows = live_rows(op.live, op.x.dim(0)) * heads;
  const std::int64_t d = op.x.inner();
  for (std::int64_t r = 0; r < n_rows; ++r) {
    const std::vector<float> x = load_row(flat_row(op.x, r), {});
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(d) + static_cast<double>(op.eps));
    const Tensor out = flat_row(op.out, r);
    for (std::int64_t i = 0; i < d; ++i) {
      store(out, {i},
            static_cast<double>(x[static_cast<std::size_t>(i)]) * inverse * static_cast<double>(load(op.weight, {i})));
    }
  }
}

}  // namespace conclave
