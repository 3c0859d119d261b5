// `apart` of attention_mma_plan.h: the eight units of a range are apart, each with a block of a cluster, whose warps
// share it. The blocks leave what their unit comes to in shared memory, and each merges units, and then ranges, for
// some of the rows.
#include "backends/cuda/attention_few.cuh"
#include "backends/cuda/cluster.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

constexpr int kBlockRows = kTileRows / kRangeUnits;  // that a block merges: its rank in the cluster, and 8 on
constexpr int kRangesAtOnce = 64;                    // that are brought from scratch to be merged
static_assert(kApartCopies == 5 && kBlockRows == 2);

// What a unit has come to for each row.
template <int width>
struct UnitResult {
  float acc[kTileRows][width + 8];  // eight rows lie in different banks
  float2 sums[kTileRows];           // maximum, sum
};

template <int width>
struct ApartShared {
  uint4 q[2][kTileRows * width / 8];            // high and low parts
  uint4 ring[kApartCopies][kUnit * width / 8];  // keys and values in turns
  uint4 weights[kTileRows][kWeightPieces];
  UnitPlaces places[kFound];
  UnitResult<width> results[2];
  float4 max[kTileRows][kUnitWarps / 4];  // of what a row sees, by each warp
  float factor[kTileRows];
  int last[4];
};
static_assert(sizeof(ApartShared<64>) == apart_attention_shared(64));
static_assert(sizeof(ApartShared<128>) == apart_attention_shared(128));
static_assert(sizeof(ApartShared<256>) == apart_attention_shared(256));

// What positions have come to for one element of a row.
struct Merged {
  float max = -INFINITY;
  float sum = 0;
  float acc = 0;

  __device__ __forceinline__ void add(float next_max, float next_sum, float next_acc) {
    if (next_max == -INFINITY) return;
    const Factors by = merge_factors(max, next_max);
    sum = merged(by, sum, next_sum);
    acc = merged(by, acc, next_acc);
  }
};

// The elements that a thread merges.
template <int width>
struct OwnElements {
  static constexpr int kCount = (kBlockRows * width + kTokenThreads - 1) / kTokenThreads;
  int rank;
  int n_rows;
  int d_v;
  Merged total[kCount];

  __device__ __forceinline__ int nth_row(int e) const {
    return (static_cast<int>(threadIdx.x) + e * kTokenThreads) / width;
  }
  __device__ __forceinline__ int row(int e) const { return rank + nth_row(e) * kRangeUnits; }
  __device__ __forceinline__ int d(int e) const { return (static_cast<int>(threadIdx.x) + e * kTokenThreads) % width; }
  __device__ __forceinline__ bool is(int e) const { return nth_row(e) < kBlockRows && row(e) < n_rows && d(e) < d_v; }

