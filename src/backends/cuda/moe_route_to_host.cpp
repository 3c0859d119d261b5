// moe_route_to_host: routed into scratch memory, then copied. The rows that count are copied alone, so the count is
// fetched first.
#include "ops/moe_route_to_host.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/host_copy.h"
#include "backends/cuda/moe_route.h"
#include "base/fail.h"

namespace conclave::cuda {
namespace {

// Dense i32 or f32 [rows, columns] at `data`.
View dense_view(std::byte* data, DType type, std::int64_t rows, std::int64_t columns) {
  return {.data = data, .type = type, .rank = 2, .dims = {rows, columns}, .strides = {columns * 4, 4}};
}

class CudaMoeRouteToHost final : public CudaOp {
 public:
  explicit CudaMoeRouteToHost(const MoeRouteToHost& op)
      : op_(op),
        args_{.how = route_rule(op.rule, op.logits.dim(1), op.bias, op.expert_scale),
              .logits = view_of(op.logits),
              .live = ints_of(op.live)},
        part_bytes_(ceil_div(op.logits.dim(0) * op.rule.top_k * 4, 256) * 256),
        what_(fmt::format("moe_route_to_host {} top {}", shape_text(op.logits.shape()), op.rule.top_k)) {}

  std::int64_t scratch_bytes() const override {
    return 2 * part_bytes_ + route_scratch_bytes(op_.logits.dim(0), op_.logits.dim(1), op_.rule);
  }
  std::string capture_refusal() const override { return "waits for the device, which cannot be captured"; }

  void enqueue(const CudaRun& run) const override {
    const std::int64_t n_tokens = op_.logits.dim(0);
    RouteArgs args = args_;
    args.experts = dense_view(run.scratch, DType::i32, n_tokens, op_.rule.top_k);
    args.weights = dense_view(run.scratch + part_bytes_, DType::f32, n_tokens, op_.rule.top_k);
    args.scratch = run.scratch + 2 * part_bytes_;
    check(launch_moe_route(args, run.stream), what_);
    const std::int64_t rows = live_tokens(run.stream);
    copy(op_.out.experts, args.experts, rows, run.stream);
    copy(op_.out.weights, args.weights, rows, run.stream);
    check(cudaStreamSynchronize(run.stream.handle), what_);
  }

 private:
  std::int64_t live_tokens(const Stream& stream) const {
    const std::int64_t n_tokens = op_.logits.dim(0);
    if (args_.live == nullptr) return n_tokens;
    std::int32_t live = 0;
    check(cudaMemcpyAsync(&live, args_.live, sizeof live, cudaMemcpyDeviceToHost, stream.handle), what_);
    check(cudaStreamSynchronize(stream.handle), what_);
    return std::clamp<std::int64_t>(live, 0, n_tokens);
  }

  void copy(const Tensor& to, const View& from, std::int64_t rows, const Stream& stream) const {
    copy_rows({.to = to.buffer->host() + to.byte_offset,
               .to_stride = to.stride(0),
               .from = from.data,
               .from_stride = from.strides[0],
               .row_bytes = row_bytes(to),
               .rows = rows},
              cudaMemcpyDeviceToHost, stream, what_);
  }

  MoeRouteToHost op_;
  RouteArgs args_;
  std::int64_t part_bytes_;  // of the experts in scratch memory, and of the weights
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const MoeRouteToHost& op, const Target&) {
  return std::make_unique<CudaMoeRouteToHost>(op);
}

}  // namespace conclave::cuda
