#include "ops/moe_shared_expert.h"

#include "ops/check.h"
#include "ops/product.h"

namespace conclave {

void validate(const MoeSharedExpert& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny});
  const std::int64_t n_tokens = op.x.dim(0);
  const std::int64_t d_model = op.x.dim(1);
  check.tensor("shared_gate", op.gate, kWeight, {kAny, d_model});
  const std::int64_t d_shared = op.gate.dim(0);
  check.tensor("shared_up", op.up, kWeight, {d_shared, d_model});
  check.tensor("shared_down", op.down, kWeight, {d_model, d_shared});
  check.optional("shared_gate_inp", op.gate_inp, kFloat, {d_model});
  check.optional("live", op.live, kI32, {1});
  check.tensor("shared_hidden", op.hidden, kFloat, {n_tokens, d_shared});
  check.tensor("out", op.out, kFloat, {n_tokens, d_model});
}

void reference(const MoeSharedExpert& op) {
  const std::int64_t n_live = live_rows(op.live, op.x.dim(0));
  Rows x;
  for (std::int64_t t = 0; t < n_live; ++t) x.push_back(load_row(op.x, {t}));
  for (std::int64_t t = 0; t < n_live; ++t) {
    const Rows row = {x[static_cast<std::size_t>(t)]};
    std::vector<float> gate(static_cast<std::size_t>(op.gate.dim(0)));
    product(row, op.gate,
            [&](std::size_t, std::int64_t n, double g) { gate[static_cast<std::size_t>(n)] = static_cast<float>(g); });
    product(row, op.up, [&](std::size_t, std::int64_t n, double u) {
      const double g = static_cast<double>(gate[static_cast<std::size_t>(n)]);
      store(op.hidden, {t, n}, activate(op.act, g) * static_cast<double>(static_cast<float>(u)));
    });
    const double share = op.gate_inp.defined() ? sigmoid(dot(row[0], load_row(op.gate_inp, {}))) : 1.0;
    product({load_row(op.hidden, {t})}, op.down, [&](std::size_t, std::int64_t n, double y) {
      store(op.out, {t, n}, share * static_cast<double>(static_cast<float>(y)));
    });
  }
}

}  // namespace conclave
