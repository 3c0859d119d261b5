#include "ops/embed.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/embed_plan.h"
#include "backends/cuda/launch_op.h"

namespace conclave::cuda {
std::unique_ptr<CudaOp> make_cuda_op(const Embed& op, const Target&) {
  const EmbedArgs args{
      .ids = view_of(op.ids), .table = view_of(op.table), .out = view_of(op.out), .live = ints_of(op.live)};
  return launch_op(launch_embed, args,
                   "embed " + std::string(dtype_info(op.table.dtype).name) + " " + shape_text(op.out.shape()));
}

}  // namespace conclave::cuda
