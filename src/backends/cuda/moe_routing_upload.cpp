// moe_routing_upload: rows copied from host memory, which CUDA has read when the call returns, and padding filled by a
// kernel.
#include "ops/moe_routing_upload.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/host_copy.h"
#include "backends/cuda/moe_routing_upload_plan.h"
#include "base/fail.h"

namespace conclave::cuda {
namespace {

class CudaMoeRoutingUpload final : public CudaOp {
 public:
  explicit CudaMoeRoutingUpload(const MoeRoutingUpload& op)
      : op_(op),
        what_(fmt::format("moe_routing_upload {}",
                          shape_text(blocks() ? op.from_blocks.sorted_ids.shape() : op.from.experts.shape()))) {}

  std::string capture_refusal() const override { return "reads host memory when it is run, which cannot be captured"; }

  void enqueue(const CudaRun& run) const override {
    if (blocks()) {
      copy_padded(op_.from_blocks.sorted_ids, op_.to_blocks.sorted_ids, op_.n_pairs, run.stream);
      copy_padded(op_.from_blocks.block_expert, op_.to_blocks.block_expert, -1, run.stream);
      copy_padded(op_.from_blocks.n_padded, op_.to_blocks.n_padded, 0, run.stream);
    } else {
      copy(op_.from.experts, op_.to.experts, run.stream);
      copy(op_.from.weights, op_.to.weights, run.stream);
    }
    check(cudaStreamSynchronize(run.stream.handle), what_);  // the host's tensors may change
  }

 private:
  bool blocks() const { return op_.from_blocks.sorted_ids.defined(); }

  // All of `from`, which is of rank 1 or 2, to where `to` begins.
  void copy(const Tensor& from, const Tensor& to, const Stream& stream) const {
    copy_rows({.to = view_of(to).data,
               .to_stride = to.stride(0),
               .from = from.buffer->host() + from.byte_offset,
               .from_stride = from.stride(0),
               .row_bytes = row_bytes(from),
               .rows = from.rank == 1 ? 1 : from.dim(0)},
              cudaMemcpyHostToDevice, stream, what_);
  }

  void copy_padded(const Tensor& from, const Tensor& to, std::int64_t padding, const Stream& stream) const {
    copy(from, to, stream);
    const FillArgs rest{.to = reinterpret_cast<std::int32_t*>(view_of(to).data) + from.dim(0),
                        .count = to.dim(0) - from.dim(0),
                        .value = static_cast<std::int32_t>(padding)};
    check(launch_fill(rest, stream), what_);
  }

  MoeRoutingUpload op_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const MoeRoutingUpload& op, const Target&) {
  return std::make_unique<CudaMoeRoutingUpload>(op);
}

}  // namespace conclave::cuda
