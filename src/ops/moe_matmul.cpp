#include "ops/moe_matmul.h"

#include <algorithm>
#include <limits>

#include "ops/check.h"
#include "ops/product.h"

namespace conclave {
namespace {

using PairLists = std::vector<std::vector<std::int64_t>>;

void check_rows(const Check& check, const GroupedRows& rows, std::int64_t n_experts, std::int64_t n_pairs) {
  check.tensor("offsets", rows.offsets, kI32, {n_experts + 1});
  check.tensor("row_pair", rows.row_pair, kI32, {n_pairs});
}

void check_rows(const Check& check, const ListedRows& rows, std::int64_t n_experts, std::int64_t /*n_pairs*/) {
  check.tensor("ids", rows.ids, kI32, {n_experts, kAny});
  check.tensor("tpe", rows.tpe, kI32, {n_experts});
  check.optional("grid", rows.grid, kU32, {3});
  check.between("nr0", rows.nr0, 1, std::numeric_limits<std::int32_t>::max());
  check.between("nr1", rows.nr1, 1, std::numeric_limits<std::int32_t>::max());
}

void check_rows(const Check& check, const BlockRows& rows, std::int64_t /*n_experts*/, std::int64_t n_pairs) {
  check.tensor("sorted_ids", rows.blocks.sorted_ids, kI32, {kAny});
  check.tensor("block_expert", rows.blocks.block_expert, kI32, {kAny});
  check.tensor("n_padded", rows.blocks.n_padded, kI32, {1});
  check.between("block_size", rows.block_size, 1, MoeAlignBlocks::kMaxBlockSize);
  if (rows.ids == RowIds::packed) check.tensor("row_pair", rows.row_pair, kI32, {n_pairs});
}

// An entry of a list becomes work only if it names a pair.
void add_pair(std::vector<std::int64_t>& pairs, std::int64_t pair, std::int64_t n_pairs) {
  if (pair >= 0 && pair < n_pairs) pairs.push_back(pair);
}

std::int64_t grid_reach(const Tensor& grid, std::int64_t axis, std::int64_t step) {
  const auto blocks = static_cast<std::uint32_t>(load_i32(grid, {axis}));
  return static_cast<std::int64_t>(blocks) * step;
}

PairLists list(const GroupedRows& rows, std::int64_t n_experts, std::int64_t n_pairs) {
  PairLists lists(static_cast<std::size_t>(n_experts));
  for (std::int64_t e = 0; e < n_experts; ++e) {
    const std::int64_t begin = std::max<std::int64_t>(load_i32(rows.offsets, {e}), 0);
    const std::int64_t end = std::min<std::int64_t>(load_i32(rows.offsets, {e + 1}), n_pairs);
    for (std::int64_t r = begin; r < end; ++r) {
      add_pair(lists[static_cast<std::size_t>(e)], load_i32(rows.row_pair, {r}), n_pairs);
    }
  }
  return lists;
}

PairLists list(const ListedRows& rows, std::int64_t n_experts, std::int64_t n_pairs) {
  PairLists lists(static_cast<std::size_t>(n_experts));
  const bool indirect = rows.grid.defined();
  const std::int64_t experts = indirect ? std::min(n_experts, grid_reach(rows.grid, 2, 1)) : n_experts;
  const std::int64_t reach = indirect ? std::min(rows.ids.dim(1), grid_reach(rows.grid, 0, rows.nr1)) : rows.ids.dim(1);
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t count = std::min<std::int64_t>(load_i32(rows.tpe, {e}), reach);
    for (std::int64_t i = 0; i < count; ++i) {
      add_pair(lists[static_cast<std::size_t>(e)], load_i32(rows.ids, {e, i}), n_pairs);
    }
  }
  return lists;
}

PairLists list(const BlockRows& rows, std::int64_t n_experts, std::int64_t n_pairs) {
  PairLists lists(static_cast<std::size_t>(n_experts));
  const std::int64_t padded =
      std::min({static_cast<std::int64_t>(load_i32(rows.blocks.n_padded, {0})), rows.blocks.sorted_ids.dim(0),
                rows.blocks.block_expert.dim(0) * rows.block_size});
  for (std::int64_t i = 0; i < padded; ++i) {
    const std::int64_t expert = load_i32(rows.blocks.block_expert, {i / rows.block_size});
    const std::int64_t id = load_i32(rows.blocks.sorted_ids, {i});
    if (expert < 0 || expert >= n_experts || id < 0 || id >= n_pairs) continue;
    const std::int64_t pair = rows.ids == RowIds::packed ? load_i32(rows.row_pair, {id}) : id;
    add_pair(lists[static_cast<std::size_t>(expert)], pair, n_pairs);
  }
  return lists;
}

}  // namespace

PairLists listed_pairs(const MoeMatmul& op) {
  const std::int64_t n_pairs = op.out.dim(0) * op.out.dim(1);
  return std::visit([&](const auto& rows) { return list(rows, op.w.dim(0), n_pairs); }, op.rows);
}

std::int64_t covered_columns(const MoeMatmul& op) {
  const auto* listed = std::get_if<ListedRows>(&op.rows);
  if (listed == nullptr || !listed->grid.defined()) return op.w.dim(1);
  return std::min(op.w.dim(1), grid_reach(listed->grid, 1, listed->nr0));
}

void validate(const MoeMatmul& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny, kAny});
  check.tensor("w", op.w, kWeight, {kAny, kAny, kAny});
  check.between("the number of experts", op.w.dim(0), 0, kMaxExperts);
  check.tensor("out", op.out, kFloat, {op.x.dim(0), kAny, op.w.dim(1)});
  const std::int64_t top_k = op.out.dim(1);
  check.pairs(op.x.dim(0), top_k);
  if (op.x.dim(1) != 1 && op.x.dim(1) != top_k) {
    check.refuse("x is {}: dimension 1 must be 1 or top_k = {}", shape_text(op.x.shape()), top_k);
  }
  if (op.x.dim(2) != op.w.dim(2)) {
    check.refuse("x is {}, w is {}: inner dimensions differ", shape_text(op.x.shape()), shape_text(op.w.shape()));
  }
  std::visit([&](const auto& rows) { check_rows(check, rows, op.w.dim(0), op.x.dim(0) * top_k); }, op.rows);
}

void reference(const MoeMatmul& op) {
  const std::int64_t top_k = op.out.dim(1);
  const std::int64_t columns = covered_columns(op);
  std::int64_t expert = 0;
  for (const std::vector<std::int64_t>& pairs : listed_pairs(op)) {
    Rows x;
    for (const std::int64_t pair : pairs) {
      x.push_back(load_row(op.x, {pair / top_k, op.x.dim(1) == 1 ? 0 : pair % top_k}));
    }
    if (x.empty()) {
      ++expert;
      continue;
    }
    product(x, select_outer(op.w, expert++), 0, columns, [&](std::size_t m, std::int64_t n, double value) {
      store(op.out, {pairs[m] / top_k, pairs[m] % top_k, n}, value);
    });
  }
}

}  // namespace conclave
