// `many` of attention_mma_plan.h: a block has up to 128 rows of one sequence and one KV head, a warp 16 of them; the
// block goes through the units, with the next one on its way.
#include "backends/cuda/attention_mma.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

template <int width>
struct ManyShared {
  static constexpr int kWarps = many_warps(width);
  static constexpr int kUnitPieces = kUnit * width / 8;
  static constexpr int kWarpPieces = kTileRows * width / 4 + kWarp;  // two tiles of f16; or one of f32 with its sums

  uint4 keys[many_stages(width)][kUnitPieces];
  uint4 values[many_stages(width)][kUnitPieces];
  uint4 tiles[(keeps_queries(width) ? 1 : 2) * kWarps][kWarpPieces];  // queries of each warp; then, or besides, totals
  RowPlace places[4][kUnit];
  unsigned ends[many_tile_rows(width)];  // what they see
  Rows rows;
  int last;
};

// A range on top of what the ranges before it have come to. That lies in shared memory, where each thread of the warp
// has its own words, 32 apart: the accumulators, then the maximums and sums of the two rows.
template <int width>
__device__ __forceinline__ void merge_range(float4* own, bool first, const float (&range_max)[2],
                                            const float (&range_sum)[2], const float (&acc)[width / 8][4]) {
  const float4 state = first ? float4{-INFINITY, -INFINITY, 0, 0} : own[width / 8 * kWarp];
  float max[2] = {state.x, state.y};
  float sum[2] = {state.z, state.w};
  Factors by[2] = {{1, 0}, {1, 0}};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (range_max[r] == -INFINITY) continue;
    by[r] = merge_factors(max[r], range_max[r]);
    sum[r] = merged(by[r], sum[r], range_sum[r]);
  }
  own[width / 8 * kWarp] = {max[0], max[1], sum[0], sum[1]};
#pragma unroll
  for (int n = 0; n < width / 8; ++n) {
    float4 before = first ? float4{0, 0, 0, 0} : own[n * kWarp];
    if (range_max[0] != -INFINITY) {
      before.x = merged(by[0], before.x, acc[n][0]);
      before.y = merged(by[0], before.y, acc[n][1]);
    }
    if (range_max[1] != -INFINITY) {
      before.z = merged(by[1], before.z, acc[n][2]);
      before.w = merged(by[1], before.w, acc[n][3]);
    }
    own[n * kWarp] = before;
  }
}

// A range to scratch.
template <int width>
__device__ __forceinline__ void keep_range(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows,
                                           std::int64_t range, const float (&range_max)[2], const float (&range_sum)[2],
                                           const float (&acc)[width / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int d_v = static_cast<int>(args.out.dims[2]);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = static_cast<int>(threadIdx.x) / kWarp * kTileRows + lane / 4 + 8 * r;
    if (row >= rows.n) continue;
    const std::int64_t at = kept_at(args, kept, rows, row, range);
    float* to = kept.acc + at * d_v + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < width / 8; ++n) {
      if (8 * n < d_v) *reinterpret_cast<float2*>(to + 8 * n) = {acc[n][2 * r], acc[n][2 * r + 1]};
    }
    if (lane % 4 == 0) *reinterpret_cast<float2*>(kept.sums + at * 2) = {range_max[r], range_sum[r]};
  }
}

// Values of 16 positions, of which those from `limit` on are zeros, as the right operand.
__device__ __forceinline__ void cut_values(unsigned (&v)[4], int limit) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = first + i % 2 * 8;
    v[i] &= (at < limit ? 0xFFFFU : 0U) | (at + 1 < limit ? 0xFFFF0000U : 0U);
  }
}

// What the rows of the warp see of a unit.
struct Sight {
  unsigned long long bits[2];  // of the lane's two rows
  int seen[2];
  bool all;  // every row sees everything
};

// For each 16 positions: the most and the least that a row of the warp sees of them.
struct Spread {
  int most[kSteps];
  int least[kSteps];

  __device__ static int of(int seen, int step) { return min(max(seen - 16 * step, 0), 16); }
  __device__ __forceinline__ void look(const Sight& sight) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int sees[2] = {of(sight.seen[0], step), of(sight.seen[1], step)};
      most[step] = __reduce_max_sync(kAllLanes, max(sees[0], sees[1]));
      least[step] = __reduce_min_sync(kAllLanes, min(sees[0], sees[1]));
    }
  }
};

