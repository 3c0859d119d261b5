// `few` of attention_mma_plan.h: a block has one token and up to 16 heads, a warp one unit at a time.
#include "backends/cuda/attention_mma.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

template <int width>
struct FewShared {
  static constexpr int kWarps = few_warps(width);
  static constexpr int kPieces = kTileRows * width / 8;

  uint4 q[2][kPieces];  // high and low parts
  uint4 chunks[kWarps][kFewSlots][kPieces];
  float range[kTileRows * total_floats(width)];  // what this range has come to
  float total[kTileRows * total_floats(width)];  // what the ranges before it have come to
  float range_max[kTileRows];
  float range_sum[kTileRows];
  float total_max[kTileRows];
  float total_sum[kTileRows];
  float factor[kTileRows];
  int last[4];
};
static_assert(sizeof(FewShared<64>) == few_attention_shared(64));
static_assert(sizeof(FewShared<128>) == few_attention_shared(128));
static_assert(sizeof(FewShared<256>) == few_attention_shared(256));

// The units of a warp, in order, as chunks that come into its slots in turn: four of keys, 16 positions each, then four
// of values. Units past the end bring nothing.
template <int width>
struct ChunkStream {
  static constexpr int kWarps = few_warps(width);
  static constexpr int kRounds = kRangeUnits / kWarps;  // in which a block goes through a range

  const AttentionArgs& args;
  const Rows& rows;
  uint4 (&slots)[kFewSlots][FewShared<width>::kPieces];
  int workers;
  int warp = static_cast<int>(threadIdx.x) / kWarp;
  int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::int64_t end = 0;  // what the token sees
  RowPlace own[2];       // positions `lane` and `lane` + 32 of the unit whose chunks are being asked for
  RowPlace next[2];      // of the one after it
  int asked = 0;         // units begun
  int to = 0;            // slot
  int from = 0;

  __device__ std::int64_t unit(int i) const {
    return (rows.worker + static_cast<std::int64_t>(i / kRounds) * workers) * kRangeUnits + i % kRounds * kWarps + warp;
  }
  __device__ void find(int i, RowPlace (&places)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      places[h] = locate(args, rows.seq, rows.kv_head, unit(i) * kUnit + h * kWarp + lane, args.context);
    }
  }
  // What does not lie before `end` is not there.
  __device__ void hold(int i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (unit(i) * kUnit + h * kWarp + lane >= end) own[h] = {};
    }
  }
  // Looks up where the first unit lies, which does not need to know how long the sequence is.
  __device__ void open() {
    find(0, own);
    find(1, next);
  }
  __device__ void start(std::int64_t visible) {
    end = visible;
    hold(0);
    ask<0>();
    ask<1>();
    ask<2>();
    ask<3>();
    ask<4>();
    static_assert(kFewSlots == 5);
  }
  __device__ unsigned long long there() const {
    const unsigned low = __ballot_sync(kAllLanes, own[0].k >= 0);
    return static_cast<unsigned long long>(__ballot_sync(kAllLanes, own[1].k >= 0)) << 32U | low;
  }
  __device__ const uint4* await() const {
    await_copies<kFewSlots - 1>();
    __syncwarp();
    return slots[from];
  }
  // The chunk that was awaited has been read; chunk `which` of the unit being asked for takes a place.
  template <int which>
  __device__ void advance() {
    __syncwarp();
    from = from + 1 == kFewSlots ? 0 : from + 1;
    if constexpr (which == 0) {
      ++asked;
      own[0] = next[0], own[1] = next[1];
      hold(asked);
      find(asked + 1, next);
    }
    ask<which>();
  }
  template <int which>
  __device__ void ask() {
    constexpr bool keys = which < kSteps;
    constexpr int first = which % kSteps * 16;
    constexpr int row_pieces = width / 8;
    if (unit(asked) * kUnit < end) {
      const View& pool = keys ? args.k : args.v;
      const long long place = keys ? own[first / kWarp].k : (own[first / kWarp].k < 0 ? -1 : own[first / kWarp].v);
      const int n_pieces = static_cast<int>(pool.dims[3]) / 8;
#pragma unroll 4
      for (int i = 0; i < FewShared<width>::kPieces / kWarp; ++i) {
        const int row = (i * kWarp + lane) / row_pieces;
        const int piece = (i * kWarp + lane) % row_pieces;
        const long long at = __shfl_sync(kAllLanes, place, first % kWarp + row);
        const bool is = at >= 0 && piece < n_pieces;
        copy_16_or_zeros(&slots[to][tile_piece<width>(row, piece)], pool.data + (is ? at + piece * 16 : 0), is);
      }
    }
    end_copies();
    to = to + 1 == kFewSlots ? 0 : to + 1;
  }
};

