// Grouping pairs by expert, on one thread: a stable counting sort. The ops that show a routing sorted by expert are
// made of it.
#pragma once

#include "ops/host_access.h"
#include "ops/moe_group.h"

namespace conclave {

// visit(expert, pair, token) for every valid pair, in pair order.
template <class Visit>
void for_each_pair(const Tensor& experts, const Tensor& live, std::int64_t n_experts, Visit&& visit) {
  const std::int64_t top_k = experts.dim(1);
  const std::int64_t n_live = top_k > 0 ? live_rows(live, experts.dim(0)) : 0;
  for (std::int64_t t = 0; t < n_live; ++t) {
    const auto* row = reinterpret_cast<const std::int32_t*>(row_address(experts, {t}));
    for (std::int64_t s = 0; s < top_k; ++s) {
      if (row[s] >= 0 && row[s] < n_experts) visit(row[s], static_cast<std::int32_t>(t * top_k + s), t);
    }
  }
}

// counts[e] = valid pairs of expert e.
void count_pairs(const Tensor& experts, const Tensor& live, std::int64_t n_experts, std::int32_t* counts);

// The whole op. `counts` has room for n_experts numbers; it does not allocate.
void group_pairs(const MoeGroup& op, std::int32_t* counts);

}  // namespace conclave
