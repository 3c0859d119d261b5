#include "ops/moe_pairs_by_token.h"

#include "ops/check.h"
#include "ops/host_access.h"
#include "ops/moe_group.h"

namespace conclave {

void validate(const MoePairsByToken& op) {
  const Check check(op);
  check_grouping(check, op.experts, op.live, op.n_experts);
  const std::int64_t n_tokens = op.experts.dim(0);
  const std::int64_t top_k = op.experts.dim(1);
  check.tensor("packed_row", op.packed_row, kI32, {n_tokens, top_k});
  check.tensor("row_token", op.row_token, kI32, {n_tokens * top_k});
  check.tensor("offsets", op.offsets, kI32, {op.n_experts + 1});
}

void reference(const MoePairsByToken& op) {
  // Grouped as moe_group does, into its row_pair: here the place of the tokens.
  reference(MoeGroup{.experts = op.experts,
                     .live = op.live,
                     .n_experts = op.n_experts,
                     .out = {.offsets = op.offsets, .row_pair = op.row_token, .pair_row = op.packed_row}});
  for (std::int64_t r = 0; r < op.row_token.dim(0); ++r) {
    const std::int32_t pair = load_i32(op.row_token, {r});
    if (pair >= 0) store_i32(op.row_token, {r}, pair / op.experts.dim(1));
  }
}

}  // namespace conclave
