#include "backends/cuda/launch.cuh"
#include "backends/cuda/lone_heads_cache.cuh"
#include "backends/cuda/lone_heads_merge.cuh"
#include "backends/cuda/tensor_map.h"

namespace conclave::cuda {
namespace {

// The units of a block of a cluster: every kLoneCluster-th, and there is room for all of them.
struct ClusterDeal {
  static constexpr int kMost = kLoneMaxUnits / kLoneCluster;
  int rank;

  __device__ __forceinline__ void see(std::int32_t /*position*/) {}
  __device__ __forceinline__ int unit(int i) const { return rank + i * kLoneCluster; }
  __device__ static int place(int i) { return i; }
  __device__ static int phase(int /*i*/) { return 0; }
};

__global__ void __launch_bounds__(kTokenThreads, 2) lone_heads(const __grid_constant__ LoneHeadsArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char memory[];
  const int n_held = lone_held_units(args.max_units);
  auto& shared = *reinterpret_cast<LoneHeadsShared*>(memory + n_held * static_cast<int>(kLoneUnitBytes));
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const bool copies = warp >= kLoneHeadWarps;
  const int rank = static_cast<int>(blockIdx.x % kLoneCluster);
  LoneCache<ClusterDeal> cache{.args = args,
                               .shared = shared,
                               .units = reinterpret_cast<uint4*>(memory),
                               .kv_head = static_cast<int>(blockIdx.x / kLoneCluster),
                               .deal = {rank}};
  using Cache = LoneCache<ClusterDeal>;
  if (Cache::copier() == 0) {
    barrier_init(shared.arrived, 1);
    for (int i = 0; i < kLoneHeldUnits; ++i) barrier_init(shared.brought + i, 1);
    end_barrier_init();
    fetch_map(args.k_map);
    fetch_map(args.v_map);
  }
  __syncthreads();
  arrive_at_cluster();

  LoneOwnHead own(args, cache.kv_head);
  if (copies) {
    cache.clear_queries();
    cache.find();
    if (warp == kLoneHeadWarps) {
      cache.leave();
      if (Cache::copier() == 0) expect_bytes(shared.arrived, cache.context.n_units * (kLonePart * 4 + 8));
    }
    arrive_with_context();
    if (cache.context.live == 0) return;
    if (warp == kLoneHeadWarps) cache.bring(0, n_held);
    __syncwarp();
    await_cluster();
  } else {
    own.ask_weight(args, shared);
    await_cluster();  // the barriers of all blocks are there
    begin();
    if (!own.make(args, shared)) return;
  }
  __syncwarp();
  arrive_at_cluster_relaxed();  // the heads have been read

  LoneMerger merger(shared, args.max_units);
  int n_units = 0;
#pragma unroll 1
  for (int i = 0;; i += kLoneAtOnce) {
    if (copies) {
      cache.settle(i);
      cache.settle(i + 1);
    } else if (warp == kLoneHeadWarps - 1) {
      own.put(cache, i);
      own.put(cache, i + 1);
    }
    __syncthreads();  // queries and own rows are there; nobody still reads the weights before these
    n_units = shared.context.n_units;
    const int left = n_units - cache.deal.unit(i);
    if (left <= 0) break;
    if (left > kLoneCluster) {
      attend<kLoneAtOnce>(cache, merger, shared, i);
    } else {
      attend<1>(cache, merger, shared, i);
    }
  }

  await_cluster();  // nobody still reads the heads
  if ((own.of_q && own.nth == rank) || (own.of_k && rank == kLoneGroup)) {
    store_run<true>(DType::f32, own.row, LoneHead::piece() * kRunLength, 0, own.head.x);
  }
  if (rank == 0) own.write(args, shared.context, cache.kv_head);
  await_sent(shared.arrived);
  const MergedElement total = merge_units(shared, args.max_units, n_units);
  const int own_row = rank / 2;
  if (tid < kLonePart && own_row < args.group) {
    auto* const out = reinterpret_cast<float*>(args.out.data + (cache.kv_head * args.group + own_row) * args.out.step);
    out[rank % 2 * kLonePart + tid] = total.max == -INFINITY ? 0.0F : total.acc / total.sum;
  }
#endif
}

// Room for a block, and for clusters of more blocks than every GPU has.
cudaError_t allow_lone_heads() {
  const cudaError_t error = cudaFuncSetAttribute(lone_heads, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error != cudaSuccess) return error;
  return cudaFuncSetAttribute(lone_heads, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(lone_heads_shared(kLoneMaxUnits)));
}

}  // namespace

int make_lone_pool_map(const View& pool, LonePoolMap& map) {
  static_assert(sizeof(CUtensorMap) == sizeof(LonePoolMap) && alignof(CUtensorMap) <= alignof(LonePoolMap));
  const EncodeTensorMap encode = tensor_map_encoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  const auto bytes = [&](int i) { return static_cast<cuuint64_t>(pool.strides[i]); };
  const auto count = [&](int i) { return static_cast<cuuint64_t>(pool.dims[i]); };
  const cuuint64_t dims[4] = {count(3), count(2), count(1), count(0)};
  const cuuint64_t strides[3] = {bytes(2), bytes(1), bytes(0)};
  const cuuint32_t box[4] = {kLoneHeadWidth / 2, 1, kUnit, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUresult made = encode(reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, pool.data,
                               dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return made == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

int lone_heads_clusters(std::int64_t max_units) {
  return clusters_at_once(
      allow_lone_heads(), lone_heads,
      {.threads = kTokenThreads, .shared_bytes = lone_heads_shared(max_units), .cluster = kLoneCluster});
}

int launch_lone_heads(const LoneHeadsArgs& args, const Stream& stream) {
  if (const cudaError_t error = allow_lone_heads(); error != cudaSuccess) return error;
  const Stream after{.handle = stream.handle, .overlaps = stream.overlaps && args.early};
  return launch(lone_heads, lone_heads_plan(args), after, args);
}

}  // namespace conclave::cuda
