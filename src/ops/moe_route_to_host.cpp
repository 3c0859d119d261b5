#include "ops/moe_route_to_host.h"

#include "ops/check.h"

namespace conclave {

void validate(const MoeRouteToHost& op) {
  const Check check(op);
  if (op.out.no_finite.defined()) check.refuse("no_finite is a device-side counter: use moe_route");
  if (op.out.counts.defined()) check.refuse("counts is a device-side counter: use moe_route");
  validate(op.route());
}

void reference(const MoeRouteToHost& op) {
  reference(op.route());
}

}  // namespace conclave
