#include "backends/cuda/lone_row.h"

#include <algorithm>
#include <array>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/fusion.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/lone_heads_plan.h"
#include "backends/cuda/moe_route.h"
#include "backends/cuda/prefill.h"
#include "backends/cuda/rms_norm_plan.h"

namespace conclave::cuda {
namespace {

// One row of f32 in whole chunks, and no more of them than a block has warps.
bool is_lone_row(const Tensor& t) {
  return t.defined() && t.rank == 2 && t.dim(0) == 1 && t.dtype == DType::f32 && takes_vectors(view_of(t)) &&
         t.dim(1) > 0 && t.dim(1) % kChunk == 0 && t.dim(1) <= std::int64_t{kLoneChunks} * kChunk;
}
bool is_f32(const Tensor& t) {
  return !t.defined() || t.dtype == DType::f32;
}
bool has_room(const Target& target, std::int64_t shared_bytes) {
  constexpr std::int64_t kBeside = 2048;  // what kernels have by themselves
  return prefill_multiprocessors(target) > 0 && shared_bytes + kBeside <= target.shared_bytes;
}
bool lone_space_fits(const LoneShape& shape, const Target& target) {
  return lone_fits(shape) && has_room(target, lone_space(shape).bytes);
}

std::optional<LoneMatrix> lone_matrix(const Matmul& op, const Target& target) {
  const View w = view_of(op.w);
  if (!is_lone_row(op.x) || w.rank != 2 || !units_fit(w) || !is_f32(op.out) || !is_f32(op.bias) ||
      takes_prefill(op, target) || op.w.dim(0) == 0 || op.w.dim(0) >= (std::int64_t{1} << 28) ||
      w.strides[0] != lone_column_bytes(w.type, op.x.dim(1) / kChunk)) {
    return std::nullopt;
  }
  return LoneMatrix{.w = w.data,
                    .column = w.strides[0],
                    .out = data_of<float>(op.out),
                    .bias = data_of<const float>(op.bias),
                    .n = static_cast<std::int32_t>(op.w.dim(0)),
                    .bytes = static_cast<std::int32_t>(lone_column_bytes(op.w.dtype, op.x.dim(1) / kChunk)),
                    .type = op.w.dtype};
}

LoneRow row_as_it_is(const Tensor& x) {
  return {.x = data_of<const float>(x), .k = static_cast<std::int32_t>(x.dim(1))};
}
// x normed, for products of `normed`; none where that cannot be done by every block for itself.
std::optional<LoneRow> normed_row(const Tensor& x, const Tensor& weight, const Tensor& normed, float eps) {
  if (!is_lone_row(x) || !is_lone_row(normed) || weight.dtype != DType::f32 || !takes_vectors(view_of(weight)) ||
      overlap_any(normed, {&x, &weight})) {
    return std::nullopt;
  }
  LoneRow row = row_as_it_is(x);
  row.norm_weight = data_of<const float>(weight);
  row.normed = data_of<float>(normed);
  row.eps = eps;
  return row;
}

// The products of `x` from op `first` on, side by side. `touched`: what they may not write.
std::optional<LoneRowsArgs> lone_products(std::span<const Op> ops, std::size_t first, const Tensor& x,
                                          const Tensor& live, std::initializer_list<const Tensor*> touched,
                                          const LoneRow& row, const Target& target) {
  LoneRowsArgs args{.row = row, .live = ints_of(live), .count = 0, .blocks = target.multiprocessors};
  std::array<const Matmul*, kLoneMatrices> taken{};
  for (; args.count < kLoneMatrices; ++args.count) {
    const auto* op = op_at<Matmul>(ops, first + static_cast<std::size_t>(args.count));
    if (op == nullptr || op->x != x || op->live != live || overlap_any(op->out, {&op->x, &op->w, &op->bias}) ||
        overlap_any(op->out, touched)) {
      break;
    }
    const bool apart = std::all_of(taken.begin(), taken.begin() + args.count, [&](const Matmul* other) {
      return !overlap_any(op->out, {&other->out, &other->w, &other->bias}) &&
             !overlap_any(other->out, {&op->w, &op->bias});
    });
    const auto matrix = apart ? lone_matrix(*op, target) : std::nullopt;
    if (!matrix) break;
    args.of[args.count] = *matrix;
    taken[static_cast<std::size_t>(args.count)] = op;
  }
  if (args.count == 0 || !lone_space_fits(lone_rows_shape(args), target)) return std::nullopt;
  return args;
}

FusedOps lone_rows_op(std::size_t first, std::size_t count, const LoneRowsArgs& args) {
  return {first, count, launch_op(launch_lone_rows, args, fmt::format("matmul of [1, {}]", args.row.k))};
}

// A router's product after its norm.
std::optional<FusedOps> router(std::span<const Op> ops, std::size_t first, const RmsNorm& norm, const LoneRow& row,
                               const Target& target) {
  const auto* op = op_at<Matmul>(ops, first + 1);
  if (op == nullptr || op->x != norm.out || op->live != norm.live || op->w.dtype != DType::f32 || !is_f32(op->out) ||
      !is_f32(op->bias) || !takes_vectors(view_of(op->w)) || op->w.dim(0) == 0 ||
      overlap_any(op->out, {&op->x, &op->w, &op->bias, &norm.x, &norm.weight})) {
    return std::nullopt;
  }
  const std::int64_t n = op->w.dim(0);
  const std::int64_t blocks = target.multiprocessors;
  if (lone_router_columns(n, blocks) > kLoneWarps || !has_room(target, lone_router_shared(n, row.k, blocks))) {
    return std::nullopt;
  }
  const LoneRouterArgs args{.row = row,
                            .w = data_of<const float>(op->w),
                            .column = op->w.stride(0) / 4,
                            .bias = data_of<const float>(op->bias),
                            .out = data_of<float>(op->out),
                            .live = ints_of(op->live),
                            .n = static_cast<std::int32_t>(n),
                            .blocks = static_cast<std::int32_t>(blocks)};
  return FusedOps{first, 2, launch_op(launch_lone_router, args, fmt::format("router of [1, {}]", row.k))};
}

// Heads and attention of one token have half of the multiprocessors. Of the blocks of a product that starts beside
// them, two may come to one of the others, and take longer there: each asks for so much shared memory that this cannot
// be, where so much is left beside the heads. H200, 2026-11-16: 0.7 us a layer.
std::int64_t shared_to_be_alone(std::span<const Op> ops, std::size_t first, const Target& target) {
  constexpr std::int64_t kBeside = 4096;  // what kernels have besides
  const auto* heads = first > 0 ? op_at<Attention>(ops, first - 1) : nullptr;
  if (heads == nullptr) return 0;
  const std::int64_t max_units = ceil_div(heads->kv.pages.dim(1) * heads->kv.page_size(), kUnit);
  const std::int64_t alone = target.shared_bytes / 2 + 1024;
  return max_units <= kLoneMaxUnits && lone_heads_shared(max_units) + alone + kBeside <= target.shared_bytes ? alone
                                                                                                             : 0;
}

class LoneFfn final : public CudaOp {
 public:
  LoneFfn(const MoeFfn& op, const LoneFfnArgs& args, bool norms)
      : args_(args), what_("moe_ffn " + shape_text(op.x.shape())) {
    if (norms && op.next.weight.defined()) {
      norm_ = RmsNormArgs{.x = view_of(op.residual),
                          .weight = view_of(op.next.weight),
                          .out = view_of(op.next.out),
                          .live = ints_of(op.live),
                          .eps = op.next.eps};
    }
  }
  void enqueue(const CudaRun& run) const override {
    check(launch_lone_gate_up(args_, run.stream), what_);
    check(launch_lone_down(args_, run.stream), what_);
    if (norm_) check(launch_rms_norm(*norm_, run.stream), what_);
  }

