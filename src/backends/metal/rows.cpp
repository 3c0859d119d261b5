// The ops that work row by row.
#include <cmath>

#include "backends/metal/launch.h"

namespace conclave::metal {
MetalOp make_metal_op(const Add& op, const Target&) {
  Launch<AddArgs> launch("add_rows");
  AddArgs& args = launch.args;
  args.in_place = op.a == op.out ? 1 : op.b == op.out ? 2 : 0;
  args.live = launch.in(AddArgs::kLive, op.live);
  args.out = launch.out(AddArgs::kOut, op.out);
  args.a = args.in_place == 1 ? args.out : launch.in(AddArgs::kA, op.a);
  args.b = args.in_place == 2 ? args.out : launch.in(AddArgs::kB, op.b);
  return op_of(launch.over({groups_of(op.out.dim(0))}, row_threads(op.out.inner())));
}

MetalOp make_metal_op(const SiluMul& op, const Target&) {
  const GateUpViews halves = gate_up_views(op);
  Launch<SiluMulArgs> launch("silu_mul_rows");
  SiluMulArgs& args = launch.args;
  args.in_place = halves.gate == op.out ? 1 : halves.up == op.out ? 2 : 0;
  args.live = launch.in(SiluMulArgs::kLive, op.live);
  args.out = launch.out(SiluMulArgs::kOut, op.out);
  args.gate = args.in_place == 1 ? args.out : launch.in(SiluMulArgs::kGate, halves.gate);
  args.up = args.in_place == 2 ? args.out : launch.in(SiluMulArgs::kUp, halves.up);
  return op_of(launch.over({groups_of(row_count(op.out))}, row_threads(op.out.inner())));
}

MetalOp make_metal_op(const Embed& op, const Target&) {
  Launch<EmbedArgs> launch("embed_rows");
  launch.args.ids = launch.in(EmbedArgs::kIds, op.ids);
  launch.args.table = launch.in(EmbedArgs::kTable, op.table);
  launch.args.live = launch.in(EmbedArgs::kLive, op.live);
  launch.args.out = launch.out(EmbedArgs::kOut, op.out);
  return op_of(launch.over({groups_of(op.out.dim(0))}, row_threads(op.out.dim(1))));
}

MetalOp make_metal_op(const RmsNorm& op, const Target&) {
  Launch<NormArgs> launch("rms_norm_rows");
  NormArgs& args = launch.args;
  args.in_place = op.x == op.out ? 1 : 0;
  args.out = launch.out(NormArgs::kOut, op.out);
  args.x = args.in_place != 0 ? args.out : launch.in(NormArgs::kX, op.x);
  args.weight = launch.in(NormArgs::kWeight, op.weight);
  args.live = launch.in(NormArgs::kLive, op.live);
  args.eps = op.eps;
  return op_of(launch.over({groups_of(row_count(op.x))}, row_threads(op.x.inner()), kReduceBytes));
}

MetalOp make_metal_op(const Softmax& op, const Target&) {
  Launch<SoftmaxArgs> launch("softmax_rows");
  SoftmaxArgs& args = launch.args;
  args.in_place = op.x == op.out ? 1 : 0;
  args.out = launch.out(SoftmaxArgs::kOut, op.out);
  args.x = args.in_place != 0 ? args.out : launch.in(SoftmaxArgs::kX, op.x);
  args.live = launch.in(SoftmaxArgs::kLive, op.live);
  args.scale = op.scale;
  return op_of(launch.over({groups_of(op.x.dim(0))}, row_threads(op.x.dim(1)), kReduceBytes));
}

MetalOp make_metal_op(const Argmax& op, const Target&) {
  narrow(op.x.dim(1));
  Launch<ArgmaxArgs> launch("argmax_rows");
  launch.args.x = launch.in(ArgmaxArgs::kX, op.x);
  launch.args.live = launch.in(ArgmaxArgs::kLive, op.live);
  launch.args.ids = launch.out(ArgmaxArgs::kIds, op.ids);
  return op_of(launch.over({groups_of(op.x.dim(0))}, row_threads(op.x.dim(1)), kReduceBytes));
}

MetalOp make_metal_op(const TopK& op, const Target&) {
  narrow(op.x.dim(1));
  Launch<TopKArgs> launch("top_k_rows");
  launch.args.x = launch.in(TopKArgs::kX, op.x);
  launch.args.live = launch.in(TopKArgs::kLive, op.live);
  launch.args.ids = launch.out(TopKArgs::kIds, op.ids);
  launch.args.values = launch.out(TopKArgs::kValues, op.values);
  return op_of(launch.over({groups_of(op.x.dim(0))}, row_threads(op.x.dim(1)), kReduceBytes));
}

MetalOp make_metal_op(const Rope& op, const Target&) {
  Rope plain = op;
  plain.factors = {};  // they lie on the device, and only divide the frequencies
  std::vector<float> frequencies;
  for (const double f : rope_frequencies(plain)) frequencies.push_back(static_cast<float>(f));
  const ScratchPart table{0, static_cast<std::int64_t>(frequencies.size() * sizeof(float))};

  Launch<RopeArgs> launch("rope_heads");
  RopeArgs& args = launch.args;
  args.in_place = op.x == op.out ? 1 : 0;
  args.out = launch.out(RopeArgs::kOut, op.out);
  args.x = args.in_place != 0 ? args.out : launch.in(RopeArgs::kX, op.x);
  args.positions = launch.in(RopeArgs::kPositions, op.positions);
  args.factors = launch.in(RopeArgs::kFactors, op.factors);
  args.live = launch.in(RopeArgs::kLive, op.live);
  args.frequencies = launch.constants(RopeArgs::kFrequencies, table);
  args.n_rot = narrow(op.n_rot);
  args.interleaved = op.style == RopeStyle::interleaved ? 1 : 0;
  args.magnitude = op.magnitude;
  MetalOp made = op_of(launch.over({groups_of(op.x.dim(0) * op.x.dim(1))}, row_threads(op.n_rot / 2)));
  made.constants.resize(static_cast<std::size_t>(table.bytes));
  std::memcpy(made.constants.data(), frequencies.data(), made.constants.size());
  return made;
}

}  // namespace conclave::metal
