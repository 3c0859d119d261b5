#include "ops/embed.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/embed_plan.h"

namespace conclave::cuda {
namespace {

class CudaEmbed final : public CudaOp {
 public:
  explicit CudaEmbed(const Embed& op)
      : args_{.ids = view_of(op.ids), .table = view_of(op.table), .out = view_of(op.out), .live = live_of(op.live)},
        what_("embed " + std::string(dtype_info(op.table.dtype).name) + " " + shape_text(op.out.shape())) {}
  void enqueue(const CudaRun& run) const override {
    check(static_cast<cudaError_t>(launch_embed(args_, run.stream)), what_);
  }

 private:
  EmbedArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const Embed& op, const Target&) {
  return std::make_unique<CudaEmbed>(op);
}

}  // namespace conclave::cuda
