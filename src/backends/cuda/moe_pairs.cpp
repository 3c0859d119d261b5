#include "backends/cuda/moe_pairs.h"

#include <algorithm>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/few_boxes_plan.h"
#include "backends/cuda/gate_up.h"
#include "backends/cuda/moe_route.h"
#include "backends/cuda/one_row_plan.h"
#include "backends/cuda/pair_lists_plan.h"
#include "backends/cuda/prefill.h"
#include "ops/scratch.h"

namespace conclave::cuda {
namespace {

OneRowArgs product(const MoeFfn& op, const Tensor& x, const Tensor& w, const Tensor& out, const Target& target) {
  const View weights = view_of(w);
  const auto floats = [](const Tensor& t) { return reinterpret_cast<float*>(view_of(t).data); };
  return {.w = weights.data,
          .w_expert = weights.strides[0],
          .w_column = weights.strides[1],
          .x = floats(x),
          .x_stride = x.stride(0) / 4,
          .out = floats(out),
          .out_stride = out.stride(0) / 4,
          .experts = ints_of(op.routing.experts),
          .live = ints_of(op.live),
          .top_k = static_cast<std::int32_t>(op.rule.top_k),
          .n_experts = static_cast<std::int32_t>(op.gate.dim(0)),
          .rows = static_cast<std::int32_t>(row_count(op.hidden)),
          .n = static_cast<std::int32_t>(w.dim(1)),
          .k = static_cast<std::int32_t>(w.dim(2)),
          .chunks = static_cast<std::int32_t>(chunks_of(w.dim(2))),
          .type = w.dtype,
          .hopper = room_on(target).wide > 0};
}

OneRowArgs gate_up_product(const MoeFfn& op, const Target& target) {
  OneRowArgs args = product(op, op.x, op.gate, op.hidden, target);
  const View up = view_of(op.up);
  args.up = up.data;
  args.up_expert = up.strides[0];
  args.up_column = up.strides[1];
  args.x_step = args.top_k;
  args.act = op.act;
  return args;
}
OneRowArgs down_product(const MoeFfn& op, const Target& target) {
  return product(op, op.hidden, op.down, op.expert_out, target);
}

int launch_pairs(const OneRowArgs& args, const Stream& stream) {
  return takes_pair_lists(args) ? launch_pair_lists(args, stream) : launch_one_row(args, stream);
}

// Route, gate, up and down of a layer with few pairs: nothing is grouped. Row p of `hidden` and `expert_out` is pair p's.
class PairLayer final : public CudaOp {
 public:
  PairLayer(const MoeFfn& op, const Target& target)
      : what_("moe_ffn " + shape_text(op.x.shape())),
        route_(route_args(sequence_of(op).route)),
        gate_up_(gate_up_product(op, target)),
        down_(down_product(op, target)) {
    route_.bank = {.x = gate_up_.x,
                   .x_stride = gate_up_.x_stride,
                   .rows = static_cast<std::int32_t>(op.x.dim(0)),
                   .k = gate_up_.k,
                   .chunks = gate_up_.chunks};
    q_at_ = scratch_.add(op.x.dim(0), gate_up_.chunks * kChunk);
    scale_at_ = scratch_.add(op.x.dim(0), gate_up_.chunks * 4);
  }
  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }
  void enqueue(const CudaRun& run) const override {
    RouteArgs route = route_;
    OneRowArgs gate_up = gate_up_;
    gate_up.q = route.bank.q = scratch_at<std::int8_t>(run.scratch, q_at_);
    gate_up.scale = route.bank.scale = scratch_at<float>(run.scratch, scale_at_);
    check(launch_moe_route(route, run.stream), what_);
    check(launch_pairs(gate_up, run.stream), what_);
    check(launch_pairs(down_, run.stream), what_);
  }

 private:
  std::string what_;
  RouteArgs route_;
  OneRowArgs gate_up_;
  OneRowArgs down_;
  ScratchLayout scratch_;
  std::int64_t q_at_ = 0;
  std::int64_t scale_at_ = 0;
};

}  // namespace

CombineInput by_pairs(CombineInput from, const MoeFfn& op) {
  const std::int64_t stride = from.rows.strides[0];
  from.rows.rank = 3;
  from.rows.dims = {op.x.dim(0), op.rule.top_k, op.x.dim(1)};
  from.rows.strides = {stride * op.rule.top_k, stride, dtype_info(from.rows.dtype).bytes};
  from.pair_row = {};
  from.experts = op.routing.experts;
  from.n_experts = op.gate.dim(0);
  return from;
}

bool goes_by_pairs(const MoeFfn& op, const Target& target) {
  const auto dense = [](const Tensor& t) {
    return t.dtype == DType::f32 && even_stride(view_of(t)).has_value() && *even_stride(view_of(t)) % 4 == 0;
  };
  const auto fits = [](const Tensor& w) {
    return (units_fit(view_of(w)) || blocks_fit(view_of(w))) && w.inner() <= kOneChunks * kChunk;
  };
  const MoeFfnSequence sequence = sequence_of(op);
  if (takes_prefill(sequence.gate_up, target) || takes_prefill(sequence.down, target)) return false;
  const auto boxed = [](const Tensor& w, bool gate_up) {
    return units_fit(view_of(w)) && boxes_fit(w.dtype, chunks_of(w.inner()), gate_up);
  };
  const std::int64_t pairs = row_count(op.hidden);
  const bool lists = takes_pair_lists(gate_up_product(op, target)) && takes_pair_lists(down_product(op, target));
  const bool boxes = !lists && room_on(target).wide > 0 && boxed(op.gate, true) && boxed(op.up, true) &&
                     boxed(op.down, false) && !shares_tiles(std::min(op.gate.dim(0), pairs), op.gate.dim(1), true);
  const Tensor& ids = op.routing.experts;
  return pairs <= (boxes ? kOnePairsOrBoxes : kOnePairs) && routes_in_warp(op.rule, op.logits.dim(1)) &&
         op.gate.dtype == op.up.dtype && fits(op.gate) && fits(op.up) && fits(op.down) && dense(op.x) &&
         dense(op.hidden) && op.expert_out.dtype == DType::f32 && view_of(op.expert_out).strides[0] % 4 == 0 &&
         ids.strides[0] == ids.dim(1) * 4;
}

std::unique_ptr<CudaOp> make_pairs(const MoeFfn& op, const Target& target) {
  return std::make_unique<PairLayer>(op, target);
}

}  // namespace conclave::cuda
