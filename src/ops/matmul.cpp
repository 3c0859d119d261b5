#include "ops/matmul.h"

#include <cmath>

#include "ops/check.h"
#include "ops/product.h"
#include "ops/scoring.h"

namespace conclave {
namespace {

float canonical_dot(const std::vector<float>& x, const std::vector<float>& w) {
  float chains[32] = {};
  for (std::size_t k = 0; k < x.size(); ++k) chains[k % 32] = std::fmaf(x[k], w[k], chains[k % 32]);
  return fold_chains(chains);
}

}  // namespace

void validate(const Matmul& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny});
  check.tensor("w", op.w, kWeight, {kAny, kAny});
  if (op.x.dim(1) != op.w.dim(1)) {
    check.refuse("x is {}, w is {}: inner dimensions differ", shape_text(op.x.shape()), shape_text(op.w.shape()));
  }
  check.optional("bias", op.bias, kFloat, {op.w.dim(0)});
  check.optional("live", op.live, kI32, {1});
  check.tensor("out", op.out, kFloat, {op.x.dim(0), op.w.dim(0)});
  if (op.order == Order::canonical) {
    check.tensor("x", op.x, kF32, {kAny, kAny});
    check.tensor("w", op.w, kFloat, {kAny, kAny});
    check.tensor("out", op.out, kF32, {kAny, kAny});
    check.optional("bias", op.bias, kF32, {kAny});
  }
}

void reference(const Matmul& op) {
  Rows x;
  for (std::int64_t m = 0; m < live_rows(op.live, op.x.dim(0)); ++m) x.push_back(load_row(op.x, {m}));
  if (op.order == Order::canonical) {
    for (std::int64_t n = 0; n < op.w.dim(0); ++n) {
      const std::vector<float> w = load_row(op.w, {n});
      for (std::size_t m = 0; m < x.size(); ++m) {
        float value = canonical_dot(x[m], w);
        if (op.bias.defined()) value += load(op.bias, {n});
        store(op.out, {static_cast<std::int64_t>(m), n}, static_cast<double>(value));
      }
    }
    return;
  }
  product(x, op.w, [&](std::size_t m, std::int64_t n, double value) {
    if (op.bias.defined()) value += static_cast<double>(load(op.bias, {n}));
    store(op.out, {static_cast<std::int64_t>(m), n}, value);
  });
}

}  // namespace conclave
