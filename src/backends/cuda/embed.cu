#include "backends/cuda/embed_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/row_ops.cuh"
#include "backends/cuda/weight_at.cuh"

namespace conclave::cuda {
namespace {

__global__ void __launch_bounds__(kEmbedThreads) embed_kernel(const __grid_constant__ EmbedArgs args) {
  begin();
  const std::int64_t d = args.out.dims[1];
  const std::int64_t parts = (d + kEmbedColumns - 1) / kEmbedColumns;
  const std::int64_t n_parts = live_rows(args.live, args.out.dims[0]) * parts;
  for (std::int64_t part = blockIdx.x; part < n_parts; part += gridDim.x) {
    const Divided at = divide(part, parts);
    const std::int64_t id = int_at(args.ids, at.quotient);
    const bool known = id >= 0 && id < args.table.dims[0];
    std::byte* out = row_of(args.out, at.quotient);
    const std::int64_t first = at.rest * kEmbedColumns;
    const std::int64_t end = first + kEmbedColumns < d ? first + kEmbedColumns : d;
    for (std::int64_t k = first + threadIdx.x; k < end; k += kEmbedThreads) {
      const float value = known ? weight_at(args.table, row_of(args.table, id), k) : 0.0F;
      store_float(args.out.type, out, k, value);
    }
  }
}

}  // namespace

int launch_embed(const EmbedArgs& args, const Stream& stream) {
  return launch(embed_kernel, embed_plan(args.out.dims[0], args.out.dims[1]), stream, args);
}

}  // namespace conclave::cuda
