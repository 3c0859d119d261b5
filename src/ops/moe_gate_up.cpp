#include "ops/moe_gate_up.h"

#include <algorithm>

#include "ops/check.h"
#include "ops/product.h"

namespace conclave {

void validate(const MoeGateUp& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny});
  check.tensor("gate", op.gate, kWeight, {kAny, kAny, op.x.dim(1)});
  check.between("the number of experts", op.gate.dim(0), 0, kMaxExperts);
  check.tensor("up", op.up, kWeight, {op.gate.dim(0), op.gate.dim(1), op.x.dim(1)});
  check.between("top_k", op.top_k, 1, 1 << 20);
  check.pairs(op.x.dim(0), op.top_k);
  const std::int64_t n_pairs = op.x.dim(0) * op.top_k;
  check.tensor("offsets", op.offsets, kI32, {op.gate.dim(0) + 1});
  check.tensor("row_pair", op.row_pair, kI32, {n_pairs});
  check.tensor("out", op.out, kFloat, {n_pairs, op.gate.dim(1)});
}

void reference(const MoeGateUp& op) {
  const std::int64_t n_pairs = op.row_pair.dim(0);
  for (std::int64_t e = 0; e < op.gate.dim(0); ++e) {
    Rows x;
    std::vector<std::int64_t> packed;
    const std::int64_t begin = std::max<std::int64_t>(load_i32(op.offsets, {e}), 0);
    const std::int64_t end = std::min<std::int64_t>(load_i32(op.offsets, {e + 1}), n_pairs);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t pair = load_i32(op.row_pair, {r});
      if (pair < 0 || pair >= n_pairs) continue;
      packed.push_back(r);
      x.push_back(load_row(op.x, {pair / op.top_k}));
    }
    if (x.empty()) continue;
    const std::int64_t d_ff = op.gate.dim(1);
    std::vector<float> gate(x.size() * static_cast<std::size_t>(d_ff));
    const auto at = [&](std::size_t m, std::int64_t n) {
      return m * static_cast<std::size_t>(d_ff) + static_cast<std::size_t>(n);
    };
    product(x, select_outer(op.gate, e),
            [&](std::size_t m, std::int64_t n, double g) { gate[at(m, n)] = static_cast<float>(g); });
    product(x, select_outer(op.up, e), [&](std::size_t m, std::int64_t n, double u) {
      const double g = static_cast<double>(gate[at(m, n)]);
      store(op.out, {packed[m], n}, activate(op.act, g) * static_cast<double>(static_cast<float>(u)));
    });
  }
}

}  // namespace conclave
