// moe_route, its host copies, and the grouping ops.
#include "backends/metal/routing.h"

#include <algorithm>

#include "ops/moe_align_blocks.h"

namespace conclave::metal {
namespace {

constexpr std::uint32_t kRouteThreads = 128;  // four tokens

// Where the order of the logits decides alone.
bool ranks_by_logit(const RoutingRule& rule, bool has_bias) {
  const bool by_logit = rule.score == Score::softmax || rule.score == Score::softmax_after_top_k;
  const bool sums_groups = rule.n_groups > 1 && rule.group_score == GroupScore::sum_of_two;
  return by_logit && !has_bias && !sums_groups;
}

// Rows of i32 or f32 in scratch, into a tensor of the host.
void copy_rows(const std::byte* from, const Tensor& to, std::int64_t rows) {
  const std::int64_t bytes = row_bytes(to);
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(to.buffer->host() + to.byte_offset + r * to.stride(0), from + r * bytes,
                static_cast<std::size_t>(bytes));
  }
}

// `from` of the host to where `to` begins; what is left of `to` gets the padding.
void copy_padded(const Tensor& from, const Tensor& to, std::int64_t padding) {
  const std::int64_t rows = from.rank == 1 ? 1 : from.dim(0);
  const std::byte* source = from.buffer->host() + from.byte_offset;
  std::byte* target = to.buffer->host() + to.byte_offset;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::memcpy(target + r * to.stride(0), source + r * from.stride(0), static_cast<std::size_t>(row_bytes(from)));
  }
  if (from.rank != 1) return;
  const auto value = static_cast<std::int32_t>(padding);
  for (std::int64_t i = from.dim(0); i < to.dim(0); ++i) std::memcpy(target + i * 4, &value, sizeof value);
}

MetalOp group_op(Launch<GroupArgs>& launch, const Tensor& experts, const Tensor& live, std::int64_t n_experts) {
  ScratchLayout scratch;
  launch.args.experts = launch.in(GroupArgs::kExperts, experts);
  launch.args.live = launch.in(GroupArgs::kLive, live);
  launch.args.n_experts = narrow(n_experts);
  launch.args.counts = launch.out(GroupArgs::kCounts, scratch_part(scratch, 3 * n_experts, 4));
  MetalOp made;
  made.steps.push_back(launch.over({}, list_threads(n_experts), kReduceBytes));
  made.scratch_bytes = scratch.bytes();
  return made;
}

}  // namespace

void set_route_args(RouteArgs& args, const RoutingRule& rule, bool has_bias) {
  args.top_k = narrow(rule.top_k);
  args.score = static_cast<int>(rule.score);
  args.renormalize = rule.renormalize ? 1 : 0;
  args.scale = rule.scale;
  args.n_groups = narrow(rule.n_groups);
  args.top_groups = narrow(rule.top_groups);
  args.sum_of_two = rule.group_score == GroupScore::sum_of_two ? 1 : 0;
  args.by_logit = ranks_by_logit(rule, has_bias) ? 1 : 0;
}

MetalOp make_metal_op(const MoeRoute& op, const Target&) {
  const std::int64_t n_tokens = op.logits.dim(0);
  narrow(op.logits.dim(1));
  MetalOp made;
  if (n_tokens == 0) return made;
  ScratchLayout scratch;
  Launch<RouteArgs> launch("moe_route");
  bind_route(launch, launch.args, op, scratch);
  made.steps.push_back(launch.over({groups_of(ceil_div(n_tokens, kRouteThreads / kSimdWidth))}, kRouteThreads));
  made.scratch_bytes = scratch.bytes();
  return made;
}

