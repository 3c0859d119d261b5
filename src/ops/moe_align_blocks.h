// moe_align_blocks: each expert's rows padded to a multiple of the block size, for products that take whole tiles.
//
//   sorted_ids     expert after expert, each expert's rows in packed order; padding, and everything past the end, holds
//                  n_pairs = n_tokens * top_k. Ids are packed rows or pair ids, by `ids`.
//   block_expert   the expert of each block; -1 past the end. An expert without rows has no block.
//   n_padded       rows including padding: a multiple of the block size
//
// The capacity is the length of sorted_ids, refused below the worst case worst_case_blocks(...) * block_size.
#pragma once

#include "ops/members.h"
#include "ops/routing.h"

namespace conclave {

struct AlignedBlocks {
  Tensor sorted_ids;    // i32 [capacity]
  Tensor block_expert;  // i32 [capacity / block_size, or more]
  Tensor n_padded;      // i32 [1]
};

struct MoeAlignBlocks {
  static constexpr std::string_view kName = "moe_align_blocks";
  static constexpr bool kInPlace = false;
  static constexpr std::int64_t kMaxBlockSize = 256;

  Tensor experts;  // i32 [n_tokens, top_k]
  Tensor live;     // i32 [1], optional
  std::int64_t n_experts = 0;
  std::int64_t block_size = 1;  // 1 .. 256
  RowIds ids = RowIds::packed;
  AlignedBlocks out;

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "experts", op.experts);
    v.tensor(in, "live", op.live);
    v.param("n_experts", op.n_experts);
    v.param("block_size", op.block_size);
    v.param("ids", name(op.ids));
    v.tensor(Role::out, "sorted_ids", op.out.sorted_ids);
    v.tensor(Role::out, "block_expert", op.out.block_expert);
    v.tensor(Role::out, "n_padded", op.out.n_padded);
  }
};

// The most blocks that `n_pairs` pairs over `n_experts` experts can need: every expert has one row in its last block.
constexpr std::int64_t worst_case_blocks(std::int64_t n_pairs, std::int64_t n_experts, std::int64_t block_size) {
  const std::int64_t active = n_pairs < n_experts ? n_pairs : n_experts;
  return active + (n_pairs - active) / block_size;
}
static_assert(worst_case_blocks(0, 8, 16) == 0);
static_assert(worst_case_blocks(3, 8, 16) == 3);
static_assert(worst_case_blocks(10, 2, 4) == 4);  // 5 and 5, or 9 and 1: two blocks and two, three and one

void validate(const MoeAlignBlocks& op);
void reference(const MoeAlignBlocks& op);

}  // namespace conclave
