#include "ops/moe_group.h"

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

std::vector<std::vector<std::int32_t>> pairs_of_experts(const Tensor& experts, const Tensor& live,
                                                        std::int64_t n_experts) {
  std::vector<std::vector<std::int32_t>> pairs(static_cast<std::size_t>(n_experts));
  const std::int64_t top_k = experts.dim(1);
  const std::int64_t n_live = live_rows(live, experts.dim(0));
  for (std::int64_t t = 0; t < n_live; ++t) {
    for (std::int64_t s = 0; s < top_k; ++s) {
      const std::int32_t e = load_i32(experts, {t, s});
      if (e < 0 || e >= n_experts) continue;
      pairs[static_cast<std::size_t>(e)].push_back(static_cast<std::int32_t>(t * top_k + s));
    }
  }
  return pairs;
}

void check_grouping(const Check& check, const Tensor& experts, const Tensor& live, std::int64_t n_experts) {
  check.tensor("experts", experts, kI32, {kAny, kAny});
  check.pairs(experts.dim(0), experts.dim(1));
  check.optional("live", live, kI32, {1});
  check.between("n_experts", n_experts, 1, kMaxExperts);
}

void validate(const MoeGroup& op) {
  const Check check(op);
  check_grouping(check, op.experts, op.live, op.n_experts);
  const std::int64_t n_tokens = op.experts.dim(0);
  const std::int64_t top_k = op.experts.dim(1);
  check.tensor("offsets", op.out.offsets, kI32, {op.n_experts + 1});
  check.tensor("row_pair", op.out.row_pair, kI32, {n_tokens * top_k});
  check.tensor("pair_row", op.out.pair_row, kI32, {n_tokens, top_k});
}

void reference(const MoeGroup& op) {
  const std::int64_t n_tokens = op.experts.dim(0);
  const std::int64_t top_k = op.experts.dim(1);
  for (std::int64_t t = 0; t < n_tokens; ++t) {
    for (std::int64_t s = 0; s < top_k; ++s) store_i32(op.out.pair_row, {t, s}, -1);
  }
  std::int64_t row = 0;
  std::int64_t expert = 0;
  for (const auto& pairs : pairs_of_experts(op.experts, op.live, op.n_experts)) {
    store_i32(op.out.offsets, {expert++}, row);
    for (const std::int32_t pair : pairs) {
      store_i32(op.out.row_pair, {row}, pair);
      store_i32(op.out.pair_row, {pair / top_k, pair % top_k}, row);
      ++row;
    }
  }
  store_i32(op.out.offsets, {op.n_experts}, row);
  for (; row < n_tokens * top_k; ++row) store_i32(op.out.row_pair, {row}, -1);
}

}  // namespace conclave
