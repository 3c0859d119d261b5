#include "backends/cuda/launch.cuh"
#include "backends/cuda/lone_heads_cache.cuh"
#include "backends/cuda/lone_heads_merge.cuh"
#include "backends/cuda/tensor_map.h"

namespace conclave::cuda {
namespace {

static_assert(kLonePairs <= kLoneCopyWarps * kWarp);

// The first n units of a round. All threads come here.
template <int n>
__device__ __forceinline__ void attend(const LoneCache& cache, const LoneMerger& merger, LoneHeadsShared& shared,
                                       int round) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float factor = shared.factor[lane / 4];
  const uint4* keys[n];
  float y[n][2][4] = {};
  float scores[n][2];
#pragma unroll
  for (int u = 0; u < n; ++u) {
    keys[u] = cache.keys(2 * round + u);
    cache.await(2 * round + u);
  }
  add_lone_scores<n>(shared.q, keys, y);
#pragma unroll
  for (int u = 0; u < n; ++u) {
    finish_lone_scores(y[u], factor, shared.seen[2 * round + u], shared.max[u], scores[u]);
  }
  __syncthreads();
  float max[n];
#pragma unroll
  for (int u = 0; u < n; ++u) max[u] = leave_lone_weights(scores[u], shared.max[u], shared.weights[u]);
  __syncthreads();
#pragma unroll
  for (int u = 0; u < n; ++u) {
    float acc[kValueTiles<kLoneHeadWidth>][4] = {};
    float sums[4] = {};
    add_lone_values(shared.weights[u], cache.values(2 * round + u), acc, sums);
    merger.take(cache.unit_of(2 * round + u), acc, max[u], sums[0]);
  }
}

__global__ void __launch_bounds__(kTokenThreads, 2) lone_heads(const __grid_constant__ LoneHeadsArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared =
      *reinterpret_cast<LoneHeadsShared*>(memory + lone_held_units(args.max_units) * static_cast<int>(kLoneUnitBytes));
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const bool copies = warp >= kLoneHeadWarps;
  LoneCache cache{.args = args,
                  .shared = shared,
                  .units = reinterpret_cast<uint4*>(memory),
                  .rank = static_cast<int>(blockIdx.x % kLoneCluster),
                  .kv_head = static_cast<int>(blockIdx.x / kLoneCluster),
                  .n_held = lone_held_units(args.max_units)};
  if (LoneCache::copier() == 0) {
    barrier_init(&shared.arrived, 1);
    for (int i = 0; i < kLoneHeldUnits; ++i) barrier_init(shared.brought + i, 1);
    end_barrier_init();
    fetch_map(args.k_map);
    fetch_map(args.v_map);
  }
  __syncthreads();
  arrive_at_cluster();

  // Half a warp has a head: of queries, or key and value.
  const int nth = tid / kHalfWarp;
  const bool of_q = nth < args.group;
  const bool of_k = nth == kLoneGroup;
  const bool of_v = nth == kLoneGroup + 1;
  const LoneHeadRows& rows = of_q ? args.q : of_k ? args.k : args.v;
  std::byte* const row = rows.data + (of_q ? cache.kv_head * args.group + nth : cache.kv_head) * rows.step;
  LoneHead head;
  uint4 own_words{};
  // The token's own key and value, where they are in a unit. By the warp that has them.
  const auto put_own = [&](int i) {
    const int at = i < kLoneOwnUnits ? shared.own_rows[i] : -1;
    if (at < 0) return;
    cache.await(i);
    (of_k ? cache.keys(i) : cache.values(i))[lone_piece_of(at, LoneHead::piece())] = own_words;
    shared_for_wgmma();  // and for a copy to the same place, later
  };

  if (copies) {
    for (int i = LoneCache::copier(); i < 2 * kLoneGroup * kLoneHeadPieces; i += kLoneCopyWarps * kWarp) {
      const int its_row = i / kLoneHeadPieces % kLoneGroup;
      if (its_row >= args.group) (&shared.q[0][0])[i] = {0, 0, 0, 0};
    }
    cache.find([&](std::int32_t position) {
      const int pair = LoneCache::copier();
      if (pair >= kLonePairs) return;
      const double2 at = turn(static_cast<double>(position) * args.frequencies[pair]);
      shared.turns()[pair] = {static_cast<float>(args.magnitude * at.x), static_cast<float>(args.magnitude * at.y)};
    });
    if (warp == kLoneHeadWarps) {
      cache.leave();
      if (LoneCache::copier() == 0) expect_bytes(&shared.arrived, cache.context.n_units * (kLonePart * 4 + 8));
    }
    arrive_with_context();
    if (cache.context.live == 0) return;
    if (warp == kLoneHeadWarps) cache.bring(0, cache.n_held);
    __syncwarp();
    await_cluster();
  } else {
    const LoneHeadNorm& norm = of_q ? args.q_norm : args.k_norm;
    const bool norms = args.q_norm.weight != nullptr;
    Run weight;
    clear_run(weight);
    clear_run(head.x);
    if (norms && (of_q || of_k)) {
      load_run<true>(norm.type, norm.weight, LoneHead::piece() * kRunLength, 0, weight);
    }
    if (tid < kLoneGroup && tid >= args.group) shared.factor[tid] = 0;
    __syncwarp();
    await_cluster();  // the barriers of all blocks are there
    begin();
    if (of_q || of_k || of_v) load_run<true>(DType::f32, row, LoneHead::piece() * kRunLength, 0, head.x);
    LoneHead turned = head;
    if (norms) turned.norm(weight, args.eps);
    await_context();
    if (shared.context.live == 0) return;
    turned.rotate(shared.turns());
    if (!of_v) head = turned;
    if (warp < kLoneHeadWarps - 1) {
      head.write_query(args.scale, nth, of_q, shared);
    } else {
      own_words = head.as_cached();
    }
  }
  __syncwarp();
  arrive_at_cluster_relaxed();  // the heads have been read

  const LoneMerger merger(shared, args.max_units);
  int n_units = 0;
#pragma unroll 1
  for (int round = 0;; ++round) {
    if (copies) {
      cache.settle(2 * round);
      cache.settle(2 * round + 1);
    } else if (warp == kLoneHeadWarps - 1) {
      put_own(2 * round);
      put_own(2 * round + 1);
    }
    __syncthreads();  // queries and own rows are there; nobody still reads the units and the weights before these
    n_units = shared.context.n_units;
    const int left = n_units - cache.unit_of(2 * round);
    if (left <= 0) break;
    if (round > 0 && warp == kLoneHeadWarps) cache.bring(2 * round - 2 + cache.n_held, 2);
    if (left > kLoneCluster) {
      attend<2>(cache, merger, shared, round);
    } else {
      attend<1>(cache, merger, shared, round);
    }
  }

  await_cluster();  // nobody still reads the heads
  if ((of_q && nth == cache.rank) || (of_k && cache.rank == kLoneGroup)) {
    store_run<true>(DType::f32, row, LoneHead::piece() * kRunLength, 0, head.x);
  }
  if ((of_k || of_v) && cache.rank == 0 && shared.context.own_page >= 0) {
    const LoneHeadPool& pool = of_k ? args.k_pool : args.v_pool;
    std::byte* const to = pool.data + row_in(pool, shared.context.own_page, shared.context.own_slot, cache.kv_head);
    reinterpret_cast<uint4*>(to)[LoneHead::piece()] = own_words;
  }
  await_sent(&shared.arrived);
  const MergedElement total = merge_units(shared, args.max_units, n_units);
  const int own_row = cache.rank / 2;
  if (tid < kLonePart && own_row < args.group) {
    auto* const out = reinterpret_cast<float*>(args.out.data + (cache.kv_head * args.group + own_row) * args.out.step);
    out[cache.rank % 2 * kLonePart + tid] = total.max == -INFINITY ? 0.0F : total.acc / total.sum;
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