// A unit's result, merged into what its range has come to so far. By one warp at a time.
template <int width>
__device__ __forceinline__ void merge_unit(FewShared<width>& shared, int n_rows, bool first, const float (&max)[2],
                                           const float (&sum)[2], const float (&acc)[width / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
    const bool is = row < n_rows;
    float range_max = first || !is ? -INFINITY : shared.range_max[row];
    float range_sum = first || !is ? 0.0F : shared.range_sum[row];
    __syncwarp();
    if (!is || (!first && max[r] == -INFINITY)) continue;  // no barrier follows in this turn but the next one's, below
    Factors by{0, 0};
    if (max[r] > -INFINITY) by = merge_factors(range_max, max[r]);
    range_sum = merged(by, range_sum, sum[r]);
#pragma unroll
    for (int n = 0; n < width / 8; ++n) {
      auto* at = reinterpret_cast<float2*>(&shared.range[row * total_floats(width) + 8 * n + lane % 4 * 2]);
      const float2 before = first ? float2{0, 0} : *at;
      *at = {merged(by, before.x, acc[n][2 * r]), merged(by, before.y, acc[n][2 * r + 1])};
    }
    if (lane % 4 == 0) {
      shared.range_max[row] = range_max;
      shared.range_sum[row] = range_sum;
    }
  }
}

// The range, merged into what those before it have come to; the last one gives the outputs. Every thread comes here.
template <int width>
__device__ __forceinline__ void merge_range(const AttentionArgs& args, const Rows& rows, bool first, bool last,
                                            FewShared<width>& shared) {
  const int tid = static_cast<int>(threadIdx.x);
  const int d_v = static_cast<int>(args.out.dims[2]);
  for (int n = tid; n < rows.n * width; n += few_warps(width) * kWarp) {
    const int row = n / width;
    const int d = n % width;
    if (d >= d_v) continue;
    float max = first ? -INFINITY : shared.total_max[row];
    float sum = first ? 0.0F : shared.total_sum[row];
    float acc = first ? 0.0F : shared.total[row * total_floats(width) + d];
    if (shared.range_max[row] > -INFINITY) {
      const Factors by = merge_factors(max, shared.range_max[row]);
      sum = merged(by, sum, shared.range_sum[row]);
      acc = merged(by, acc, shared.range[row * total_floats(width) + d]);
    }
    if (last) {
      std::byte* out = row_of(args.out, rows.token(row), rows.head(row));
      store_float(args.out.type, out, d, max == -INFINITY ? 0.0F : acc / sum);
    } else {
      shared.total[row * total_floats(width) + d] = acc;
    }
  }
  if (last) return;
  __syncthreads();
  if (tid < rows.n) {
    float max = first ? -INFINITY : shared.total_max[tid];
    float sum = first ? 0.0F : shared.total_sum[tid];
    if (shared.range_max[tid] > -INFINITY) {
      const Factors by = merge_factors(max, shared.range_max[tid]);
      sum = merged(by, sum, shared.range_sum[tid]);
    }
    shared.total_max[tid] = max;
    shared.total_sum[tid] = sum;
  }
}

template <int width>
__device__ __forceinline__ void keep_range(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows,
                                           std::int64_t range, const FewShared<width>& shared) {
  const int tid = static_cast<int>(threadIdx.x);
  const int d_v = static_cast<int>(args.out.dims[2]);
  for (int n = tid; n < rows.n * width / 4; n += few_warps(width) * kWarp) {
    const int row = n / (width / 4);
    const int d = n % (width / 4) * 4;
    if (d >= d_v) continue;
    *reinterpret_cast<float4*>(kept.acc + kept_at(args, kept, rows, row, range) * d_v + d) =
        *reinterpret_cast<const float4*>(&shared.range[row * total_floats(width) + d]);
  }
  if (tid < rows.n) {
    *reinterpret_cast<float2*>(kept.sums + kept_at(args, kept, rows, tid, range) * 2) = {shared.range_max[tid],
                                                                                         shared.range_sum[tid]};
  }
}

