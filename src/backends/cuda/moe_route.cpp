#include "backends/cuda/moe_route.h"

#include <optional>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/route_tiles_plan.h"
#include "base/fail.h"

namespace conclave::cuda {

RouteRule route_rule(const RoutingRule& rule, std::int64_t n_experts, const Tensor& bias, const Tensor& expert_scale) {
  if (n_experts > kMaxRoutedExperts) {
    fail(ErrorCode::unsupported, "routing over {} experts: at most {}", n_experts, kMaxRoutedExperts);
  }
  return {.rule = rule,
          .n_experts = static_cast<std::int32_t>(n_experts),
          .by_logit = ranks_by_logit(rule, bias.defined()),
          .bias = reinterpret_cast<const float*>(view_of(bias).data),
          .expert_scale = reinterpret_cast<const float*>(view_of(expert_scale).data)};
}

RouteArgs route_args(const MoeRoute& op) {
  return {.how = route_rule(op.rule, op.logits.dim(1), op.bias, op.expert_scale),
          .logits = view_of(op.logits),
          .experts = view_of(op.out.experts),
          .weights = view_of(op.out.weights),
          .no_finite = ints_of(op.out.no_finite),
          .counts = ints_of(op.out.counts),
          .live = ints_of(op.live)};
}

namespace {

class CudaMoeRoute final : public CudaOp {
 public:
  explicit CudaMoeRoute(const MoeRoute& op)
      : args_(route_args(op)),
        what_(fmt::format("moe_route {} top {}", shape_text(op.logits.shape()), op.rule.top_k)) {}

  std::int64_t scratch_bytes() const override {
    return route_scratch_bytes(args_.logits.dims[0], args_.how.n_experts, args_.how.rule);
  }
  void enqueue(const CudaRun& run) const override {
    RouteArgs args = args_;
    args.scratch = run.scratch;
    check(launch_moe_route(args, run.stream), what_);
  }

 private:
  RouteArgs args_;
  std::string what_;
};

class CudaRouteGroup final : public CudaOp {
 public:
  // `rows`: those that it makes for the op behind it, in scratch memory of that op.
  CudaRouteGroup(const RouteGroupArgs& args, bool clusters, std::optional<OpBank> rows, std::string what)
      : args_(args), clusters_(clusters), rows_(std::move(rows)), what_(std::move(what)) {}
  void enqueue(const CudaRun& run) const override {
    RouteGroupArgs args = args_;
    if (rows_) args.bank = rows_->at(run.scratch);
    check(launch_route_group(args, clusters_, run.stream), what_);
  }

 private:
  RouteGroupArgs args_;
  bool clusters_;
  std::optional<OpBank> rows_;
  std::string what_;
};

// The same in two launches.
class CudaRouteTiles final : public CudaOp {
 public:
  CudaRouteTiles(const RouteGroupArgs& args, std::string what) : args_(args), what_(std::move(what)) {}
  std::int64_t scratch_bytes() const override { return route_tiles_scratch(args_.logits.dims[0], args_.how.n_experts); }
  void enqueue(const CudaRun& run) const override { check(launch_route_tiles(args_, run.scratch, run.stream), what_); }

 private:
  RouteGroupArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_route_group(const MoeRoute& route, const MoeGroup& group, const Target& target,
                                         OpBank* rows) {
  const std::int64_t n_tokens = route.logits.dim(0);
  const std::int64_t n_experts = route.logits.dim(1);
  const bool clusters = target.capability >= 90;
  const bool at_once = takes_route_group(n_tokens, n_experts, route.rule, clusters);
  if (group.experts != route.out.experts || group.live != route.live || group.n_experts != n_experts ||
      (!at_once && !takes_route_tiles(n_tokens, n_experts, route.rule))) {
    return nullptr;
  }
  const RouteArgs args = route_args(route);
  const RouteGroupArgs both{.how = args.how,
                            .logits = args.logits,
                            .experts = args.experts,
                            .weights = args.weights,
                            .pair_row = view_of(group.out.pair_row),
                            .offsets = ints_of(group.out.offsets),
                            .row_pair = ints_of(group.out.row_pair),
                            .no_finite = args.no_finite,
                            .counts = args.counts,
                            .live = args.live};
  std::string what =
      fmt::format("moe_route and moe_group {} top {}", shape_text(route.logits.shape()), route.rule.top_k);
  if (at_once) {
    std::optional<OpBank> made;
    if (rows != nullptr && rows->makes_int8()) {
      made = *rows;
      rows->leave();
    }
    return std::make_unique<CudaRouteGroup>(both, clusters, std::move(made), std::move(what));
  }
  return std::make_unique<CudaRouteTiles>(both, std::move(what));
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeRoute& op, const Target&) {
  return std::make_unique<CudaMoeRoute>(op);
}

}  // namespace conclave::cuda
