#include "backends/cuda/row_lists.h"

#include <algorithm>
#include <limits>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "base/fail.h"

namespace conclave::cuda {
namespace {

void describe(RowLists& lists, const GroupedRows& rows) {
  lists.form = RowForm::grouped;
  lists.n_lists = lists.n_experts;
  lists.max_slots = lists.n_outputs;
  lists.offsets = view_of(rows.offsets);
  lists.row_pair = view_of(rows.row_pair);
}

void describe(RowLists& lists, const ListedRows& rows) {
  lists.form = RowForm::listed;
  lists.n_lists = lists.n_experts;
  lists.max_slots = rows.ids.dim(1);
  lists.nr0 = rows.nr0;
  lists.nr1 = rows.nr1;
  lists.ids = view_of(rows.ids);
  lists.tpe = view_of(rows.tpe);
  lists.grid = view_of(rows.grid);
}

void describe(RowLists& lists, const BlockRows& rows) {
  lists.form = RowForm::blocks;
  lists.n_lists = std::min(rows.blocks.block_expert.dim(0), ceil_div(rows.blocks.sorted_ids.dim(0), rows.block_size));
  lists.max_slots = rows.block_size;
  lists.block_size = rows.block_size;
  lists.packed_ids = rows.ids == RowIds::packed;
  lists.sorted_ids = view_of(rows.blocks.sorted_ids);
  lists.block_expert = view_of(rows.blocks.block_expert);
  lists.n_padded = view_of(rows.blocks.n_padded);
  lists.row_pair = view_of(rows.row_pair);
}

std::int32_t narrow(std::int64_t n) {
  if (n > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorCode::unsupported, "{} rows, lists or slots are more than this backend counts", n);
  }
  return static_cast<std::int32_t>(n);
}

}  // namespace

OpRows OpRows::every_row(std::int64_t n_rows, const Tensor& live) {
  OpRows made;
  made.lists_.n_outputs = made.lists_.max_slots = made.n_slots_ = n_rows;
  made.direct_ = {.live = ints_of(live), .n_slots = narrow(n_rows), .n_from = narrow(n_rows), .n_rows = narrow(n_rows)};
  return made;
}

OpRows OpRows::of(const MoeMatmul& op, ScratchLayout& scratch) {
  OpRows made;
  made.lists_.n_experts = op.w.dim(0);
  made.lists_.top_k = op.out.dim(1);
  made.lists_.n_outputs = op.out.dim(0) * op.out.dim(1);
  made.lists_.per_pair = op.x.dim(1) != 1;
  std::visit([&](const auto& rows) { describe(made.lists_, rows); }, op.rows);
  made.direct_.n_from = narrow(op.x.dim(0) * op.x.dim(1));
  const bool spread = made.lists_.form == RowForm::listed || made.lists_.form == RowForm::blocks;
  made.add_table(spread ? made.lists_.n_lists * made.lists_.max_slots : made.lists_.n_outputs, op.w.dim(1), scratch);
  return made;
}

OpRows OpRows::of(const MoeGateUp& op, bool grouped, ScratchLayout& scratch) {
  OpRows made;
  made.lists_.form = RowForm::packed_tokens;
  made.lists_.n_lists = made.lists_.n_experts = op.gate.dim(0);
  made.lists_.top_k = op.top_k;
  made.lists_.n_outputs = made.lists_.max_slots = made.n_slots_ = op.row_pair.dim(0);
  made.lists_.offsets = view_of(op.offsets);
  made.lists_.row_pair = view_of(op.row_pair);
  made.direct_ = {.begin = ints_of(op.offsets),
                  .end = ints_of(op.offsets) + 1,
                  .from = ints_of(op.row_pair),
                  .from_step = narrow(op.top_k),
                  .n_lists = narrow(op.gate.dim(0)),
                  .n_experts = narrow(op.gate.dim(0)),
                  .n_slots = narrow(op.row_pair.dim(0)),
                  .n_from = narrow(op.x.dim(0)),
                  .n_rows = narrow(op.row_pair.dim(0))};
  if (!grouped) made.add_table(made.lists_.n_outputs, op.gate.dim(1), scratch);
  return made;
}

OpRows OpRows::of(const MoeDown& op, bool grouped, ScratchLayout& scratch) {
  OpRows made;
  made.lists_.form = RowForm::packed;
  made.lists_.n_lists = made.lists_.n_experts = op.down.dim(0);
  made.lists_.n_outputs = made.lists_.max_slots = made.n_slots_ = op.x.dim(0);
  made.lists_.offsets = view_of(op.offsets);
  made.direct_ = {.begin = ints_of(op.offsets),
                  .end = ints_of(op.offsets) + 1,
                  .n_lists = narrow(op.down.dim(0)),
                  .n_experts = narrow(op.down.dim(0)),
                  .n_slots = narrow(op.x.dim(0)),
                  .n_from = narrow(op.x.dim(0)),
                  .n_rows = narrow(op.x.dim(0))};
  if (!grouped) made.add_table(made.lists_.n_outputs, op.down.dim(1), scratch);
  return made;
}

void OpRows::add_table(std::int64_t n_slots, std::int64_t n_columns, ScratchLayout& scratch) {
  takes_pass_ = true;
  n_slots_ = narrow(n_slots);
  n_columns_ = n_columns;
  owner_at_ = scratch.add<std::int32_t>(lists_.n_outputs + n_slots);
  lists_at_ = scratch.add<std::int32_t>(3 * lists_.n_lists + 1);
  slots_at_ = scratch.add<std::int32_t>(2 * n_slots);
}

RowTableSpace OpRows::space(std::byte* scratch) const {
  auto* lists = scratch_at<std::int32_t>(scratch, lists_at_);
  auto* slots = scratch_at<std::int32_t>(scratch, slots_at_);
  return {.begin = lists,
          .end = lists + lists_.n_lists,
          .expert = lists + 2 * lists_.n_lists,
          .from = slots,
          .to = slots + n_slots_,
          .list = scratch_at<std::int32_t>(scratch, owner_at_) + lists_.n_outputs,
          .n_slots = n_slots_,
          .columns = lists + 3 * lists_.n_lists};
}

void OpRows::fill(std::byte* scratch, const Stream& stream, std::string_view op) const {
  if (!takes_pass_) return;
  RowLists lists = lists_;
  lists.owner = scratch_at<std::int32_t>(scratch, owner_at_);
  check(launch_row_table(lists, space(scratch), n_columns_, stream), op);
}

RowTable OpRows::at(std::byte* scratch) const {
  if (!takes_pass_) return direct_;
  const RowTableSpace made = space(scratch);
  return {.begin = made.begin,
          .end = made.end,
          .expert = made.expert,
          .from = made.from,
          .to = made.to,
          .list = made.list,
          .columns = made.columns,
          .n_lists = narrow(lists_.n_lists),
          .n_experts = narrow(lists_.n_experts),
          .n_slots = narrow(n_slots_),
          .n_from = direct_.n_from,
          .n_rows = narrow(lists_.n_outputs)};
}

std::int64_t OpRows::max_active() const {
  return lists_.form == RowForm::every ? 1 : std::min(lists_.n_lists, n_slots_);
}

}  // namespace conclave::cuda
