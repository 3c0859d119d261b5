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

__global__ void __launch_bounds__(kKvThreads) places_kernel(const __grid_constant__ KvWriteArgs args) {
  begin();
  const std::int64_t n_live = live_rows(args.live, args.k.dims[0]);
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kKvThreads;
  for (std::int64_t t = static_cast<std::int64_t>(blockIdx.x) * kKvThreads + threadIdx.x; t < n_live; t += step) {
    args.places[t] = place_number(args, t);
  }
}

template <int tokens>
__global__ void __launch_bounds__(kKvThreads) kv_write_kernel(const __grid_constant__ KvWriteArgs args) {
  begin();
  __shared__ std::int64_t places[tokens];
  __shared__ int replaced[tokens];
  const int tid = static_cast<int>(threadIdx.x);
  const std::int64_t n_live = live_rows(args.live, args.k.dims[0]);
  const auto place_at = [&](std::int64_t t) { return tokens > 1 ? args.places[t] : place_number(args, t); };
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * tokens; first < n_live;
       first += static_cast<std::int64_t>(gridDim.x) * tokens) {
    __syncthreads();  // nobody still reads the places before these
    if (tid < tokens) {
      places[tid] = first + tid < n_live ? place_at(first + tid) : -1;
      replaced[tid] = 0;
    }
    __syncthreads();
    for (std::int64_t t = first + 1 + tid; t < n_live; t += kKvThreads) {
      const std::int64_t place = place_at(t);
      for (int i = 0; i < tokens; ++i) {
        if (places[i] == place && first + i < t) replaced[i] = 1;  // whoever says so says the same
      }
    }
    __syncthreads();
    for (int i = 0; i < tokens; ++i) {
      if (places[i] < 0 || replaced[i] != 0) continue;
      put_heads(args.k, args.k_pool, first + i, places[i]);
      put_heads(args.v, args.v_pool, first + i, places[i]);
    }
  }
}

}  // namespace

int launch_kv_write(const KvWriteArgs& args, const Stream& stream) {
  const std::int64_t n_tokens = args.k.dims[0];
  if (!kv_has_places(n_tokens)) return launch(kv_write_kernel<1>, kv_write_plan(n_tokens), stream, args);
  const cudaError_t error = launch(places_kernel, kv_places_plan(n_tokens), stream, args);
  if (error != cudaSuccess) return error;
  return launch(kv_write_kernel<kKvTokens>, kv_write_plan(n_tokens), stream, args);
}

}  // namespace conclave::cuda
