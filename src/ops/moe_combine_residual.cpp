#include "ops/moe_combine_residual.h"

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

void validate(const MoeCombineResidual& op) {
  const Check check(op);
  check.tensor("residual", op.residual, kFloat, {kAny, kAny});
  check_combine(check, op.from, op.residual.dim(0), op.residual.dim(1));
}

void reference(const MoeCombineResidual& op) {
  const std::int64_t d_model = op.residual.dim(1);
  const std::int64_t n_live = live_rows(op.from.live, op.residual.dim(0));
  for (std::int64_t t = 0; t < n_live; ++t) {
    const std::vector<double> sum = combined_token(op.from, t, d_model);
    for (std::int64_t d = 0; d < d_model; ++d) {
      const double combined = static_cast<double>(static_cast<float>(sum[static_cast<std::size_t>(d)]));
      store(op.residual, {t, d}, static_cast<double>(load(op.residual, {t, d})) + combined);
    }
  }
}

}  // namespace conclave