  // The `n` units of a range, in ascending order, out of the blocks that have them.
  __device__ __forceinline__ Merged range_of(int e, const UnitResult<width>& result, int n) const {
    const auto offset = [&](const void* p) {
      return static_cast<unsigned>(static_cast<const char*>(p) - reinterpret_cast<const char*>(&result));
    };
    const unsigned acc_at = offset(&result.acc[row(e)][d(e)]);
    const unsigned sums_at = offset(&result.sums[row(e)]);
    float2 sums[kRangeUnits];
    float acc[kRangeUnits];
#pragma unroll
    for (int i = 0; i < kRangeUnits; ++i) {
      sums[i] = {-INFINITY, 0};
      acc[i] = 0;
      if (i >= n) continue;
      const unsigned there = address_in_block(&result, i);
      sums[i] = load_2_in_cluster(there + sums_at);
      acc[i] = load_in_cluster(there + acc_at);
    }
    Merged range;
#pragma unroll
    for (int i = 0; i < kRangeUnits; ++i) range.add(sums[i].x, sums[i].y, acc[i]);
    return range;
  }
  // All ranges of the block's rows, in ascending order, out of scratch. `room` has 2 * 64 rows of floats, `factors` 2 *
  // 64 of their kind. By the whole block.
  __device__ __forceinline__ void merge_ranges(const float* accs, const float* sums, const KeptRanges& kept,
                                               int n_ranges, uint4* room, float4* factors) {
    constexpr int kPieces = width / 4;
    const int tid = static_cast<int>(threadIdx.x);
    const int warp = tid / kWarp;
    const int lane = tid % kWarp;
    const int n_own = n_rows > rank + kRangeUnits ? 2 : 1;
    const std::int64_t row_step = kRangeUnits * kept.n_ranges;  // ranges
    float upto = -INFINITY;                                     // the largest so far, of the warp's row
#pragma unroll 1
    for (int first = 0; first < n_ranges; first += kRangesAtOnce) {
      const int n = min(kRangesAtOnce, n_ranges - first);
      const int nth = tid / kPieces % kBlockRows;
      const int piece = tid % kPieces;
      const bool wanted = nth < n_own && piece * 4 < d_v;
#pragma unroll 4
      for (int i = tid / kPieces / kBlockRows; i < n; i += kTokenThreads / kPieces / kBlockRows) {
        copy_16_or_zeros(room + (i * kBlockRows + nth) * kPieces + piece,
                         accs + (wanted ? (nth * row_step + first + i) * d_v + piece * 4 : 0), wanted);
      }
      end_copies();
      if (warp < n_own) {
        float2 own[kRangesAtOnce / kWarp];
#pragma unroll
        for (int j = 0; j < kRangesAtOnce / kWarp; ++j) {
          const int i = j * kWarp + lane;
          own[j] = {-INFINITY, 0};
          if (i < n) own[j] = __ldcg(reinterpret_cast<const float2*>(sums + (warp * row_step + first + i) * 2));
        }
#pragma unroll
        for (int j = 0; j < kRangesAtOnce / kWarp; ++j) {
          float now = lane == 0 ? fmaxf(upto, own[j].x) : own[j].x;
#pragma unroll
          for (int step = 1; step < kWarp; step *= 2) {
            const float left = __shfl_up_sync(kAllLanes, now, step);
            if (lane >= step) now = fmaxf(now, left);
          }
          const float left = __shfl_up_sync(kAllLanes, now, 1);
          const float before = lane == 0 ? upto : left;
          upto = __shfl_sync(kAllLanes, now, kWarp - 1);
          // A range in which nothing is seen: a maximum of -infinity says so.
          const bool sees = own[j].x != -INFINITY;
          factors[warp * kRangesAtOnce + j * kWarp + lane] = {power_of_two(before - now), power_of_two(own[j].x - now),
                                                              own[j].y, sees ? now : -INFINITY};
        }
      }
      await_copies<0>();
      __syncthreads();
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        if (!is(e)) continue;
        const float* next = reinterpret_cast<const float*>(room) + nth_row(e) * width + d(e);
        const float4* by = factors + nth_row(e) * kRangesAtOnce;
#pragma unroll 4
        for (int i = 0; i < n; ++i, next += kBlockRows * width) {
          const float4 f = by[i];
          if (f.w == -INFINITY) continue;
          total[e].max = f.w;
          total[e].sum = merged({f.x, f.y}, total[e].sum, f.z);
          total[e].acc = merged({f.x, f.y}, total[e].acc, *next);
        }
      }
      __syncthreads();  // the room is free
    }
  }
};

