#include "backends/cuda/moe_route.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
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

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const MoeRoute& op, const Target&) {
  return std::make_unique<CudaMoeRoute>(op);
}

}  // namespace conclave::cuda
