// moe_ffn, from router logits to the next norm:
//
//   1  route + group      one threadgroup, for few tokens; else routing and grouping apart
//   2  gate + up + act    indirect: as many tiles as the grouping has found
//   3  down + combine     indirect; the threadgroup that ends a token's last row combines it, adds it to the residual
//                         and norms it (kernels/finish.h). Without a device fence: apart, as one dispatch more
//
// A shared expert has its own two or three before the last one.
#include "ops/moe_ffn.h"

#include <variant>

#include "backends/metal/products.h"
#include "backends/metal/routing.h"

namespace conclave::metal {
namespace {

// Up to this many tokens one threadgroup routes and groups: at 32 simdgroups, two rounds.
constexpr std::int64_t kRoutedTogether = 64;

// The lists of the layer in scratch, in the order in which they share a slot.
struct LayerParts {
  ScratchPart counts;
  ScratchPart tiles;
  ScratchPart finished;
  ScratchPart grids;
};

class FfnPlan {
 public:
  FfnPlan(const MoeFfn& op, const Target& target)
      : op_(op),
        sequence_(sequence_of(op)),
        target_(target),
        n_tokens_(op.x.dim(0)),
        n_experts_(op.logits.dim(1)),
        n_pairs_(n_tokens_ * op.rule.top_k),
        d_ff_(op.gate.dim(1)),
        d_model_(op.x.dim(1)),
        gate_up_(product_plan(target, n_pairs_, n_experts_, true)),
        down_(product_plan(target, n_pairs_, n_experts_, false)) {}

  MetalOp make() {
    MetalOp made;
    if (n_tokens_ == 0 || d_model_ == 0) return made;
    narrow(n_pairs_);
    const std::int64_t tiles = max_tiles(n_pairs_, n_experts_, gate_up_.tile_rows);
    at_.counts = scratch_part(scratch_, 3 * n_experts_, 4);
    at_.tiles = scratch_part(scratch_, 4 * tiles, 4);
    at_.finished = scratch_part(scratch_, n_tokens_, 4);
    at_.grids = scratch_part(scratch_, 6, 4);
    max_tiles_ = tiles;
    add_routing(made);
    if (d_ff_ > 0) made.steps.push_back(gate_up());
    if (sequence_.shared) append(made, make_metal_op(*sequence_.shared, target_), scratch_);
    if (target_.has_device_fence) {
      made.steps.push_back(down_and_finish());
    } else {
      add_down_then_combine(made);
    }
    made.scratch_bytes = scratch_.bytes();
    return made;
  }

 private:
  // Where the lists of a grouping go.
  struct GroupSlots {
    int counts, tiles, grids, row_pair, pair_row;
  };
  template <class Args>
  Dispatch group(Launch<Args>& launch, GroupArgs& args, const GroupSlots& slots, std::int64_t simds) const {
    args.counts = launch.out(slots.counts, at_.counts);
    args.tiles = launch.out(slots.tiles, at_.tiles);
    args.finished = launch.out(slots.tiles, at_.finished);
    args.grids = launch.out(slots.grids, at_.grids);
    args.row_pair = launch.out(slots.row_pair, op_.groups.row_pair);
    args.pair_row = launch.out(slots.pair_row, op_.groups.pair_row);
    args.n_experts = narrow(n_experts_);
    args.tile_rows = static_cast<int>(gate_up_.tile_rows);
    args.max_tiles = narrow(max_tiles_);
    args.gate_groups = narrow(ceil_div(d_ff_, gate_up_.columns));
    args.down_groups = narrow(ceil_div(d_model_, down_.columns));
    Dispatch made = launch.over({}, list_threads(simds), kReduceBytes);
    made.bytes = routing_bytes();
    return made;
  }