template <int width>
__global__ void __launch_bounds__(kTokenThreads, apart_blocks(width))
    apart_kernel(const __grid_constant__ AttentionArgs args, const __grid_constant__ AttentionCut cut,
                 const __grid_constant__ KeptRanges kept) {
  begin();
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<ApartShared<width>*>(memory);
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const int lane = tid % kWarp;
  const int rank = static_cast<int>(blockIdx.x % kRangeUnits);
  const int workers = static_cast<int>(cut.workers);
  const Rows rows = rows_of_token(args, cut, blockIdx.x / kRangeUnits);
  // Asked for together, before anything is waited for.
  const std::int32_t seq = int_at(args.seqs, rows.first_token);
  const std::int32_t position = int_at(args.positions, rows.first_token);
  const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);
  QueryRows<width, kTileRows / kUnitWarps> own_queries;
  own_queries.ask(args, [&](int i) {
    const int row = i * kUnitWarps + warp;
    return row < rows.n ? row_of(args.q, rows.first_token, rows.first_head + row) : nullptr;
  });
  if (rows.first_token >= n_live) return;

  // The same: the length, and where the first units lie, each thread one position.
  const bool is_seq = seq >= 0 && seq < args.lengths.dims[0];
  std::int32_t length = 0;
  if (is_seq) length = int_at(args.lengths, seq);
  // The block's ith unit; there are fewer than 2^25 and blocks.
  const auto unit_of = [&](int i) { return (rows.worker + i * workers) * kRangeUnits + rank; };
  const auto position_of = [&](int i, int nth) { return static_cast<std::int64_t>(unit_of(i)) * kUnit + nth; };
  const std::int64_t first = position_of(tid / kUnit, tid % kUnit);
  DevicePlace asked;
  if (first < args.context) asked = ask_place(args.kv, seq, first);
#pragma unroll
  for (int i = 0; i < kTileRows / kUnitWarps; ++i) {
    const int row = i * kUnitWarps + warp;
    const float factor = own_queries.write(args, i, row, shared.q[0], shared.q[1]);
    if (lane == 0) shared.factor[row] = factor;
  }
  const std::int64_t seen = min(min(std::int64_t{position} + 1, std::int64_t{length}), args.context);
  const std::int64_t end = is_seq && seen > 0 ? seen : 0;  // what the token sees
  const int n_units = static_cast<int>((end + kUnit - 1) / kUnit);
  const int n_ranges = (n_units + kRangeUnits - 1) / kRangeUnits;
  if (rows.worker > 0 && rows.worker >= n_ranges) return;  // all blocks of the cluster
  const bool keep = workers > 1 && n_ranges > 1;
  const auto checked = [&](const DevicePlace& at) {
    return at.page < args.kv.n_pages ? rows_at(args, rows.kv_head, at) : RowPlace{};
  };
  shared.places[tid / kUnit].set(tid % kUnit, first < end ? checked(asked) : RowPlace{});
  __syncthreads();

  const auto ask = [&](int copy) {
    const int i = copy / 2;
    const UnitPlaces& places = shared.places[i % kFound];
    uint4* to = shared.ring[copy % kApartCopies];
    if (unit_of(i) < n_units) {
      const bool of_keys = copy % 2 == 0;
      bring_unit<width>(of_keys ? args.k : args.v, of_keys ? places.k : places.v, to);
    }
    end_copies();
  };
#pragma unroll 1
  for (int copy = 0; copy + 1 < kApartCopies; ++copy) ask(copy);
  const FewQueries<width> queries(shared.q);
  const float factors[2] = {shared.factor[lane / 4], shared.factor[lane / 4 + 8]};

  const std::int64_t kept_rows = (rows.first_token * args.q.dims[1] + rows.first_head + rank) * kept.n_ranges;
  const int d_v = static_cast<int>(args.out.dims[2]);
  OwnElements<width> own{.rank = rank, .n_rows = rows.n, .d_v = d_v};
  // The cluster's ith range is in shared memory.
  const auto take = [&](int i) {
    const int range = rows.worker + i * workers;
#pragma unroll
    for (int e = 0; e < own.kCount; ++e) {
      if (!own.is(e)) continue;
      const Merged of = own.range_of(e, shared.results[i % 2], min(kRangeUnits, n_units - range * kRangeUnits));
      if (!keep) {
        own.total[e].add(of.max, of.sum, of.acc);
        continue;
      }
      const std::int64_t at = kept_rows + own.nth_row(e) * kRangeUnits * kept.n_ranges + range;
      kept.acc[at * d_v + own.d(e)] = of.acc;
      if (own.d(e) == 0) *reinterpret_cast<float2*>(kept.sums + at * 2) = {of.max, of.sum};
    }
  };
