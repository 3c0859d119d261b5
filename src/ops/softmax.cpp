#include "ops/softmax.h"

#include <cmath>

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

void validate(const Softmax& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny});
  if (op.x.dim(1) < 1) check.refuse("x is {}: rows are empty", shape_text(op.x.shape()));
  check.optional("live", op.live, kI32, {1});
  check.positive("scale", static_cast<double>(op.scale));
  check.tensor("out", op.out, kFloat, {op.x.dim(0), op.x.dim(1)});
}

void reference(const Softmax& op) {
  const std::int64_t n_live = live_rows(op.live, op.x.dim(0));
  for (std::int64_t r = 0; r < n_live; ++r) {
    std::vector<double> x;
    double max = -INFINITY;
    for (const float value : load_row(op.x, {r})) {
      x.push_back(static_cast<double>(value) * static_cast<double>(op.scale));
      max = std::isnan(x.back()) ? x.back() : (x.back() > max ? x.back() : max);
    }
    double sum = 0;
    for (double& value : x) sum += value = std::exp(value - max);
    for (std::int64_t d = 0; d < op.x.dim(1); ++d) store(op.out, {r, d}, x[static_cast<std::size_t>(d)] / sum);
  }
}

}  // namespace conclave