  void add_routing(MetalOp& made) {
    if (n_tokens_ <= kRoutedTogether) {
      Launch<RouteGroupArgs> launch("moe_route_group");
      bind_route(launch, launch.args.route, sequence_.route, scratch_);
      GroupArgs& args = launch.args.group;
      args.experts = launch.args.route.experts;
      args.live = launch.args.route.live;
      constexpr int kScratch = RouteGroupArgs::kScratch;
      Dispatch both =
          group(launch, args, {kScratch, kScratch, kScratch, RouteGroupArgs::kRowPair, RouteGroupArgs::kPairRow},
                std::max(n_experts_, n_tokens_));
      both.bytes += tensor_bytes(op_.logits);
      made.steps.push_back(std::move(both));
      return;
    }
    MetalOp route = make_metal_op(sequence_.route, target_);
    std::get<Dispatch>(route.steps.front()).bytes = tensor_bytes(op_.logits) + 8.0 * static_cast<double>(n_pairs_);
    append(made, std::move(route), scratch_);
    Launch<GroupArgs> launch("moe_group");
    launch.args.experts = launch.in(GroupArgs::kExperts, op_.routing.experts);
    launch.args.live = launch.in(GroupArgs::kLive, op_.live);
    made.steps.push_back(
        group(launch, launch.args,
              {GroupArgs::kCounts, GroupArgs::kTiles, GroupArgs::kGrids, GroupArgs::kRowPair, GroupArgs::kPairRow},
              n_experts_));
  }

  // The table of packed rows that both products have.
  template <class Args>
  RowTable packed_table(Launch<Args>& launch) const {
    RowTable table{.form = kTiledRows};
    table.tiles = launch.in(Args::kTiles, at_.tiles);
    return table;
  }

  Dispatch gate_up() {
    Launch<ProductArgs> launch =
        product_launch(gate_up_, {.x = op_.x, .w = op_.gate, .up = op_.up, .act = op_.act, .out = op_.hidden});
    launch.args.table = packed_table(launch);
    launch.args.table.from = launch.in(ProductArgs::kFrom, op_.groups.row_pair).offset;
    launch.args.table.from_step = narrow(op_.rule.top_k);
    Dispatch made = launch.over_indirect(at_.grids, gate_up_.threads, gate_up_.shared_bytes);
    made.bytes = rereads() * (weight_bytes(op_.gate, n_pairs_) + weight_bytes(op_.up, n_pairs_)) + tensor_bytes(op_.x) +
                 tensor_bytes(op_.hidden);
    return made;
  }

  // How often an expert's weights are read where rows are spread evenly: once for each of its tiles.
  double rereads() const {
    return static_cast<double>(even_tiles(n_pairs_, n_experts_, gate_up_.tile_rows)) /
           static_cast<double>(std::min(n_pairs_, n_experts_));
  }

  ScratchPart down_grid() const { return {at_.grids.begin + 12, 12}; }

  // Where expert outputs go: f32, one row after another. The op's own scratch, where that is so.
  bool has_own_expert_out() const {
    return op_.expert_out.dtype == DType::f32 && op_.expert_out.stride(0) == d_model_ * 4 &&
           op_.expert_out.byte_offset % 4 == 0;
  }
  template <class Args>
  std::int64_t bind_expert_out(Launch<Args>& launch, int slot, const ScratchPart& scratch) {
    return has_own_expert_out() ? launch.out(slot, op_.expert_out).offset : launch.out(slot, scratch);
  }
  ScratchPart expert_out_scratch() {
    return has_own_expert_out() ? ScratchPart{} : scratch_part(scratch_, n_pairs_ * d_model_, 4);
  }

  double finish_bytes() const {
    return 2 * tensor_bytes(op_.residual) + tensor_bytes(op_.next.out) +
           8.0 * static_cast<double>(n_pairs_) * static_cast<double>(d_model_);
  }

