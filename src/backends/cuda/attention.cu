#include "backends/cuda/attention_tile.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

template <class S>
__device__ void stage_queries(const AttentionArgs& args, const Rows& rows, std::int64_t from, float* q) {
  const std::int64_t width = args.q.dims[2] - from;
#pragma unroll 4
  for (int n = static_cast<int>(threadIdx.x); n < S::kRows * kSlice; n += S::kThreads) {
    const int row = n / kSlice;
    const int c = n % kSlice;
    float value = 0;
    if (row < rows.n && c < width) {
      value = load_float(args.q.type, row_of(args.q, rows.token(row), rows.head(row)), from + c);
    }
    q[row * kRowFloats + c] = value;
  }
}

// out = acc / sum. Every thread of the block comes here.
template <class S>
__device__ __forceinline__ void store_rows(const AttentionArgs& args, const Rows& rows, const S& shape,
                                           const RowSums (&totals)[S::kSoftPasses],
                                           const float (&total)[S::kRowsEach][S::kFoursEach][4], Shared<S>& shared) {
  const std::int64_t d_v = args.out.dims[2];
  // The rows' sums take the factors' place; negative: the row has seen nothing.
#pragma unroll
  for (int pass = 0; pass < S::kSoftPasses; ++pass) {
    const int row = shape.soft_row(pass);
    if (row >= S::kRows || shape.lane % kColumnLanes != 0) continue;
    shared.factors[row] = {totals[pass].sum, totals[pass].max == -INFINITY ? -1.0F : 1.0F};
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < S::kRowsEach; ++r) {
    const int row = shape.row(r);
    if (row >= rows.n) continue;
    const float2 sum = shared.factors[row];
    std::byte* out = row_of(args.out, rows.token(row), rows.head(row));
#pragma unroll
    for (int f = 0; f < S::kFoursEach; ++f) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t d = rows.slice * std::int64_t{kSlice} + shape.d(f) + i;
        if (d < d_v) store_float(args.out.type, out, d, sum.y < 0 ? 0.0F : total[r][f][i] / sum.x);
      }
    }
  }
}