// p * v of 16 elements of d, where rows see different positions: for each of them the rest is zeros.
template <int width>
__device__ __forceinline__ void add_ragged(const Sight& sight, const Spread& spread, const unsigned (&p)[kSteps][4],
                                           const uint4* values, float (&acc)[2][4]) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (spread.most[step] == 0) continue;
    unsigned v[4];
    load_tiles_turned(v, values + step * 2 * width);
    if (spread.least[step] == 16) {
      add_mma_f16_k16(acc[0], p[step], v[0], v[1]);
      add_mma_f16_k16(acc[1], p[step], v[2], v[3]);
      continue;
    }
    const int sees[2] = {Spread::of(sight.seen[0], step), Spread::of(sight.seen[1], step)};
    float sums[2][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] = acc[i / 4][i % 4];
    for (int limit = spread.most[step]; limit > 0;) {
      unsigned cut[4] = {v[0], v[1], v[2], v[3]};
      cut_values(cut, limit);
      float c[2][4];
#pragma unroll
      for (int i = 0; i < 8; ++i) c[i / 4][i % 4] = acc[i / 4][i % 4];
      add_mma_f16_k16(c[0], p[step], cut[0], cut[1]);
      add_mma_f16_k16(c[1], p[step], cut[2], cut[3]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (sees[r] != limit) continue;
        sums[0][2 * r] = c[0][2 * r], sums[0][2 * r + 1] = c[0][2 * r + 1];
        sums[1][2 * r] = c[1][2 * r], sums[1][2 * r + 1] = c[1][2 * r + 1];
      }
      // The next smaller one.
      limit = __reduce_max_sync(kAllLanes, max(sees[0] < limit ? sees[0] : 0, sees[1] < limit ? sees[1] : 0));
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) acc[i / 4][i % 4] = sums[i / 4][i % 4];
  }
}

// One unit on top of what the range has come to.
template <bool ragged, int width>
__device__ __forceinline__ void add_unit(const Queries<width, keeps_queries(width)>& queries, const uint4* keys,
                                         const uint4* values, const float (&factors)[2], const Sight& sight,
                                         float (&range_max)[2], float (&range_sum)[2], float (&acc)[width / 8][4]) {
  float scores[2 * kSteps][4];
  constexpr int kAtOnce = keeps_queries(width) ? 2 : 1;
#pragma unroll
  for (int chunk = 0; chunk < kSteps; chunk += kAtOnce) {
    score<kAtOnce>(queries, keys + chunk * 2 * width, &scores[2 * chunk]);
  }
  unsigned p[kSteps][4];
  float max[2];
  soften<ragged>(scores, factors, sight.bits, max, p);
  float sum[2];
  sum_weights(p, sum);
  Factors by[2] = {{1, 0}, {1, 0}};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (ragged && max[r] == -INFINITY) continue;
    by[r] = merge_factors(range_max[r], max[r]);
    range_sum[r] = merged(by[r], range_sum[r], sum[r]);
  }
  [[maybe_unused]] Spread spread;
  if constexpr (ragged) spread.look(sight);
  const int lane_at = value_at<width>();