 private:
  LoneFfnArgs args_;
  std::optional<RmsNormArgs> norm_;
  std::string what_;
};

}  // namespace

std::optional<LoneFfnArgs> lone_ffn_of(const MoeFfn& op, const Target& target) {
  const MoeFfnSequence sequence = sequence_of(op);
  const View gate = view_of(op.gate);
  const View up = view_of(op.up);
  const View down = view_of(op.down);
  const View hidden = view_of(op.hidden);
  const bool floats = is_lone_row(op.x) && is_lone_row(op.residual) && op.logits.dtype == DType::f32 &&
                      op.hidden.dtype == DType::f32 && hidden.rank == 2 && takes_vectors(hidden) &&
                      is_f32(op.shared_out);
  if (!floats || takes_prefill(sequence.gate_up, target) || takes_prefill(sequence.down, target) || !units_fit(gate) ||
      !units_fit(up) || !units_fit(down) || gate.type != up.type || op.logits.dim(1) > kLoneExperts ||
      !routes_in_warp(op.rule, op.logits.dim(1)) || op.rule.n_groups > 1 || op.down.dim(2) % kChunk != 0) {
    return std::nullopt;
  }
  const RouteArgs route = route_args(sequence.route);
  if (!route.how.by_logit) return std::nullopt;  // experts are chosen by the order of the logits alone
  const LoneFfnArgs args{.how = route.how,
                         .logits = data_of<const float>(op.logits),
                         .experts = ints_of(op.routing.experts),
                         .weights = data_of<float>(op.routing.weights),
                         .no_finite = route.no_finite,
                         .counts = route.counts,
                         .live = route.live,
                         .x = data_of<const float>(op.x),
                         .gate = gate.data,
                         .up = up.data,
                         .down = down.data,
                         .gate_expert = gate.strides[0],
                         .up_expert = up.strides[0],
                         .down_expert = down.strides[0],
                         .gate_column = gate.strides[1],
                         .up_column = up.strides[1],
                         .down_column = down.strides[1],
                         .hidden = data_of<float>(op.hidden),
                         .hidden_stride = hidden.strides[0] / 4,
                         .shared = sequence.shared ? data_of<const float>(op.shared_out) : nullptr,
                         .residual = data_of<float>(op.residual),
                         .d_model = static_cast<std::int32_t>(op.x.dim(1)),
                         .d_ff = static_cast<std::int32_t>(op.down.dim(2)),
                         .blocks = target.multiprocessors,
                         .type = gate.type,
                         .down_type = down.type,
                         .act = op.act};
  const LoneShape gate_up_shape = lone_gate_up_shape(args);
  const LoneShape down_shape = lone_down_shape(args);
  // Columns must follow one another: several are copied at once.
  const bool side_by_side = args.gate_column == gate_up_shape.column_bytes &&
                            args.up_column == gate_up_shape.column_bytes && args.down_column == down_shape.column_bytes;
  const bool fits = side_by_side && lone_space_fits(gate_up_shape, target) && lone_space_fits(down_shape, target);
  return fits ? std::optional(args) : std::nullopt;
}

std::unique_ptr<CudaOp> make_lone_ffn(const MoeFfn& op, const LoneFfnArgs& args, bool norms) {
  return std::make_unique<LoneFfn>(op, args, norms);
}

std::vector<FusedOps> fuse_lone(std::span<const Op> ops, std::size_t first, const Target& target) {
  std::vector<FusedOps> fused;
  if (const auto* norm = op_at<RmsNorm>(ops, first)) {
    const auto row = normed_row(norm->x, norm->weight, norm->out, norm->eps);
    if (!row) return fused;
    if (const auto args =
            lone_products(ops, first + 1, norm->out, norm->live, {&norm->x, &norm->weight}, *row, target)) {
      fused.push_back(lone_rows_op(first, 1 + static_cast<std::size_t>(args->count), *args));
    } else if (auto found = router(ops, first, *norm, *row, target)) {
      fused.push_back(std::move(*found));
    }
  } else if (const auto* product = op_at<Matmul>(ops, first)) {
    const auto* add = op_at<Add>(ops, first + 1);
    if (add == nullptr || add->b != product->out || add->out != add->a || add->live != product->live ||
        !is_lone_row(add->a) || !is_lone_row(product->x) ||
        overlap_any(add->a, {&product->x, &product->w, &product->bias, &product->out})) {
      return fused;
    }
    auto args =
        lone_products(ops.first(first + 1), first, product->x, product->live, {}, row_as_it_is(product->x), target);
    if (!args) return fused;
    args->residual = data_of<float>(add->a);
    args->least_shared = shared_to_be_alone(ops, first, target);
    fused.push_back(lone_rows_op(first, 2, *args));
  } else if (const auto* ffn = op_at<MoeFfn>(ops, first); ffn != nullptr && !sequence_of(*ffn).shared) {
    const auto experts = lone_ffn_of(*ffn, target);
    if (!experts || !ffn->next.weight.defined()) return fused;
    const auto row = normed_row(ffn->residual, ffn->next.weight, ffn->next.out, ffn->next.eps);
    const auto args =
        row ? lone_products(ops, first + 1, ffn->next.out, ffn->live, {&ffn->residual, &ffn->next.weight}, *row, target)
            : std::nullopt;
    if (!args) return fused;
    fused.push_back({first, 1, make_lone_ffn(*ffn, *experts, false)});
    fused.push_back(lone_rows_op(first + 1, static_cast<std::size_t>(args->count), *args));
  }
  return fused;
}

}  // namespace conclave::cuda
