#include "backends/cuda/kv_put.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

// All heads of a token, by the whole block.
__device__ void put_heads(const View& from, const View& pool, std::int64_t t, std::int64_t place) {
  const std::int64_t d = from.dims[2];
  if (d == 0) return;
  const std::int64_t n = from.dims[1] * d;
  const std::int64_t page = place >> 32;
  const std::int64_t slot = place & 0xFFFFFFFF;
  // Whole blocks only, so that n is a multiple of 32 where warps work together.
  for (std::int64_t i = threadIdx.x; i < n; i += kKvThreads) {
    const std::int64_t head = i / d;
    const std::int64_t at = i - head * d;
    const float x = widened(from.type, row_of(from, t, head), at);
    std::byte* to = row_of(pool, page, slot, head);
    put(pool.type, to, at, x);
  }
}

__global__ void __launch_bounds__(kPlaceThreads) places_kernel(const __grid_constant__ KvWriteArgs args) {
  begin();
  __shared__ std::int64_t places[kPlaceTokens];
  __shared__ int replaced[kPlaceTokens];
  const int tid = static_cast<int>(threadIdx.x);
  const std::int64_t n_live = live_rows(args.live, args.k.dims[0]);
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kPlaceTokens; first < n_live;
       first += static_cast<std::int64_t>(gridDim.x) * kPlaceTokens) {
    __syncthreads();  // nobody still reads the places before these
    if (tid < kPlaceTokens) {
      places[tid] = first + tid < n_live ? place_number(args, first + tid) : -1;
      replaced[tid] = 0;
    }
    __syncthreads();
    for (std::int64_t t = first + 1 + tid; t < n_live; t += kPlaceThreads) {
      const std::int64_t place = place_number(args, t);
#pragma unroll
      for (int i = 0; i < kPlaceTokens; ++i) {
        if (places[i] == place && first + i < t) replaced[i] = 1;  // whoever says so says the same
      }
    }
    __syncthreads();
    if (tid < kPlaceTokens && first + tid < n_live) args.places[first + tid] = replaced[tid] != 0 ? -1 : places[tid];
  }
}

__global__ void __launch_bounds__(kKvThreads) kv_write_kernel(const __grid_constant__ KvWriteArgs args) {
  begin();
  const std::int64_t n_live = live_rows(args.live, args.k.dims[0]);
  for (std::int64_t t = blockIdx.x; t < n_live; t += gridDim.x) {
    const std::int64_t place = own_place<kKvThreads>(args, t);
    if (place < 0) continue;
    put_heads(args.k, args.k_pool, t, place);
    put_heads(args.v, args.v_pool, t, place);
  }
}

}  // namespace

int launch_kv_places(const KvWriteArgs& args, const Stream& stream) {
  return launch(places_kernel, kv_places_plan(args.k.dims[0]), stream, args);
}

int launch_kv_write(const KvWriteArgs& args, const Stream& stream) {
  const int error = launch_kv_places(args, stream);
  if (error != cudaSuccess) return error;
  return launch(kv_write_kernel, kv_write_plan(args.k.dims[0]), stream, args);
}

}  // namespace conclave::cuda
