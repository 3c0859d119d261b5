// `few` of attention_mma_plan.h: a block has one token and up to 16 heads, and its warps share each unit. A warp has
// scores and weights of eight positions; then, for all 64, an eighth of d_v, whose totals stay in its registers.
#include "backends/cuda/attention_bank.cuh"
#include "backends/cuda/attention_few.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

static_assert(kUnitStages == 3);

template <int width>
struct FewShared {
  uint4 q[2][kTileRows * width / 8];  // high and low parts
  uint4 keys[kUnitStages][kUnit * width / 8];
  uint4 values[kUnitStages][kUnit * width / 8];
  uint4 weights[kTileRows][kWeightPieces];
  UnitPlaces places[kFound];
  float4 max[kTileRows][kUnitWarps / 4];  // of what a row sees, by each warp
  float factor[kTileRows];
  Rows rows;
  int last[2];
};
static_assert(sizeof(FewShared<64>) == few_attention_shared(64));
static_assert(sizeof(FewShared<128>) == few_attention_shared(128));
static_assert(sizeof(FewShared<256>) == few_attention_shared(256));

// What positions have come to for the lane's two rows, and for the warp's part of d_v. All rows see the same positions:
// both maxima are -infinity, or none.
template <int width>
struct Total {
  static constexpr int kTiles = kValueTiles<width>;
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
  float acc[kTiles][4] = {};

  __device__ __forceinline__ void add(const Total& next) {
    if (next.max[0] == -INFINITY) return;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Factors by = merge_factors(max[r], next.max[r]);
      sum[r] = merged(by, sum[r], next.sum[r]);
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        float& own = acc[i / 2][2 * r + i % 2];
        own = merged(by, own, next.acc[i / 2][2 * r + i % 2]);
      }
    }
  }
  // Calls todo(row, d, n) for the lane's rows: the numbers acc[n][0] and the next are d and the next of the row, and
  // max[0] and sum[0] are its own. Nothing is left of the total.
  template <class Do>
  __device__ __forceinline__ void spend(const Rows& rows, int d_v, const Do& todo) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int first = static_cast<int>(threadIdx.x) / kWarp * kTiles * 8;
#pragma unroll 1
    for (int row = lane / 4; row < rows.n; row += 8) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        if (first + 8 * n < d_v) todo(row, first + 8 * n + lane % 4 * 2, n);
        acc[n][0] = acc[n][2], acc[n][1] = acc[n][3];
      }
      max[0] = max[1], sum[0] = sum[1];
    }
  }
};

// A range to scratch.
template <int width>
__device__ __forceinline__ void keep_range(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows,
                                           int range, Total<width>& total) {
  const int d_v = static_cast<int>(args.out.dims[2]);
  const std::int64_t at = (rows.first_token * args.q.dims[1] + rows.first_head) * kept.n_ranges + range;
  total.spend(rows, d_v, [&](int row, int d, int n) {
    const std::int64_t place = at + row * kept.n_ranges;
    *reinterpret_cast<float2*>(kept.acc + place * d_v + d) = {total.acc[n][0], total.acc[n][1]};
    if (d == 0) *reinterpret_cast<float2*>(kept.sums + place * 2) = {total.max[0], total.sum[0]};
  });
}

template <int width>
__device__ __forceinline__ void store(const AttentionArgs& args, const Rows& rows, Total<width>& total) {
  std::byte* first = row_of(args.out, rows.first_token, rows.first_head);
  total.spend(rows, static_cast<int>(args.out.dims[2]), [&](int row, int d, int n) {
    const bool nothing = total.max[0] == -INFINITY;
    const float a = nothing ? 0.0F : total.acc[n][0] / total.sum[0];
    const float b = nothing ? 0.0F : total.acc[n][1] / total.sum[0];
    std::byte* out = first + row * args.out.strides[1];
    store_float(args.out.type, out, d, a);
    store_float(args.out.type, out, d + 1, b);
  });
}

