// The ops that are matrix products: matmul, moe_matmul, moe_gate_up, moe_down, moe_shared_expert.
#include "backends/metal/products.h"

#include "ops/moe_matmul.h"

namespace conclave::metal {
namespace {

// A product of every row of x with one matrix.
Dispatch dense_product(const ProductTensors& t, const Target& target) {
  const std::int64_t rows = row_count(t.x);
  const std::int64_t n = t.w.dim(0);
  const ProductPlan plan = product_plan(target, rows, 1, t.up.defined());
  Launch<ProductArgs> launch = product_launch(plan, t);
  launch.args.table = {.form = kDenseRows, .rows = narrow(rows)};
  Dispatch made = launch.over({groups_of(ceil_div(n, plan.columns)), 1, groups_of(ceil_div(rows, plan.tile_rows))},
                              plan.threads, plan.shared_bytes);
  made.bytes =
      weight_bytes(t.w, 1) + (t.up.defined() ? weight_bytes(t.up, 1) : 0) + tensor_bytes(t.x) + tensor_bytes(t.out);
  return made;
}

// A table of the rows that lists name, and where it lies.
struct TableParts {
  ScratchPart owner;
  ScratchPart lists;
  ScratchPart tiles;
  ScratchPart from;
  ScratchPart to;
  ScratchPart grid;
};

// What a form of rows puts into the arguments of moe_row_table.
struct TableShape {
  std::int64_t n_lists = 0;
  std::int64_t n_slots = 0;  // offsets alone: what they are held to
};

TableShape describe(Launch<TableArgs>& launch, const GroupedRows& rows, std::int64_t n_experts, std::int64_t n_pairs) {
  launch.args.form = kGroupedPairs;
  launch.args.offsets = launch.in(TableArgs::kOffsets, rows.offsets);
  launch.args.row_pair = launch.in(TableArgs::kRowPair, rows.row_pair);
  return {n_experts, n_pairs};
}
TableShape describe(Launch<TableArgs>& launch, const ListedRows& rows, std::int64_t n_experts,
                    std::int64_t /*n_pairs*/) {
  TableArgs& args = launch.args;
  args.form = kListedPairs;
  args.ids = launch.in(TableArgs::kIds, rows.ids);
  args.tpe = launch.in(TableArgs::kTpe, rows.tpe);
  args.grid = launch.in(TableArgs::kGrid, rows.grid);
  args.nr0 = narrow(rows.nr0);
  args.nr1 = narrow(rows.nr1);
  return {n_experts, 0};
}
TableShape describe(Launch<TableArgs>& launch, const BlockRows& rows, std::int64_t /*n_experts*/,
                    std::int64_t /*n_pairs*/) {
  TableArgs& args = launch.args;
  args.form = kBlockPairs;
  args.sorted_ids = launch.in(TableArgs::kSorted, rows.blocks.sorted_ids);
  args.block_expert = launch.in(TableArgs::kBlockExpert, rows.blocks.block_expert);
  args.n_padded = launch.in(TableArgs::kPadded, rows.blocks.n_padded);
  args.row_pair = launch.in(TableArgs::kRowPair, rows.row_pair);
  args.packed_ids = rows.ids == RowIds::packed ? 1 : 0;
  args.block_size = narrow(rows.block_size);
  return {std::min(rows.blocks.block_expert.dim(0), ceil_div(rows.blocks.sorted_ids.dim(0), rows.block_size)), 0};
}

// Two dispatches: the lists become a table, whose grid the product is launched with. A stand-alone product trusts nobody.
MetalOp listed_op(Launch<TableArgs>& table, const TableShape& shape, const ProductTensors& t, const ProductPlan& plan,
                  std::int64_t n_outputs) {
  MetalOp made;
  const std::int64_t n = t.w.dim(1);
  if (n == 0 || n_outputs == 0 || row_count(t.x) == 0) return made;
  ScratchLayout scratch;
  const std::int64_t tiles = std::max<std::int64_t>(1, max_tiles(n_outputs, shape.n_lists, plan.tile_rows));
  TableParts at;
  at.owner = scratch_part(scratch, 2 * n_outputs, 4);
  at.lists = scratch_part(scratch, 2 * shape.n_lists, 4);
  at.tiles = scratch_part(scratch, 4 * tiles, 4);
  at.from = scratch_part(scratch, n_outputs, 4);
  at.to = scratch_part(scratch, n_outputs, 4);
  at.grid = scratch_part(scratch, 3, 4);

  TableArgs& args = table.args;
  args.owner = table.out(TableArgs::kOwner, at.owner);
  args.lists = table.out(TableArgs::kScratch, at.lists);
  args.tiles = table.out(TableArgs::kScratch, at.tiles);
  args.from = table.out(TableArgs::kScratch, at.from);
  args.to = table.out(TableArgs::kScratch, at.to);
  args.grids = table.out(TableArgs::kScratch, at.grid);
  args.n_slots = shape.n_slots;
  args.n_lists = narrow(shape.n_lists);
  args.n_experts = narrow(t.w.dim(0));
  args.n_outputs = narrow(n_outputs);
  args.n_from = narrow(row_count(t.x));
  args.columns = narrow(n);
  args.tile_rows = static_cast<int>(plan.tile_rows);
  args.max_tiles = narrow(tiles);
  args.columns_of_group = static_cast<int>(plan.columns);
  made.steps.push_back(table.over({}, list_threads(shape.n_lists), kReduceBytes));

  Launch<ProductArgs> launch = product_launch(plan, t);
  launch.args.table.form = kTiledRows;
  launch.args.table.from_step = 1;
  launch.args.table.has_to = 1;
  launch.args.table.tiles = launch.in(ProductArgs::kTiles, at.tiles);
  launch.args.table.from = launch.in(ProductArgs::kFrom, at.from);
  launch.args.table.to = launch.in(ProductArgs::kTo, at.to);
  Dispatch product = launch.over_indirect(at.grid, plan.threads, plan.shared_bytes);
  product.bytes = weight_bytes(t.w, n_outputs) + (t.up.defined() ? weight_bytes(t.up, n_outputs) : 0) +
                  tensor_bytes(t.x) + tensor_bytes(t.out);
  made.steps.push_back(std::move(product));
  made.scratch_bytes = scratch.bytes();
  return made;
}

}  // namespace

Launch<ProductArgs> product_launch(const ProductPlan& plan, const ProductTensors& t) {
  const bool gate_up = t.up.defined();
  Launch<ProductArgs> launch(
      product_kernel(plan, gate_up ? "gate_up" : "rows", t.w.dtype, gate_up ? t.up.dtype : t.w.dtype));
  launch.needs_all_threads();
  ProductArgs& args = launch.args;
  args.x = launch.in(ProductArgs::kX, t.x);
  args.w = launch.in(ProductArgs::kW, t.w);
  args.up = launch.in(ProductArgs::kUp, t.up);
  args.bias = launch.in(ProductArgs::kBias, t.bias);
  args.live = launch.in(ProductArgs::kLive, t.live);
  args.out = launch.out(ProductArgs::kOut, t.out);
  args.act = static_cast<int>(t.act);
  narrow(t.w.dim(t.w.rank - 2));
  return launch;
}

void append(MetalOp& to, MetalOp op, ScratchLayout& scratch) {
  const std::int64_t base = scratch.add(op.scratch_bytes, 1);
  const auto move_range = [&](Range& range) {
    if (range.in != Range::In::scratch) return;
    range.begin += base;
    range.end += base;
  };
  CONCLAVE_CHECK(op.constants.empty(), "an op with constants is not part of another");
  for (auto& step : op.steps) {
    auto& dispatch = std::get<Dispatch>(step);
    for (Range& range : dispatch.ranges) move_range(range);
    if (dispatch.indirect) move_range(*dispatch.indirect);
    to.steps.push_back(std::move(step));
  }
}

MetalOp make_metal_op(const Matmul& op, const Target& target) {
  if (op.order == Order::any) {
    return op_of(dense_product({.x = op.x, .w = op.w, .bias = op.bias, .live = op.live, .out = op.out}, target));
  }
  Launch<CanonicalArgs> launch("matmul_canonical");
  CanonicalArgs& args = launch.args;
  args.x = launch.in(CanonicalArgs::kX, op.x);
  args.w = launch.in(CanonicalArgs::kW, op.w);
  args.bias = launch.in(CanonicalArgs::kBias, op.bias);
  args.live = launch.in(CanonicalArgs::kLive, op.live);
  args.out = launch.out(CanonicalArgs::kOut, op.out);
  Dispatch dispatch =
      launch.over({groups_of(ceil_div(op.w.dim(0), kFewSimds)), groups_of(ceil_div(op.x.dim(0), kFewRows))},
                  kFewSimds * kSimdWidth);
  dispatch.bytes = weight_bytes(op.w, 1) + tensor_bytes(op.x) + tensor_bytes(op.out);
  return op_of(std::move(dispatch));
}

MetalOp make_metal_op(const MoeMatmul& op, const Target& target) {
  const std::int64_t n_pairs = op.out.dim(0) * op.out.dim(1);
  const ProductPlan plan = product_plan(target, n_pairs, op.w.dim(0), false);
  Launch<TableArgs> table("moe_row_table");
  table.args.top_k = narrow(op.out.dim(1));
  table.args.per_pair = op.x.dim(1) != 1 ? 1 : 0;
  const TableShape shape =
      std::visit([&](const auto& rows) { return describe(table, rows, op.w.dim(0), n_pairs); }, op.rows);
  return listed_op(table, shape, {.x = op.x, .w = op.w, .out = op.out}, plan, n_pairs);
}

MetalOp make_metal_op(const MoeGateUp& op, const Target& target) {
  const std::int64_t n_pairs = op.row_pair.dim(0);
  const ProductPlan plan = product_plan(target, n_pairs, op.gate.dim(0), true);
  Launch<TableArgs> table("moe_row_table");
  table.args.form = kPackedTokens;
  table.args.top_k = narrow(op.top_k);
  table.args.offsets = table.in(TableArgs::kOffsets, op.offsets);
  table.args.row_pair = table.in(TableArgs::kRowPair, op.row_pair);
  return listed_op(table, {op.gate.dim(0), n_pairs},
                   {.x = op.x, .w = op.gate, .up = op.up, .act = op.act, .out = op.out}, plan, n_pairs);
}

MetalOp make_metal_op(const MoeDown& op, const Target& target) {
  const std::int64_t n_pairs = op.x.dim(0);
  const ProductPlan plan = product_plan(target, n_pairs, op.down.dim(0), false);
  Launch<TableArgs> table("moe_row_table");
  table.args.form = kPackedRows;
  table.args.offsets = table.in(TableArgs::kOffsets, op.offsets);
  return listed_op(table, {op.down.dim(0), n_pairs}, {.x = op.x, .w = op.down, .out = op.out}, plan, n_pairs);
}

MetalOp make_metal_op(const MoeSharedExpert& op, const Target& target) {
  ScratchLayout scratch;
  MetalOp made;
  append(made,
         op_of(dense_product({.x = op.x, .w = op.gate, .up = op.up, .live = op.live, .act = op.act, .out = op.hidden},
                             target)),
         scratch);
  if (!op.gate_inp.defined()) {
    append(made, op_of(dense_product({.x = op.hidden, .w = op.down, .live = op.live, .out = op.out}, target)), scratch);
    return made;
  }
  // The product's own output, in f32: scratch.
  const std::int64_t n_tokens = op.out.dim(0);
  const std::int64_t d_model = op.out.dim(1);
  if (n_tokens == 0 || d_model == 0) return made;
  const ScratchPart y = scratch_part(scratch, n_tokens * d_model, 4);
  const ProductPlan plan = product_plan(target, n_tokens, 1, false);
  const auto y_view = [&](std::int64_t offset) {
    return View{.offset = offset, .dims = {n_tokens, d_model}, .strides = {d_model * 4, 4}, .type = kF32, .rank = 2};
  };
  Launch<ProductArgs> down = product_launch(plan, {.x = op.hidden, .w = op.down, .live = op.live});
  down.args.out = y_view(down.out(ProductArgs::kOut, y));
  down.args.table = {.form = kDenseRows, .rows = narrow(n_tokens)};
  Dispatch product =
      down.over({groups_of(ceil_div(d_model, plan.columns)), 1, groups_of(ceil_div(n_tokens, plan.tile_rows))},
                plan.threads, plan.shared_bytes);
  product.bytes = weight_bytes(op.down, 1) + tensor_bytes(op.hidden) + static_cast<double>(y.bytes);
  made.steps.push_back(std::move(product));

  Launch<ShareArgs> share("moe_share");
  share.args.x = share.in(ShareArgs::kX, op.x);
  share.args.gate_inp = share.in(ShareArgs::kGateInp, op.gate_inp);
  share.args.y = y_view(share.in(ShareArgs::kY, y));
  share.args.live = share.in(ShareArgs::kLive, op.live);
  share.args.out = share.out(ShareArgs::kOut, op.out);
  made.steps.push_back(share.over({groups_of(n_tokens)}, row_threads(d_model), kReduceBytes));
  made.scratch_bytes = scratch.bytes();
  return made;
}

}  // namespace conclave::metal
