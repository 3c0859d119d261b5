#include "ops/moe_routing_upload.h"

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {
namespace {

void copy_padded(const Tensor& from, const Tensor& to, std::int64_t padding) {
  for (std::int64_t i = 0; i < to.dim(0); ++i) {
    store_i32(to, {i}, i < from.dim(0) ? load_i32(from, {i}) : padding);
  }
}

}  // namespace

void validate(const MoeRoutingUpload& op) {
  const Check check(op);
  if (op.from_blocks.sorted_ids.defined()) {
    if (op.from.experts.defined() || op.from.weights.defined() || op.to.experts.defined() || op.to.weights.defined()) {
      check.refuse("a routing and an aligned triple were given: one at a time");
    }
    const AlignedBlocks& from = op.from_blocks;
    const AlignedBlocks& to = op.to_blocks;
    check.tensor("from_sorted_ids", from.sorted_ids, kI32, {kAny});
    check.tensor("from_block_expert", from.block_expert, kI32, {kAny});
    check.tensor("from_n_padded", from.n_padded, kI32, {1});
    check.tensor("sorted_ids", to.sorted_ids, kI32, {kAny});
    check.tensor("block_expert", to.block_expert, kI32, {kAny});
    check.tensor("n_padded", to.n_padded, kI32, {1});
    check.pairs(op.n_pairs, 1);
    if (op.n_pairs < 0) check.refuse("n_pairs is {}", op.n_pairs);
    if (to.sorted_ids.dim(0) < from.sorted_ids.dim(0) || to.block_expert.dim(0) < from.block_expert.dim(0)) {
      check.refuse("{} ids and {} blocks do not fit into {} and {}", from.sorted_ids.dim(0), from.block_expert.dim(0),
                   to.sorted_ids.dim(0), to.block_expert.dim(0));
    }
    const std::int32_t padded = load_i32(from.n_padded, {0});
    if (padded < 0 || padded > from.sorted_ids.dim(0)) {
      check.refuse("n_padded is {}, but there are {} ids", padded, from.sorted_ids.dim(0));
    }
    return;
  }
  for (const AlignedBlocks& blocks : {op.from_blocks, op.to_blocks}) {
    if (blocks.sorted_ids.defined() || blocks.block_expert.defined() || blocks.n_padded.defined()) {
      check.refuse("a routing and parts of an aligned triple were given: one at a time");
    }
  }
  check.tensor("from_experts", op.from.experts, kI32, {kAny, kAny});
  const std::int64_t n_tokens = op.from.experts.dim(0);
  const std::int64_t top_k = op.from.experts.dim(1);
  check.pairs(n_tokens, top_k);
  check.tensor("from_weights", op.from.weights, kF32, {n_tokens, top_k});
  check.tensor("experts", op.to.experts, kI32, {n_tokens, top_k});
  check.tensor("weights", op.to.weights, kF32, {n_tokens, top_k});
}

void reference(const MoeRoutingUpload& op) {
  if (op.from_blocks.sorted_ids.defined()) {
    copy_padded(op.from_blocks.sorted_ids, op.to_blocks.sorted_ids, op.n_pairs);
    copy_padded(op.from_blocks.block_expert, op.to_blocks.block_expert, -1);
    copy_padded(op.from_blocks.n_padded, op.to_blocks.n_padded, 0);
    return;
  }
  for (std::int64_t t = 0; t < op.from.experts.dim(0); ++t) {
    for (std::int64_t s = 0; s < op.from.experts.dim(1); ++s) {
      store_i32(op.to.experts, {t, s}, load_i32(op.from.experts, {t, s}));
      store_i32(op.to.weights, {t, s}, load_i32(op.from.weights, {t, s}));  // the bits, NaN payloads included
    }
  }
}

}  // namespace conclave