#pragma unroll 1
  for (int i = 0;; ++i) {
    float max[2];
    float sums[4] = {};
    float acc[kValueTiles<width>][4] = {};
    const bool is_unit = unit_of(i) < n_units;  // else in no later range either
    if (is_unit) {
      asked = {};
      if (tid < kUnit && position_of(i + kFound, tid) < end) {
        asked = ask_place(args.kv, seq, position_of(i + kFound, tid));
      }
      await_copies<kApartCopies - 2>();
      __syncthreads();  // the keys are there, and nobody still reads the values and the weights of the unit before
      ask(2 * i + kApartCopies - 1);
      const uint4* keys = shared.ring[2 * i % kApartCopies] + warp * width;
      float y[2][4] = {};
      float scores[4];
      queries.add_half(0, keys, y[0], y[1]);
      queries.add_half(1, keys, y[0], y[1]);
      finish_scores(y, factors, shared.places[i % kFound], shared.max, scores);
      __syncthreads();
      ask(2 * i + kApartCopies);
      leave_weights(scores, shared.max, shared.weights, max);
      await_copies<kApartCopies - 1>();
      __syncthreads();
      const uint4* values = shared.ring[(2 * i + 1) % kApartCopies];
      add_values<width>(0, shared.weights, values, acc, sums);
      add_values<width>(1, shared.weights, values, acc, sums);
      if (tid < kUnit) shared.places[i % kFound].set(tid, checked(asked));
    }
    // Two results in turns: when the one of range i - 1 is there, the one of i - 2 has been read by all.
    if (i > 0) {
      await_cluster();
      take(i - 1);
    }
    if (rows.worker + i * workers >= n_ranges) break;
    if (is_unit) {
      UnitResult<width>& result = shared.results[i % 2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = lane / 4 + 8 * r;
#pragma unroll
        for (int n = 0; n < kValueTiles<width>; ++n) {
          const int d = (warp * kValueTiles<width> + n) * 8 + lane % 4 * 2;
          *reinterpret_cast<float2*>(&result.acc[row][d]) = {acc[n][2 * r], acc[n][2 * r + 1]};
        }
        if (warp == 0 && lane % 4 == 0) result.sums[row] = {max[r], sums[2 * r]};
      }
    }
    arrive_at_cluster();
  }
  arrive_at_cluster();  // the block has read of others what it wants

  bool done = !keep;
  if (keep && rank < rows.n) {
    // The last of the blocks that have ranges of these rows merges them all; who that is decides nothing else.
    __threadfence();
    __syncthreads();
    std::int32_t* ticket = kept.tickets + rows.first_token * args.q.dims[1] + rows.first_head + rank;
    if (tid == 0) shared.last[0] = atomicAdd(ticket, 1) + 1 == min(workers, n_ranges) ? 1 : 0;
    __syncthreads();
    done = shared.last[0] != 0;
    if (done) {
      __threadfence();
      own.merge_ranges(kept.acc + kept_rows * d_v, kept.sums + kept_rows * 2, kept, n_ranges, shared.ring[0],
                       reinterpret_cast<float4*>(shared.weights));
      if (tid == 0) *ticket = 0;
    }
  }
#pragma unroll
  for (int e = 0; e < own.kCount; ++e) {
    if (!done || !own.is(e)) continue;
    const Merged& total = own.total[e];
    store_float(args.out.type, row_of(args.out, rows.first_token, rows.first_head + own.row(e)), own.d(e),
                total.max == -INFINITY ? 0.0F : total.acc / total.sum);
  }
  await_cluster();  // and others of this one
}

}  // namespace

int launch_attention_apart(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept,
                           const Stream& stream) {
  const auto kernel = plan.width == 64 ? apart_kernel<64> : plan.width == 128 ? apart_kernel<128> : apart_kernel<256>;
  return launch(kernel, plan.few_launch, stream, args, plan.few, kept);
}

}  // namespace conclave::cuda
