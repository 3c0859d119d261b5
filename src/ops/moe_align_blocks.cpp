#include "ops/moe_align_blocks.h"

#include "ops/check.h"
#include "ops/host_access.h"
#include "ops/moe_group.h"

namespace conclave {

void validate(const MoeAlignBlocks& op) {
  const Check check(op);
  check_grouping(check, op.experts, op.live, op.n_experts);
  check.between("block_size", op.block_size, 1, MoeAlignBlocks::kMaxBlockSize);
  const std::int64_t n_pairs = op.experts.dim(0) * op.experts.dim(1);
  const std::int64_t blocks = worst_case_blocks(n_pairs, op.n_experts, op.block_size);
  check.pairs(blocks, op.block_size);
  check.tensor("sorted_ids", op.out.sorted_ids, kI32, {kAny});
  check.tensor("block_expert", op.out.block_expert, kI32, {kAny});
  check.tensor("n_padded", op.out.n_padded, kI32, {1});
  if (op.out.sorted_ids.dim(0) < blocks * op.block_size) {
    check.refuse("the capacity is {}, but {} pairs over {} experts can need {}", op.out.sorted_ids.dim(0), n_pairs,
                 op.n_experts, blocks * op.block_size);
  }
  if (op.out.block_expert.dim(0) < blocks) {
    check.refuse("block_expert has room for {} blocks, but {} can be needed", op.out.block_expert.dim(0), blocks);
  }
}

void reference(const MoeAlignBlocks& op) {
  const std::int64_t n_pairs = op.experts.dim(0) * op.experts.dim(1);
  std::int64_t padded = 0;
  std::int64_t packed_row = 0;
  std::int64_t expert = 0;
  for (const auto& pairs : pairs_of_experts(op.experts, op.live, op.n_experts)) {
    for (const std::int32_t pair : pairs) {
      if (padded % op.block_size == 0) store_i32(op.out.block_expert, {padded / op.block_size}, expert);
      store_i32(op.out.sorted_ids, {padded++}, op.ids == RowIds::packed ? packed_row : pair);
      ++packed_row;
    }
    while (padded % op.block_size != 0) store_i32(op.out.sorted_ids, {padded++}, n_pairs);
    ++expert;
  }
  store_i32(op.out.n_padded, {0}, padded);
  for (std::int64_t b = padded / op.block_size; b < op.out.block_expert.dim(0); ++b) {
    store_i32(op.out.block_expert, {b}, -1);
  }
  for (; padded < op.out.sorted_ids.dim(0); ++padded) store_i32(op.out.sorted_ids, {padded}, n_pairs);
}

}  // namespace conclave
