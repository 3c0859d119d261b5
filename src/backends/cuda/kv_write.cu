#include "backends/cuda/kv_place.cuh"
#include "backends/cuda/kv_write_plan.h"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

constexpr int kBlockValues = 32;  // of q8_0: a scale in f16, then the levels
constexpr int kBlockBytes = 34;

// Tokens with one number have one place; -1: none.
__device__ std::int64_t place_number(const KvWriteArgs& args, std::int64_t t) {
  const DevicePlace at = place_of(args.kv, int_at(args.seqs, t), int_at(args.positions, t));
  return at.page < 0 ? -1 : static_cast<std::int64_t>(at.page) << 32 | at.slot;
}

// As src/quant/half.h: a NaN keeps its sign and the upper bits of its payload, and becomes quiet.
__device__ float widened(DType type, const std::byte* row, std::int64_t i) {
  if (type == DType::f16) {
    const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(row)[i];
    if ((bits & 0x7FFFU) > 0x7C00U) {
      return __uint_as_float((bits & 0x8000U) << 16 | 0x7FC00000U | (bits & 0x3FFU) << 13);
    }
  }
  return load_float(type, row, i);
}
__device__ void narrow(DType type, std::byte* row, std::int64_t i, float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if (type == DType::f32 || (bits & 0x7FFFFFFFU) <= 0x7F800000U) {
    store_float(type, row, i, value);
    return;
  }
  const std::uint32_t nan =
      type == DType::f16 ? (bits >> 16 & 0x8000U) | 0x7E00U | (bits >> 13 & 0x1FFU) : bits >> 16 | 0x40U;
  reinterpret_cast<std::uint16_t*>(row)[i] = static_cast<std::uint16_t>(nan);
}

// A warp encodes a block as ops/kv_block.h does, step for step. `to` is aligned to 2 bytes.
__device__ void put_block(float x, int lane, std::byte* to) {
  const bool finite = __all_sync(0xFFFFFFFFU, isfinite(x));
  float largest = finite ? fabsf(x) : 0.0F;
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, step));
  const float d = largest / 127.0F;
  const float inverse = d > 0 && isfinite(1.0F / d) ? 1.0F / d : 0.0F;
  float level = 0;
  if (finite) level = fminf(fmaxf((x * inverse + 0x1.8p23F) - 0x1.8p23F, -127.0F), 127.0F);
  to[2 + lane] = static_cast<std::byte>(static_cast<std::int8_t>(level));
  if (lane == 0) {
    *reinterpret_cast<std::uint16_t*>(to) =
        finite ? __half_as_ushort(__float2half_rn(d)) : static_cast<std::uint16_t>(0x7E00);
  }
}

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
    if (pool.type == DType::q8_0) {
      put_block(x, static_cast<int>(threadIdx.x % kWarp), to + at / kBlockValues * kBlockBytes);
    } else {
      narrow(pool.type, to, at, x);
    }
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