MetalOp make_metal_op(const MoeRouteToHost& op, const Target&) {
  const std::int64_t n_tokens = op.logits.dim(0);
  MetalOp made;
  made.capture_refusal = "waits for the device, which cannot be captured";
  if (n_tokens == 0) return made;
  ScratchLayout scratch;
  const ScratchPart experts = scratch_part(scratch, n_tokens * op.rule.top_k, 4);
  const ScratchPart weights = scratch_part(scratch, n_tokens * op.rule.top_k, 4);
  const auto dense_view = [&](std::int64_t offset, int type) {
    return View{.offset = offset,
                .dims = {n_tokens, op.rule.top_k},
                .strides = {op.rule.top_k * 4, 4},
                .type = type,
                .rank = 2};
  };
  Launch<RouteArgs> launch("moe_route");
  RouteArgs& args = launch.args;
  bind_route_inputs(launch, launch.args, op, scratch);
  args.experts = dense_view(launch.out(RouteArgs::kExperts, experts), kI32);
  args.weights = dense_view(launch.out(RouteArgs::kWeights, weights), kF32);
  made.steps.push_back(launch.over({groups_of(ceil_div(n_tokens, kRouteThreads / kSimdWidth))}, kRouteThreads));
  made.steps.push_back(HostStep{[op, experts, weights, n_tokens](const std::byte* at) {
    std::int32_t live = static_cast<std::int32_t>(n_tokens);
    if (op.live.defined()) std::memcpy(&live, op.live.buffer->host() + op.live.byte_offset, sizeof live);
    const std::int64_t rows = std::clamp<std::int64_t>(live, 0, n_tokens);
    copy_rows(at + experts.begin, op.out.experts, rows);
    copy_rows(at + weights.begin, op.out.weights, rows);
  }});
  made.scratch_bytes = scratch.bytes();
  return made;
}

// Memory is shared: the host puts the routing where the kernels read it.
MetalOp make_metal_op(const MoeRoutingUpload& op, const Target&) {
  MetalOp made;
  made.capture_refusal = "reads host memory when it is run, which cannot be captured";
  made.steps.push_back(HostStep{[op](const std::byte*) {
    if (op.from_blocks.sorted_ids.defined()) {
      copy_padded(op.from_blocks.sorted_ids, op.to_blocks.sorted_ids, op.n_pairs);
      copy_padded(op.from_blocks.block_expert, op.to_blocks.block_expert, -1);
      copy_padded(op.from_blocks.n_padded, op.to_blocks.n_padded, 0);
    } else {
      copy_padded(op.from.experts, op.to.experts, 0);
      copy_padded(op.from.weights, op.to.weights, 0);
    }
  }});
  return made;
}

MetalOp make_metal_op(const MoeGroup& op, const Target&) {
  Launch<GroupArgs> launch("moe_group");
  launch.args.offsets = launch.out(GroupArgs::kOffsets, op.out.offsets);
  launch.args.row_pair = launch.out(GroupArgs::kRowPair, op.out.row_pair);
  launch.args.pair_row = launch.out(GroupArgs::kPairRow, op.out.pair_row);
  return group_op(launch, op.experts, op.live, op.n_experts);
}

MetalOp make_metal_op(const MoePairsByToken& op, const Target&) {
  Launch<GroupArgs> launch("moe_group");
  launch.args.by_token = 1;
  launch.args.offsets = launch.out(GroupArgs::kOffsets, op.offsets);
  launch.args.row_pair = launch.out(GroupArgs::kRowPair, op.row_token);
  launch.args.pair_row = launch.out(GroupArgs::kPairRow, op.packed_row);
  return group_op(launch, op.experts, op.live, op.n_experts);
}

MetalOp make_metal_op(const MoeExpertIds& op, const Target&) {
  Launch<GroupArgs> launch("moe_group");
  GroupArgs& args = launch.args;
  args.ids = launch.out(GroupArgs::kIds, op.ids);
  args.tpe = launch.out(GroupArgs::kTpe, op.tpe);
  args.max_rows = launch.out(GroupArgs::kMaxRows, op.max_rows);
  args.grid_gate_up = launch.out(GroupArgs::kGrids, op.grid_gate_up);
  args.grid_down = launch.out(GroupArgs::kTiles, op.grid_down);
  args.nr0 = narrow(op.nr0);
  args.nr1 = narrow(op.nr1);
  args.d_ff = narrow(op.d_ff);
  args.d_model = narrow(op.d_model);
  return group_op(launch, op.experts, op.live, op.n_experts);
}

MetalOp make_metal_op(const MoeAlignBlocks& op, const Target&) {
  Launch<GroupArgs> launch("moe_group");
  GroupArgs& args = launch.args;
  args.sorted_ids = launch.out(GroupArgs::kSorted, op.out.sorted_ids);
  args.block_expert = launch.out(GroupArgs::kBlockExpert, op.out.block_expert);
  args.n_padded = launch.out(GroupArgs::kPadded, op.out.n_padded);
  args.packed_ids = op.ids == RowIds::packed ? 1 : 0;
  args.block_size = narrow(op.block_size);
  return group_op(launch, op.experts, op.live, op.n_experts);
}

}  // namespace conclave::metal
