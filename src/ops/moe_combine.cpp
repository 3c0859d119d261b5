#include "ops/moe_combine.h"

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

void check_combine(const Check& check, const CombineInput& from, std::int64_t n_tokens, std::int64_t d_model) {
  check.tensor("weights", from.weights, kF32, {n_tokens, kAny});
  const std::int64_t top_k = from.weights.dim(1);
  check.pairs(n_tokens, top_k);
  check.rank("rows", from.rows, 2, 3);
  if (from.rows.rank == 2) {
    check.tensor("rows", from.rows, kFloat, {n_tokens * top_k, d_model});
    check.tensor("pair_row", from.pair_row, kI32, {n_tokens, top_k});
    if (from.experts.defined()) check.refuse("experts go with rows in slots: rows is packed");
  } else {
    check.tensor("rows", from.rows, kFloat, {n_tokens, top_k, d_model});
    check.tensor("experts", from.experts, kI32, {n_tokens, top_k});
    check.between("n_experts", from.n_experts, 1, kMaxExperts);
    if (from.pair_row.defined()) check.refuse("pair_row goes with packed rows: rows is in slots");
  }
  check.optional("shared", from.shared, kFloat, {n_tokens, d_model});
  check.optional("live", from.live, kI32, {1});
}

Tensor combined_row(const CombineInput& from, std::int64_t token, std::int64_t slot) {
  if (from.rows.rank == 2) {
    const std::int32_t row = load_i32(from.pair_row, {token, slot});
    return row < 0 || row >= from.rows.dim(0) ? Tensor{} : select_outer(from.rows, row);
  }
  const std::int32_t expert = load_i32(from.experts, {token, slot});
  return expert < 0 || expert >= from.n_experts ? Tensor{} : select_outer(select_outer(from.rows, token), slot);
}

std::vector<double> combined_token(const CombineInput& from, std::int64_t token, std::int64_t d_model) {
  std::vector<double> sum(static_cast<std::size_t>(d_model), 0.0);
  for (std::int64_t slot = 0; slot < from.weights.dim(1); ++slot) {
    const Tensor row = combined_row(from, token, slot);
    if (!row.defined()) continue;
    const double weight = static_cast<double>(load(from.weights, {token, slot}));
    for (std::int64_t d = 0; d < d_model; ++d) {
      sum[static_cast<std::size_t>(d)] += weight * static_cast<double>(load(row, {d}));
    }
  }
  for (std::int64_t d = 0; d < d_model && from.shared.defined(); ++d) {
    sum[static_cast<std::size_t>(d)] += static_cast<double>(load(from.shared, {token, d}));
  }
  return sum;
}

void validate(const MoeCombine& op) {
  const Check check(op);
  check.tensor("out", op.out, kFloat, {kAny, kAny});
  check_combine(check, op.from, op.out.dim(0), op.out.dim(1));
}

void reference(const MoeCombine& op) {
  const std::int64_t d_model = op.out.dim(1);
  const std::int64_t n_live = live_rows(op.from.live, op.out.dim(0));
  for (std::int64_t t = 0; t < n_live; ++t) {
    const std::vector<double> sum = combined_token(op.from, t, d_model);
    for (std::int64_t d = 0; d < d_model; ++d) store(op.out, {t, d}, sum[static_cast<std::size_t>(d)]);
  }
}

}  // namespace conclave
