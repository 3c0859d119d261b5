#include "backends/metal/launch.h"
#include "ops/moe_combine_residual_norm.h"

namespace conclave::metal {
namespace {

Launch<CombineArgs> combine_launch(const CombineInput& from) {
  Launch<CombineArgs> launch("moe_combine");
  CombineArgs& args = launch.args;
  args.rows = launch.in(CombineArgs::kRows, from.rows);
  args.weights = launch.in(CombineArgs::kWeights, from.weights);
  if (from.rows.rank == 2) {
    args.pair_row = launch.in(CombineArgs::kPairRow, from.pair_row);
  } else {
    args.experts = launch.in(CombineArgs::kExperts, from.experts);
  }
  args.n_experts = narrow(from.n_experts);
  args.shared = launch.in(CombineArgs::kShared, from.shared);
  args.live = launch.in(CombineArgs::kLive, from.live);
  return launch;
}

MetalOp combine_op(Launch<CombineArgs>& launch, const Tensor& out) {
  return op_of(launch.over({groups_of(out.dim(0))}, row_threads(out.dim(1)), kReduceBytes));
}

}  // namespace

MetalOp make_metal_op(const MoeCombine& op, const Target&) {
  Launch<CombineArgs> launch = combine_launch(op.from);
  launch.args.out = launch.out(CombineArgs::kOut, op.out);
  return combine_op(launch, op.out);
}

MetalOp make_metal_op(const MoeCombineResidual& op, const Target&) {
  Launch<CombineArgs> launch = combine_launch(op.from);
  launch.args.residual = launch.out(CombineArgs::kResidual, op.residual);
  return combine_op(launch, op.residual);
}

MetalOp make_metal_op(const MoeCombineResidualNorm& op, const Target&) {
  Launch<CombineArgs> launch = combine_launch(op.from);
  launch.args.residual = launch.out(CombineArgs::kResidual, op.residual);
  launch.args.norm_weight = launch.in(CombineArgs::kNormWeight, op.next.weight);
  launch.args.normed = launch.out(CombineArgs::kNormed, op.next.out);
  launch.args.eps = op.next.eps;
  return combine_op(launch, op.residual);
}

}  // namespace conclave::metal
