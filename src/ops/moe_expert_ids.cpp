#include "ops/moe_expert_ids.h"

#include <algorithm>
#include <limits>

#include "ops/check.h"
#include "ops/host_access.h"
#include "ops/moe_group.h"

namespace conclave {
namespace {

constexpr std::int64_t kMaxDim = std::numeric_limits<std::int32_t>::max();

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

void store_grid(const Tensor& grid, std::int64_t rows, std::int64_t columns, std::int64_t experts) {
  store_i32(grid, {0}, rows);
  store_i32(grid, {1}, columns);
  store_i32(grid, {2}, experts);
}

}  // namespace

void validate(const MoeExpertIds& op) {
  const Check check(op);
  check_grouping(check, op.experts, op.live, op.n_experts);
  check.between("nr0", op.nr0, 1, kMaxDim);
  check.between("nr1", op.nr1, 1, kMaxDim);
  check.between("d_ff", op.d_ff, 1, kMaxDim);
  check.between("d_model", op.d_model, 1, kMaxDim);
  check.tensor("ids", op.ids, kI32, {op.n_experts, kAny});
  const std::int64_t n_pairs = op.experts.dim(0) * op.experts.dim(1);
  if (op.ids.dim(1) < n_pairs)
    check.refuse("row_stride is {}, but one expert may get {} pairs", op.ids.dim(1), n_pairs);
  check.tensor("tpe", op.tpe, kI32, {op.n_experts});
  check.tensor("max_rows", op.max_rows, kI32, {1});
  check.tensor("grid_gate_up", op.grid_gate_up, kU32, {3});
  check.tensor("grid_down", op.grid_down, kU32, {3});
}

void reference(const MoeExpertIds& op) {
  std::int64_t max_rows = 0;
  std::int64_t expert = 0;
  for (const auto& pairs : pairs_of_experts(op.experts, op.live, op.n_experts)) {
    std::int64_t i = 0;
    for (const std::int32_t pair : pairs) store_i32(op.ids, {expert, i++}, pair);
    store_i32(op.tpe, {expert++}, i);
    max_rows = std::max(max_rows, i);
  }
  store_i32(op.max_rows, {0}, max_rows);
  const std::int64_t row_blocks = std::max<std::int64_t>(1, ceil_div(max_rows, op.nr1));
  store_grid(op.grid_gate_up, row_blocks, ceil_div(op.d_ff, op.nr0), op.n_experts);
  store_grid(op.grid_down, row_blocks, ceil_div(op.d_model, op.nr0), op.n_experts);
}

}  // namespace conclave