// All units of the rows that are this worker's. Every thread of the block comes here.
template <class S, bool vectors, bool split>
__device__ void attend(const AttentionArgs& args, const Rows& rows, int workers, Shared<S>& shared) {
  const S shape;
  const int tid = static_cast<int>(threadIdx.x);
  const std::int64_t d_k = args.q.dims[2];
  const std::int64_t d_v = args.out.dims[2];
  const std::int64_t n_heads = args.q.dims[1];
  __syncthreads();  // nobody still reads what the item before this one left
  if (tid < S::kRows) shared.ends[tid] = tid < rows.n ? visible_end(args, rows.token(tid)) : -1;
  __syncthreads();
  std::int64_t end = 0;  // none of the rows sees further
  for (int row = 0; row < rows.n; row += rows.n_heads) end = max(end, static_cast<std::int64_t>(shared.ends[row]));
  // Units are counted in 32 bits: there are no more than 2^25.
  const int first_unit = static_cast<int>(args.first_unit);
  int unit = first_unit + rows.worker;
  const int last = static_cast<int>(min((end + kUnit - 1) / kUnit, args.first_unit + args.n_kept));
  if (split && unit >= last) return;

  RowSums totals[S::kSoftPasses];
  float total[S::kRowsEach][S::kFoursEach][4] = {};
  if (tid < kUnit && unit < last) {
    const RowPlace at = locate(args, rows.seq, rows.kv_head, static_cast<std::int64_t>(unit) * kUnit + tid, end);
    shared.k_at[0][tid] = at.k;
    shared.v_at[0][tid] = at.v;
  }
  stage_queries<S>(args, rows, 0, shared.q);
  __syncthreads();
  Fetched<S::kThreads> fetched;
  if (vectors && unit < last) fetched.ask(args.k, shared.k_at[0], 0, d_k);

  for (int now = 0; unit < last; unit += workers, now ^= 1) {
    const long long begin_at = static_cast<long long>(unit) * kUnit;
    const bool more = unit + workers < last;
    RowPlace next;
    if (more && tid < kUnit)
      next = locate(args, rows.seq, rows.kv_head, begin_at + static_cast<long long>(workers) * kUnit + tid, end);
    // What the warp's rows see: the most, and the least of those that are rows.
    const long long own_end = shared.ends[shape.first_row + shape.lane % S::kWarpRows];
    const int own_seen = seen_of(own_end, begin_at);
    const int most = __reduce_max_sync(kAllLanes, own_seen);
    const int least = __reduce_min_sync(kAllLanes, own_end < 0 ? kUnit : own_seen);

    float scores[S::kRowsEach][S::kKeysEach] = {};
    if constexpr (vectors) {
      fetched.write(args.k.type, shared.kv);
      __syncthreads();
      fetched.ask(args.v, shared.v_at[now], rows.slice * std::int64_t{kSlice}, d_v);
      if (most > 0) add_scores<S>(shape, shared, static_cast<int>(d_k), scores);
    } else {
      for (std::int64_t d = 0; d < d_k; d += kSlice) {
        if (d > 0) __syncthreads();  // nobody still reads the slice before this one
        if (d_k > kSlice) stage_queries<S>(args, rows, d, shared.q);
        stage_cached<S::kThreads>(args.k, shared.k_at[now], d, d_k, shared.kv);
        __syncthreads();
        if (most > 0) add_scores<S>(shape, shared, static_cast<int>(min(d_k - d, std::int64_t{kSlice})), scores);
      }
    }
#pragma unroll
    for (int r = 0; r < S::kRowsEach; ++r) {
#pragma unroll
      for (int j = 0; j < S::kKeysEach; ++j) {
        shared.p[shape.row(r) * kScoreFloats + shape.key(j)] = scores[r][j] * args.scale;
      }
    }
    if (more && tid < kUnit) {
      shared.k_at[now ^ 1][tid] = next.k;
      shared.v_at[now ^ 1][tid] = next.v;
    }
    __syncthreads();

    if constexpr (vectors) {
      fetched.write(args.v.type, shared.kv);
    } else {
      stage_cached<S::kThreads>(args.v, shared.v_at[now], rows.slice * std::int64_t{kSlice}, d_v, shared.kv);
    }
#pragma unroll
    for (int pass = 0; pass < S::kSoftPasses; ++pass) {
      const int row = shape.soft_row(pass);
      if (row >= S::kRows) continue;  // whole warps
      RowSums sums;
      soften<S>(shape, shared, row, begin_at, shared.k_at[now], totals[pass], sums);
      if (split && rows.slice == 0 && shape.lane % kColumnLanes == 0 && shared.ends[row] > begin_at) {
        const std::int64_t at = (rows.token(row) * n_heads + rows.head(row)) * args.n_kept + (unit - first_unit);
        args.unit_sum[at * 2] = sums.max;
        args.unit_sum[at * 2 + 1] = sums.sum;
      }
    }
    __syncthreads();

    if (vectors && more && S::kAskEarly) fetched.ask(args.k, shared.k_at[now ^ 1], 0, d_k);
    if (most > 0) {
      float acc[S::kRowsEach][S::kFoursEach][4] = {};
      int seen[S::kRowsEach];
#pragma unroll
      for (int r = 0; r < S::kRowsEach; ++r) seen[r] = seen_of(shared.ends[shape.row(r)], begin_at);
      if (least == kUnit) {
        add_values<S, false>(shape, shared, kUnit, seen, acc);
      } else {
        add_values<S, true>(shape, shared, most, seen, acc);
      }
#pragma unroll
      for (int r = 0; r < S::kRowsEach; ++r) {
        const int row = shape.row(r);
        const float2 factors = shared.factors[row];
        if (seen[r] == 0 || factors.y < 0) continue;
        const std::int64_t at = (rows.token(row) * n_heads + rows.head(row)) * args.n_kept + (unit - first_unit);
#pragma unroll
        for (int f = 0; f < S::kFoursEach; ++f) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const std::int64_t d = rows.slice * std::int64_t{kSlice} + shape.d(f) + i;
            if (!split) {
              total[r][f][i] = fmaf(acc[r][f][i], factors.y, total[r][f][i] * factors.x);
            } else if (d < d_v) {
              args.unit_acc[at * d_v + d] = acc[r][f][i];
            }
          }
        }
      }
    }
    if (vectors && more && !S::kAskEarly) fetched.ask(args.k, shared.k_at[now ^ 1], 0, d_k);
    __syncthreads();
  }
  if constexpr (!split) store_rows<S>(args, rows, shape, totals, total, shared);
}

template <class S, bool vectors, bool split, int blocks_each>
__global__ void __launch_bounds__(S::kThreads, blocks_each)
    attention_kernel(const __grid_constant__ AttentionArgs args, const __grid_constant__ AttentionCut cut) {
  begin();
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<S>*>(memory);
  const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);
  for (std::int64_t item = blockIdx.x; item < items_of(cut, args.k.dims[2]); item += gridDim.x) {
    const Rows rows = rows_of(args, cut, item, n_live);
    if (rows.n == 0) continue;
    attend<S, vectors, split>(args, rows, static_cast<int>(cut.workers), shared);
  }
}

template <class S, int blocks_each>
cudaError_t launch_shape(const AttentionArgs& args, const AttentionCut& cut, const Stream& stream) {
  const auto kernel =
      args.vectors
          ? (args.split ? attention_kernel<S, true, true, blocks_each> : attention_kernel<S, true, false, blocks_each>)
          : (args.split ? attention_kernel<S, false, true, blocks_each>
                        : attention_kernel<S, false, false, blocks_each>);
  return launch(kernel, attention_launch(cut, args.k.dims[2], S::kRows == kAttentionManyRows), stream, args, cut);
}

}  // namespace

int launch_attention(const AttentionArgs& args, const AttentionPlan& plan, const Stream& stream) {
  cudaError_t error = cudaSuccess;
  if (plan.use_few) error = launch_shape<Few, 4>(args, plan.few, stream);
  if (error == cudaSuccess && plan.use_many) error = launch_shape<Many, 2>(args, plan.many, stream);
  return error;
}

}  // namespace conclave::cuda