// Every thread of the block comes here.
template <int width>
__device__ void attend(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows, int workers,
                       FewShared<width>& shared) {
  constexpr int kWarps = few_warps(width);
  constexpr int kRounds = ChunkStream<width>::kRounds;
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const int lane = tid % kWarp;
  // Asked for in this order, before anything is waited for: queries, pages, lengths.
  QueryRows<width, kTileRows / kWarps> own;
  own.ask(args, [&](int i) {
    const int row = i * kWarps + warp;
    return row < rows.n ? row_of(args.q, rows.first_token, rows.head(row)) : nullptr;
  });
  ChunkStream<width> stream{args, rows, shared.chunks[warp], workers};
  stream.open();
  const std::int64_t end = visible_end(args, rows.first_token);
  const std::int64_t n_units = (end + kUnit - 1) / kUnit;
  const std::int64_t n_ranges = (end + kRange - 1) / kRange;
  if (rows.worker > 0 && rows.worker >= n_ranges) return;
  const bool keep = workers > 1 && n_ranges > 1;

  __syncthreads();  // nobody still reads what the item before this one left
  stream.start(end);
#pragma unroll
  for (int i = 0; i < kTileRows / kWarps; ++i) {
    const int row = i * kWarps + warp;
    const float factor = own.write(args, i, row, shared.q[0], shared.q[1]);
    if (lane == 0) shared.factor[row] = factor;
  }
  if (n_ranges == 0 && tid < kTileRows) shared.range_max[tid] = -INFINITY;
  __syncthreads();
  const Queries<width, false> queries(shared.q[0], shared.q[1]);
  const float factors[2] = {shared.factor[lane / 4], shared.factor[lane / 4 + 8]};
  if (n_ranges == 0) merge_range<width>(args, rows, true, true, shared);

  for (std::int64_t range = rows.worker; range < n_ranges; range += workers) {
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
      const std::int64_t unit = range * kRangeUnits + round * kWarps + warp;
      if (unit - warp >= n_units) break;  // for all warps; nothing follows in the stream
      const bool is = unit < n_units;
      float max[2];
      float sum[2];
      float acc[width / 8][4];
      if (is) {
        const unsigned long long there = stream.there();
        float scores[2 * kSteps][4];
        score<1>(queries, stream.await(), &scores[0]);
        stream.template advance<5>();
        score<1>(queries, stream.await(), &scores[2]);
        stream.template advance<6>();
        score<1>(queries, stream.await(), &scores[4]);
        stream.template advance<7>();
        score<1>(queries, stream.await(), &scores[6]);
        stream.template advance<0>();
        unsigned p[kSteps][4];
        if (there == ~0ULL) {
          soften<false>(scores, factors, {there, there}, max, p);
        } else {
          soften<true>(scores, factors, {there, there}, max, p);
        }
        sum_weights(p, sum);
#pragma unroll
        for (int n = 0; n < width / 8; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0;
        const auto add_values = [&](const unsigned(&weights)[4], const uint4* values) {
          const int lane_at = value_at<width>();
#pragma unroll
          for (int n = 0; n < width / 8; n += 2) {
            unsigned v[4];
            load_tiles_turned(v, values + (lane_at ^ n));
            add_mma_f16_k16(acc[n], weights, v[0], v[1]);
            add_mma_f16_k16(acc[n + 1], weights, v[2], v[3]);
          }
        };
        add_values(p[0], stream.await());
        stream.template advance<1>();
        add_values(p[1], stream.await());
        stream.template advance<2>();
        add_values(p[2], stream.await());
        stream.template advance<3>();
        add_values(p[3], stream.await());
        stream.template advance<4>();
      }
      for (int turn = 0; turn < kWarps; ++turn) {
        if (is && turn == warp) merge_unit<width>(shared, rows.n, unit % kRangeUnits == 0, max, sum, acc);
        __syncthreads();
      }
    }
    if (keep) {
      keep_range<width>(args, kept, rows, range, shared);
    } else {
      merge_range<width>(args, rows, range == 0, range + 1 == n_ranges, shared);
    }
    __syncthreads();
  }
  await_copies<0>();
  if (!keep) return;
  const std::int64_t n_blocks = min(static_cast<std::int64_t>(workers), n_ranges);
  merge_if_last<width, kWarps * kWarp>(args, kept, rows, n_blocks, n_ranges, shared.last[0]);
}

template <int width>
__global__ void __launch_bounds__(few_warps(width) * kWarp, width <= 128 ? 2 : 1)
    few_kernel(const __grid_constant__ AttentionArgs args, const __grid_constant__ AttentionCut cut,
               const __grid_constant__ KeptRanges kept) {
  begin();
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<FewShared<width>*>(memory);
  const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);
  for (std::int64_t item = blockIdx.x; item < items_of(cut, args.k.dims[2]); item += gridDim.x) {
    const Rows rows = rows_of(args, cut, item, n_live);
    if (rows.n > 0) attend<width>(args, kept, rows, static_cast<int>(cut.workers), shared);
  }
}

}  // namespace

int launch_attention_few(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept, const Stream& stream) {
  const auto kernel = plan.width == 64 ? few_kernel<64> : plan.width == 128 ? few_kernel<128> : few_kernel<256>;
  return launch(kernel, plan.few_launch, stream, args, plan.few, kept);
}

}  // namespace conclave::cuda
