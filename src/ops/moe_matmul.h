// moe_matmul: one expert product, out[t,s,n] = sum over k of x[t, s or 0, k] * w[expert of (t,s), n, k].
//
// Which rows go to which expert comes in one of three forms, and all give the same bits:
//
//   GroupedRows   the CSR of moe_group
//   ListedRows    the lists of moe_expert_ids. Without `grid` the launch covers row_stride rows an expert; with it the
//                 launch covers what the grid says: grid[0] * nr1 rows, grid[1] * nr0 columns, grid[2] experts
//   BlockRows     the aligned blocks of moe_align_blocks, ids of either kind
//
// The output is in pair order. Pairs that no list names (invalid ids, dead tokens) are left alone; an id that is not a
// pair or not an expert is skipped. A pair that is listed under two experts gets the product of one of them.
#pragma once

#include <variant>
#include <vector>

#include "ops/members.h"
#include "ops/moe_align_blocks.h"
#include "ops/phase.h"
#include "ops/routing.h"

namespace conclave {

struct GroupedRows {
  static constexpr std::string_view kForm = "grouped";
  Tensor offsets;   // i32 [n_experts + 1]
  Tensor row_pair;  // i32 [n_tokens * top_k]
};

struct ListedRows {
  static constexpr std::string_view kForm = "listed";
  Tensor ids;   // i32 [n_experts, row_stride]: pair ids
  Tensor tpe;   // i32 [n_experts]
  Tensor grid;  // u32 [3], optional: dispatch indirectly
  std::int64_t nr0 = 1;
  std::int64_t nr1 = 1;
};

struct BlockRows {
  static constexpr std::string_view kForm = "blocks";
  AlignedBlocks blocks;
  std::int64_t block_size = 1;
  RowIds ids = RowIds::pair;
  Tensor row_pair;  // i32 [n_tokens * top_k]: needed for packed ids alone
};

struct MoeMatmul {
  static constexpr std::string_view kName = "moe_matmul";
  static constexpr bool kInPlace = false;

  Tensor x;  // f32 | f16 | bf16 [n_tokens, 1 or top_k, k]
  Tensor w;  // any weight type [n_experts, n, k]
  std::variant<GroupedRows, ListedRows, BlockRows> rows;
  Phase phase = Phase::decode;
  Tensor out;  // f32 | f16 | bf16 [n_tokens, top_k, n]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(weight, "w", op.w);
    std::visit([&](auto& form) { visit_rows(form, v); }, op.rows);
    v.param("phase", name(op.phase));
    v.tensor(Role::out, "out", op.out);
  }

 private:
  template <class AnyRows, class Visitor>
  static void visit_rows(AnyRows& form, Visitor& v) {
    using enum Role;
    using Form = std::remove_const_t<AnyRows>;
    v.param("form", Form::kForm);
    if constexpr (std::is_same_v<Form, GroupedRows>) {
      v.tensor(in, "offsets", form.offsets);
      v.tensor(in, "row_pair", form.row_pair);
    } else if constexpr (std::is_same_v<Form, ListedRows>) {
      v.tensor(in, "ids", form.ids);
      v.tensor(in, "tpe", form.tpe);
      v.tensor(in, "grid", form.grid);
      v.param("nr0", form.nr0);
      v.param("nr1", form.nr1);
    } else {
      v.tensor(in, "sorted_ids", form.blocks.sorted_ids);
      v.tensor(in, "block_expert", form.blocks.block_expert);
      v.tensor(in, "n_padded", form.blocks.n_padded);
      v.param("block_size", form.block_size);
      v.param("ids", name(form.ids));
      v.tensor(in, "row_pair", form.row_pair);
    }
  }
};

void validate(const MoeMatmul& op);
void reference(const MoeMatmul& op);

// The pairs that each expert multiplies, as `rows` lists them: the common denominator of the three forms.
std::vector<std::vector<std::int64_t>> listed_pairs(const MoeMatmul& op);
// How many output columns the launch covers: all of them, but for an indirect grid.
std::int64_t covered_columns(const MoeMatmul& op);

}  // namespace conclave