#pragma unroll
  for (int n = 0; n < width / 8; n += 2) {
    float next[2][4] = {};
    if constexpr (ragged) {
      add_ragged<width>(sight, spread, p, values + (lane_at ^ n), next);
    } else {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        unsigned v[4];
        load_tiles_turned(v, values + step * 2 * width + (lane_at ^ n));
        add_mma_f16_k16(next[0], p[step], v[0], v[1]);
        add_mma_f16_k16(next[1], p[step], v[2], v[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int r = i % 4 / 2;
      if (ragged && max[r] == -INFINITY) continue;
      float& total = acc[n + i / 4][i % 4];
      total = merged(by[r], total, next[i / 4][i % 4]);
    }
  }
}

// out = acc / sum, for the rows of a warp, from what its threads have in shared memory.
template <int width>
__device__ __forceinline__ void store(const AttentionArgs& args, const Rows& rows, const float4* totals) {
  const int first = static_cast<int>(threadIdx.x) / kWarp * kTileRows;
  const int d_v = static_cast<int>(args.out.dims[2]);
  for (int r = 0; r < kTileRows && first + r < rows.n; ++r) {
    std::byte* out = row_of(args.out, rows.token(first + r), rows.head(first + r));
    const int lane = r % 8 * 4;
    const float4 state = totals[width / 8 * kWarp + lane];
    const bool nothing = (r < 8 ? state.x : state.y) == -INFINITY;
    const float sum = r < 8 ? state.z : state.w;
    for (int d = static_cast<int>(threadIdx.x) % kWarp; d < d_v; d += kWarp) {
      const auto* word = reinterpret_cast<const float*>(totals + d / 8 * kWarp + lane + d % 8 / 2);
      store_float(args.out.type, out, d, nothing ? 0.0F : word[r / 8 * 2 + d % 2] / sum);
    }
  }
}

// Every thread of the block comes here.
template <int width>
__device__ void attend(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows, int workers,
                       ManyShared<width>& shared) {
  constexpr int kThreads = many_warps(width) * kWarp;
  static_assert(kMergeAhead<width> * kThreads * 16 <= sizeof(shared.keys) + sizeof(shared.values));
  constexpr int kStages = many_stages(width);
  constexpr int kRowPieces = width / 8;
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const int lane = tid % kWarp;
  __syncthreads();  // nobody still reads what the item before this one left
  // Positions are 32 bits without a sign: one may see 2^31 of them.
  if (tid < rows.n) shared.ends[tid] = static_cast<unsigned>(visible_end(args, rows.token(tid)));
  if (tid == 0) shared.rows = rows;
  __syncthreads();
  unsigned end = 0;  // none of the rows sees further
  for (int row = 0; row < rows.n; row += rows.n_heads) end = max(end, shared.ends[row]);
  const int n_units = static_cast<int>((end + kUnit - 1) / kUnit);
  const int n_ranges = (n_units + kRangeUnits - 1) / kRangeUnits;
  if (rows.worker > 0 && rows.worker >= n_ranges) return;
  const bool keep = workers > 1 && n_ranges > 1;
  // The block's ith unit; n_units or more: there is none.
  const auto unit_of = [&](int i) { return (rows.worker + i / kRangeUnits * workers) * kRangeUnits + i % kRangeUnits; };
  const auto find = [&](int i, int j) {
    return locate(args, rows.seq, rows.kv_head, static_cast<std::int64_t>(unit_of(i)) * kUnit + j, end);
  };
  if (tid < 2 * kUnit) shared.places[tid / kUnit][tid % kUnit] = find(tid / kUnit, tid % kUnit);

  uint4* own_queries = shared.tiles[warp];
  float factors[2] = {1, 1};
  unsigned ends[2] = {end, end};  // a row that is none sees what the others see
  constexpr int kAtOnce = keeps_queries(width) ? 8 : 4;
#pragma unroll 1
  for (int first = 0; first < kTileRows; first += kAtOnce) {
    QueryRows<width, kAtOnce> own;
    own.ask(args, [&](int i) {
      const int row = warp * kTileRows + first + i;
      return row < rows.n ? row_of(args.q, rows.token(row), rows.head(row)) : nullptr;
    });
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int r = first + i;
      const float factor = own.write(args, i, r, own_queries, own_queries + kTileRows * kRowPieces);
      if (lane / 4 == r % 8) (r < 8 ? factors[0] : factors[1]) = factor;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp * kTileRows + lane / 4 + 8 * r;
    if (row < rows.n) ends[r] = shared.ends[row];
  }
  __syncwarp();
  const Queries<width, keeps_queries(width)> queries(own_queries, own_queries + kTileRows * kRowPieces);
  auto* own_totals =
      reinterpret_cast<float4*>(shared.tiles[keeps_queries(width) ? warp : many_warps(width) + warp]) + lane;
  __syncthreads();

  const int k_pieces = static_cast<int>(args.k.dims[3]) / 8;
  const int v_pieces = static_cast<int>(args.v.dims[3]) / 8;
  const auto ask = [&](int i) {
    const RowPlace* places = shared.places[i % 4];
    uint4* keys = shared.keys[i % kStages];
    uint4* values = shared.values[i % kStages];
#pragma unroll 4
    for (int n = tid; n < kUnit * kRowPieces; n += kThreads) {
      const int row = n / kRowPieces;
      const int piece = n % kRowPieces;
      const RowPlace at = places[row];
      const bool k = at.k >= 0 && piece < k_pieces;
      const bool v = at.k >= 0 && piece < v_pieces;
      copy_16_or_zeros(&keys[tile_piece<width>(row, piece)], args.k.data + (k ? at.k + piece * 16 : 0), k);
      copy_16_or_zeros(&values[tile_piece<width>(row, piece)], args.v.data + (v ? at.v + piece * 16 : 0), v);
    }
    end_copies();
  };

  float range_max[2] = {-INFINITY, -INFINITY};
  float range_sum[2] = {0, 0};
  float acc[width / 8][4] = {};
  if (n_units > 0) {
    ask(0);
  } else {
    own_totals[width / 8 * kWarp] = {-INFINITY, -INFINITY, 0, 0};
  }
  int unit = unit_of(0);
  for (int i = 0; unit < n_units; ++i) {
    await_copies<0>();
    __syncthreads();
    const bool more = unit_of(i + 1) < n_units;
    const bool finds = tid < kUnit && unit_of(i + 2) < n_units;
    RowPlace found;
    if (finds) found = find(i + 2, tid);
    if (kStages > 1 && more) ask(i + 1);

    const RowPlace* places = shared.places[i % 4];
    const unsigned low = __ballot_sync(kAllLanes, places[lane].k >= 0);
    const unsigned high = __ballot_sync(kAllLanes, places[kWarp + lane].k >= 0);
    const unsigned long long there = static_cast<unsigned long long>(high) << 32U | low;
    Sight sight;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned from = static_cast<unsigned>(unit) * kUnit;
      sight.seen[r] = ends[r] > from ? static_cast<int>(min(ends[r] - from, unsigned{kUnit})) : 0;
      sight.bits[r] = seen_bits(there, sight.seen[r]);
    }
    sight.all = __all_sync(kAllLanes, sight.bits[0] == ~0ULL && sight.bits[1] == ~0ULL) != 0;
    const uint4* keys = shared.keys[i % kStages];
    const uint4* values = shared.values[i % kStages];
    if (sight.all) {
      add_unit<false, width>(queries, keys, values, factors, sight, range_max, range_sum, acc);
    } else if (__any_sync(kAllLanes, sight.bits[0] != 0 || sight.bits[1] != 0) != 0) {
      add_unit<true, width>(queries, keys, values, factors, sight, range_max, range_sum, acc);
    }
    if (unit % kRangeUnits == kRangeUnits - 1 || unit + 1 == n_units) {
      if (keep) {
        keep_range<width>(args, kept, shared.rows, unit / kRangeUnits, range_max, range_sum, acc);
      } else {
        merge_range<width>(own_totals, unit < kRangeUnits, range_max, range_sum, acc);
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) range_max[r] = -INFINITY, range_sum[r] = 0;
#pragma unroll
      for (int n = 0; n < width / 8; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
    }
    if (finds) shared.places[(i + 2) % 4][tid] = found;
    if (kStages == 1 && more) {
      __syncthreads();
      ask(i + 1);
    }
    unit = unit_of(i + 1);
  }
  if (keep) {
    merge_if_last<width, kThreads>(args, kept, shared.rows, min(workers, n_ranges), n_ranges, shared.last,
                                   shared.keys[0]);
  } else {
    __syncwarp();
    store<width>(args, shared.rows, own_totals - lane);
  }
}

template <int width>
__global__ void __launch_bounds__(many_warps(width) * kWarp, 1)
    many_kernel(const __grid_constant__ AttentionArgs args, const __grid_constant__ AttentionCut cut,
                const __grid_constant__ KeptRanges kept) {
  begin();
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<ManyShared<width>*>(memory);
  static_assert(sizeof(ManyShared<width>) == many_attention_shared(width));
  const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);
  for (std::int64_t item = blockIdx.x; item < items_of(cut, args.k.dims[2]); item += gridDim.x) {
    const Rows rows = rows_of(args, cut, item, n_live);
    if (rows.n > 0) attend<width>(args, kept, rows, static_cast<int>(cut.workers), shared);
  }
}

}  // namespace

int launch_attention_many(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept,
                          const Stream& stream) {
  const auto kernel = plan.width == 64 ? many_kernel<64> : plan.width == 128 ? many_kernel<128> : many_kernel<256>;
  return launch(kernel, plan.many_launch, stream, args, plan.many, kept);
}

}  // namespace conclave::cuda
