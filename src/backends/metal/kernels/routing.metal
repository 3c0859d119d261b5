// moe_route, the grouping ops, and the two in one dispatch for a step of few tokens.
#include "backends/metal/kernels/group.h"
#include "backends/metal/kernels/route.h"

static void route(constant RouteArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  route_tokens(args, buffers, long(at.group.x) * at.simds, long(at.groups.x) * at.simds, at);
}

static void group_experts(constant GroupArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  group_pairs(args, buffers, (threadgroup int*)shared, at);
}

// One threadgroup routes all tokens, then groups them. The lists of a fused layer: see moe_ffn.cpp.
static void route_and_group(constant RouteGroupArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  route_tokens(args.route, buffers, 0, at.simds, at);
  threadgroup_barrier(mem_flags::mem_device);
  Buffers lists = buffers;
  lists.at[GroupArgs::kExperts] = buffers.at[RouteArgs::kExperts];
  lists.at[GroupArgs::kLive] = buffers.at[RouteArgs::kLive];
  lists.at[GroupArgs::kCounts] = buffers.at[RouteGroupArgs::kScratch];
  lists.at[GroupArgs::kRowPair] = buffers.at[RouteGroupArgs::kRowPair];
  lists.at[GroupArgs::kPairRow] = buffers.at[RouteGroupArgs::kPairRow];
  lists.at[GroupArgs::kGrids] = buffers.at[RouteGroupArgs::kScratch];
  lists.at[GroupArgs::kTiles] = buffers.at[RouteGroupArgs::kScratch];
  group_pairs(args.group, lists, (threadgroup int*)shared, at);
}

KERNEL(moe_route, RouteArgs, route)
KERNEL(moe_group, GroupArgs, group_experts)
KERNEL(moe_route_group, RouteGroupArgs, route_and_group)