  Dispatch down_and_finish() {
    Launch<FinishArgs> launch(product_kernel(down_, "finish", op_.down.dtype, op_.down.dtype));
    launch.needs_all_threads();
    FinishArgs& args = launch.args;
    args.x = launch.in(FinishArgs::kX, op_.hidden);
    args.w = launch.in(FinishArgs::kW, op_.down);
    args.table = packed_table(launch);
    args.row_pair = launch.in(FinishArgs::kFrom, op_.groups.row_pair).offset;
    args.expert_out = bind_expert_out(launch, FinishArgs::kExpertOut, expert_out_scratch());
    args.finished = launch.out(FinishArgs::kFinished, at_.finished);
    args.pair_row = launch.in(FinishArgs::kPairRow, op_.groups.pair_row);
    args.weights = launch.in(FinishArgs::kWeights, op_.routing.weights);
    if (sequence_.shared) args.shared = launch.in(FinishArgs::kShared, op_.shared_out);
    args.residual = launch.out(FinishArgs::kResidual, op_.residual);
    args.norm_weight = launch.in(FinishArgs::kNormWeight, op_.next.weight);
    args.normed = launch.out(FinishArgs::kNormed, op_.next.out);
    args.top_k = narrow(op_.rule.top_k);
    args.eps = op_.next.eps;
    const std::int64_t shared = std::max<std::int64_t>(down_.shared_bytes, 64 * 4);
    Dispatch made = launch.over_indirect(down_grid(), down_.threads, shared);
    made.bytes = rereads() * weight_bytes(op_.down, n_pairs_) + tensor_bytes(op_.hidden) + finish_bytes();
    return made;
  }

  void add_down_then_combine(MetalOp& made) {
    const ScratchPart scratch = expert_out_scratch();
    Launch<ProductArgs> launch = product_launch(down_, {.x = op_.hidden, .w = op_.down});
    launch.args.table = packed_table(launch);
    const View rows{.offset = bind_expert_out(launch, ProductArgs::kOut, scratch),
                    .dims = {n_pairs_, d_model_},
                    .strides = {d_model_ * 4, 4},
                    .type = kF32,
                    .rank = 2};
    launch.args.out = rows;
    Dispatch product = launch.over_indirect(down_grid(), down_.threads, down_.shared_bytes);
    product.bytes = rereads() * weight_bytes(op_.down, n_pairs_) + tensor_bytes(op_.hidden) +
                    4.0 * static_cast<double>(n_pairs_) * static_cast<double>(d_model_);
    made.steps.push_back(std::move(product));

    Launch<CombineArgs> combine("moe_combine");
    CombineArgs& args = combine.args;
    args.rows = rows;
    args.rows.offset = bind_expert_out(combine, CombineArgs::kRows, scratch);
    args.weights = combine.in(CombineArgs::kWeights, op_.routing.weights);
    args.pair_row = combine.in(CombineArgs::kPairRow, op_.groups.pair_row);
    if (sequence_.shared) args.shared = combine.in(CombineArgs::kShared, op_.shared_out);
    args.live = combine.in(CombineArgs::kLive, op_.live);
    args.residual = combine.out(CombineArgs::kResidual, op_.residual);
    args.norm_weight = combine.in(CombineArgs::kNormWeight, op_.next.weight);
    args.normed = combine.out(CombineArgs::kNormed, op_.next.out);
    args.eps = op_.next.eps;
    Dispatch last = combine.over({groups_of(n_tokens_)}, row_threads(d_model_), kReduceBytes);
    last.bytes = finish_bytes() - 4.0 * static_cast<double>(n_pairs_) * static_cast<double>(d_model_);
    made.steps.push_back(std::move(last));
  }

  // Ids and weights, and both views of the groups.
  double routing_bytes() const { return 16.0 * static_cast<double>(n_pairs_); }

  const MoeFfn& op_;
  MoeFfnSequence sequence_;
  const Target& target_;
  std::int64_t n_tokens_;
  std::int64_t n_experts_;
  std::int64_t n_pairs_;
  std::int64_t d_ff_;
  std::int64_t d_model_;
  ProductPlan gate_up_;
  ProductPlan down_;
  std::int64_t max_tiles_ = 0;
  ScratchLayout scratch_;
  LayerParts at_;
};

}  // namespace

MetalOp make_metal_op(const MoeFfn& op, const Target& target) {
  return FfnPlan(op, target).make();
}

}  // namespace conclave::metal