// Every thread of the block comes here.
template <int width>
__device__ __forceinline__ void attend(const AttentionArgs& args, const AttentionCut& cut, const KeptRanges& kept,
                                       unsigned item, FewShared<width>& shared) {
  static_assert(kMergeAhead<width> * kTokenThreads * 16 <= sizeof(shared.keys) + sizeof(shared.values));
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const int lane = tid % kWarp;
  const int workers = static_cast<int>(cut.workers);
  const Rows rows = rows_of_token(args, cut, item);
  // Asked for together, before anything is waited for.
  const std::int32_t seq = __ldcg(&int_at(args.seqs, rows.first_token));
  const std::int32_t position = __ldcg(&int_at(args.positions, rows.first_token));
  const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);

  // The same: the length, and where the first units lie, each thread one position.
  const bool is_seq = seq >= 0 && seq < args.lengths.dims[0];
  std::int32_t length = 0;
  if (is_seq) length = __ldcg(&int_at(args.lengths, seq));
  const unsigned first = static_cast<unsigned>(rows.worker) * kRange + static_cast<unsigned>(tid);
  DevicePlace asked;
  if (first < args.context) asked = ask_place(args.kv, seq, first);
  const std::int64_t seen = min(min(std::int64_t{position} + 1, std::int64_t{length}), args.context);
  const unsigned end = is_seq && seen > 0 ? static_cast<unsigned>(seen) : 0;  // what the token sees
  const int n_units = static_cast<int>((end + kUnit - 1) / kUnit);
  const int n_ranges = (n_units + kRangeUnits - 1) / kRangeUnits;
  begin_if(args.early);
  if (rows.first_token >= n_live || (rows.worker > 0 && rows.worker >= n_ranges)) return;
  OwnQueries<width> own_queries;
  own_queries.ask(args, rows, warp);
  __syncthreads();  // nobody still reads what the item before this one left
  if (tid == 0) shared.rows = rows;
  const bool keep = workers > 1 && n_ranges > 1;
  // The block's ith unit; n_units or more: there is none.
  const auto unit_of = [&](int i) { return (rows.worker + i / kRangeUnits * workers) * kRangeUnits + i % kRangeUnits; };
  const auto checked = [&](int kv_head, const DevicePlace& at) {
    return at.page < args.kv.n_pages ? rows_at(args, kv_head, at) : RowPlace{};
  };
  shared.places[tid / kUnit].set(tid % kUnit, first < end ? checked(rows.kv_head, asked) : RowPlace{});
  __syncthreads();

  // Keys are wanted a unit earlier than values: those of unit i, and the values of the one before it.
  const auto ask = [&](int i, int key_stage, int value_stage) {
    if (unit_of(i) < n_units) bring_unit<width>(args.k, shared.places[i % kFound].k, shared.keys[key_stage]);
    if (i > 0 && unit_of(i - 1) < n_units) {
      bring_unit<width>(args.v, shared.places[(i - 1) % kFound].v, shared.values[value_stage]);
    }
    end_copies();
  };
#pragma unroll 1
  for (int i = 0; i < kUnitStages; ++i) ask(i, i, i - 1);
  own_queries.write(args, warp, lane, shared);
  await_copies<kUnitStages - 1>();
  __syncthreads();
  const FewQueries<width> queries(shared.q);
  const float factors[2] = {shared.factor[lane / 4], shared.factor[lane / 4 + 8]};

  float y[2][4] = {};  // scores before the factor, high and low parts
  queries.add_half(0, shared.keys[0] + warp * width, y[0], y[1]);
  queries.add_half(1, shared.keys[0] + warp * width, y[0], y[1]);
  Total<width> total;
  Total<width> range;
  int stage = 0;  // of this unit, of the next one, and of the one after it
  int next_stage = 1;
  int later_stage = 2;
  int unit = unit_of(0);
