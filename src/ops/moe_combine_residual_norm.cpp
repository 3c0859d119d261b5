#include "ops/moe_combine_residual_norm.h"

#include "ops/check.h"
#include "ops/rms_norm.h"

namespace conclave {
namespace {

RmsNorm norm_of(const MoeCombineResidualNorm& op) {
  return {.x = op.residual, .weight = op.next.weight, .live = op.from.live, .eps = op.next.eps, .out = op.next.out};
}

}  // namespace

void validate(const MoeCombineResidualNorm& op) {
  const Check check(op);
  validate(MoeCombineResidual{.from = op.from, .residual = op.residual});
  check.given("norm_weight", op.next.weight);
  check.given("normed", op.next.out);
  validate(norm_of(op));
}

void reference(const MoeCombineResidualNorm& op) {
  reference(MoeCombineResidual{.from = op.from, .residual = op.residual});
  reference(norm_of(op));
}

}  // namespace conclave