#pragma unroll 1
  for (int i = 0; unit < n_units; ++i) {
    float scores[4];
    finish_scores(y, factors, shared.places[i % kFound], shared.max, scores);
    __syncthreads();  // and nobody still reads the values and the weights of the unit before
    Total<width> next;
    leave_weights(scores, shared.max, shared.weights, next.max);
    await_copies<1>();  // these values, and the keys of the next unit
    __syncthreads();

    // Four units ahead: known to all after the next barrier, wanted after the one that follows it.
    asked = {};
    const int found_unit = unit_of(i + kFound);
    if (tid < kUnit && found_unit < n_units && static_cast<unsigned>(found_unit * kUnit + tid) < end) {
      asked = ask_place(args.kv, seq, static_cast<unsigned>(found_unit * kUnit + tid));
    }
    ask(i + kUnitStages, stage, later_stage);

    // With the scores of the next unit, so that neither waits for itself; where there is none, of anything.
    const uint4* keys = shared.keys[next_stage] + warp * width;
    const uint4* values = shared.values[stage];
    float sums[4] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) y[j / 4][j % 4] = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      queries.add_half(half, keys, y[0], y[1]);
      add_values<width>(half, shared.weights, values, next.acc, sums);
    }
    next.sum[0] = sums[0], next.sum[1] = sums[2];
    range.add(next);
    if (unit % kRangeUnits == kRangeUnits - 1 || unit + 1 == n_units) {
      if (keep) {
        keep_range<width>(args, kept, shared.rows, unit / kRangeUnits, range);
      } else {
        total.add(range);
      }
      range = {};
    }
    if (tid < kUnit) shared.places[i % kFound].set(tid, checked(shared.rows.kv_head, asked));
    const int free = stage;
    stage = next_stage, next_stage = later_stage, later_stage = free;
    unit = unit_of(i + 1);
  }
  if (keep) {
    merge_if_last<width, kTokenThreads>(args, kept, shared.rows, min(workers, n_ranges), n_ranges, shared.last[0],
                                        shared.keys[0]);
    if (shared.last[0] == 0) return;
  } else {
    store<width>(args, shared.rows, total);
  }
  if (args.bank.q != nullptr) leave_in_bank(args, shared.rows);
}

// Which of the block's next kUnitWarps items, from `item` on, `many` does not take: bit i for the ith. A warp looks at
// one of them. Every thread of the block comes here.
__device__ __forceinline__ unsigned items_left(const AttentionArgs& args, const AttentionCut& cut, unsigned item,
                                               unsigned n_items) {
  __shared__ int is_left[kUnitWarps];
  const unsigned warp = threadIdx.x / kWarp;
  item += warp * gridDim.x;
  bool left = false;
  if (item < n_items) {
    const auto token = static_cast<unsigned>(rows_of_token(args, cut, item).first_token);
    const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);
    const bool taken = of_one_sequence(args, token - token % static_cast<unsigned>(cut.run), cut.run, n_live);
    left = !taken && token < n_live;
  }
  __syncthreads();  // nobody still reads what was left before
  if (threadIdx.x % kWarp == 0) is_left[warp] = left ? 1 : 0;
  __syncthreads();
  unsigned bits = 0;
#pragma unroll
  for (int i = 0; i < kUnitWarps; ++i) bits |= static_cast<unsigned>(is_left[i]) << i;
  return bits;
}

template <int width>
__global__ void __launch_bounds__(kTokenThreads, width <= 128 ? 2 : 1)
    few_kernel(const __grid_constant__ AttentionArgs args, const __grid_constant__ AttentionCut cut,
               const __grid_constant__ KeptRanges kept) {
  begin_unless(args.early);
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<FewShared<width>*>(memory);
  const auto n_items = static_cast<unsigned>(items_of(cut, args.k.dims[2]));
  unsigned left = ~0U;
#pragma unroll 1
  for (unsigned item = blockIdx.x, nth = 0; item < n_items; item += gridDim.x, ++nth) {
    if (cut.run > 0 && nth % kUnitWarps == 0) left = items_left(args, cut, item, n_items);
    if ((left >> nth % kUnitWarps & 1U) != 0) attend<width>(args, cut, kept, item, shared);
  }
}

}  // namespace

int launch_attention_few(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept, const Stream& stream) {
  const auto kernel = plan.width == 64 ? few_kernel<64> : plan.width == 128 ? few_kernel<128> : few_kernel<256>;
  return launch(kernel, plan.few_launch, stream, args, plan.few, kept);
}

}  // namespace conclave::cuda
