// `apart` of attention_mma_plan.h: the eight units of a range are apart, each with a block of a cluster, whose warps
// share it. The blocks leave what their unit comes to in shared memory, and each merges units, and then ranges, for
// some of the rows.
#include "backends/cuda/attention_apart.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

template <int width>
__device__ __forceinline__ void attend_apart(const AttentionArgs& args, const AttentionCut& cut,
                                             const KeptRanges& kept) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<ApartShared<width>*>(memory);
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const int lane = tid % kWarp;
  const int rank = static_cast<int>(blockIdx.x % kRangeUnits);
  const int workers = static_cast<int>(cut.workers);
  const Rows rows = rows_of_token(args, cut, blockIdx.x / kRangeUnits);
  begin_unless(args.early);
  // Asked for together, before anything is waited for.
  const std::int32_t seq = __ldcg(&int_at(args.seqs, rows.first_token));
  const std::int32_t position = __ldcg(&int_at(args.positions, rows.first_token));
  const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);

  // The same: the length, and where the first units lie, each thread one position.
  const bool is_seq = seq >= 0 && seq < args.lengths.dims[0];
  std::int32_t length = 0;
  if (is_seq) length = __ldcg(&int_at(args.lengths, seq));
  // The block's ith unit; there are fewer than 2^25 and blocks.
  const auto unit_of = [&](int i) { return (rows.worker + i * workers) * kRangeUnits + rank; };
  const auto position_of = [&](int i, int nth) { return static_cast<std::int64_t>(unit_of(i)) * kUnit + nth; };
  const std::int64_t first = position_of(tid / kUnit, tid % kUnit);
  DevicePlace asked;
  if (first < args.context) asked = ask_place(args.kv, seq, first);
  const auto end = seen_positions<std::int64_t>(args, is_seq, position, length);
  const int n_units = static_cast<int>((end + kUnit - 1) / kUnit);
  const int n_ranges = (n_units + kRangeUnits - 1) / kRangeUnits;
  begin_if(args.early);
  if (rows.first_token >= n_live || (rows.worker > 0 && rows.worker >= n_ranges)) return;  // all blocks of the cluster
  OwnQueries<width> own_queries;
  own_queries.ask(args, rows, warp);
  const bool keep = workers > 1 && n_ranges > 1;
  const auto checked = [&](const DevicePlace& at, int kv_head) {
    return at.page < args.kv.n_pages ? rows_at(args, kv_head, at) : RowPlace{};
  };
  shared.places[tid / kUnit].set(tid % kUnit, first < end ? checked(asked, rows.kv_head) : RowPlace{});
  if (tid == 0) shared.rows = rows;
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
  if (unit_of(0) < n_units) own_queries.write(args, warp, lane, shared);
  __syncthreads();
  const FewQueries<width> queries(shared.q);
  const float factors[2] = {shared.factor[lane / 4], shared.factor[lane / 4 + 8]};

  // The first of the rows that the block merges.
  const auto own_row = [&] {
    return shared.rows.first_token * args.q.dims[1] + shared.rows.first_head + rank * kBlockRows;
  };
  const int d_v = static_cast<int>(args.out.dims[2]);
  OwnElements<width> own{.rank = rank, .n_rows = rows.n, .d_v = d_v};
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
      if (tid < kUnit) shared.places[i % kFound].set(tid, checked(asked, shared.rows.kv_head));
    }
    // Two results in turns: when the one of range i - 1 is there, the one of i - 2 has been read by all.
    const int range = rows.worker + (i - 1) * workers;
    Merged before[own.kCount];
    if (i > 0) {
      await_cluster();
#pragma unroll
      for (int e = 0; e < own.kCount; ++e) {
        const int n = min(kRangeUnits, n_units - range * kRangeUnits);
        if (own.is(e)) before[e] = own.range_of(e, shared.results[(i - 1) % 2], n);
      }
    }
    if (is_unit) shared.results[i % 2].put(max, sums, acc);
    __syncwarp();
    arrive_at_cluster();  // no store to memory is under way that it would wait for
#pragma unroll
    for (int e = 0; e < own.kCount && i > 0; ++e) {
      if (!own.is(e)) continue;
      if (!keep) {
        own.total[e].add(before[e].max, before[e].sum, before[e].acc);
        continue;
      }
      const std::int64_t at = (own_row() + own.nth_row(e)) * kept.n_ranges + range;
      kept.acc[at * d_v + own.d(e)] = before[e].acc;
      if (own.d(e) == 0) *reinterpret_cast<float2*>(kept.sums + at * 2) = {before[e].max, before[e].sum};
    }
    if (range + workers >= n_ranges) break;  // the block has read of others what it wants
  }

  bool done = !keep;
  if (keep && rank * kBlockRows < own.n_rows) {
    // The last of the blocks that have ranges of these rows merges them all; who that is decides nothing else.
    __syncthreads();
    std::int32_t* ticket = kept.tickets + own_row();
    if (tid == 0) shared.last = count_in_order(ticket) + 1 == min(workers, n_ranges) ? 1 : 0;
    __syncthreads();
    done = shared.last != 0;
    if (done) {
      const std::int64_t at = own_row() * kept.n_ranges;
      own.merge_ranges(kept.acc + at * d_v, kept.sums + at * 2, kept, n_ranges, shared.ring[0],
                       reinterpret_cast<float4*>(shared.weights));
      if (tid == 0) *ticket = 0;
    }
  }
#pragma unroll
  for (int e = 0; e < own.kCount; ++e) {
    const Merged& total = own.total[e];
    const float value = total.max == -INFINITY ? 0.0F : total.acc / total.sum;
    if (done && own.is(e)) {
      store_float(args.out.type, row_of(args.out, shared.rows.first_token, shared.rows.first_head + own.row(e)),
                  own.d(e), value);
    }
    if constexpr (width * kBlockRows == kChunkLength) {
      // All rows of the block, or none.
      if (done && args.bank.q != nullptr && rank * kBlockRows < own.n_rows) {
        put_chunk_in_bank(args.bank, own_row() * width, value);
      }
    }
  }
  __syncwarp();
  await_cluster();  // and others of this one
}

template <int width>
__global__ void __launch_bounds__(kTokenThreads, apart_blocks(width))
    apart_kernel(const __grid_constant__ AttentionArgs args, const __grid_constant__ AttentionCut cut,
                 const __grid_constant__ KeptRanges kept) {
  attend_apart<width>(args, cut, kept);
}

template <int width>
int apart_clusters() {
  const LaunchPlan plan{
      .threads = kTokenThreads, .shared_bytes = apart_attention_shared(width), .cluster = kRangeUnits};
  const auto kernel = apart_kernel<width>;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared_bytes));
  return clusters_at_once(error, kernel, plan);
}

}  // namespace

int attention_clusters(int width) {
  return width == 64 ? apart_clusters<64>() : width == 128 ? apart_clusters<128>() : apart_clusters<256>();
}

int launch_attention_apart(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept,
                           const Stream& stream) {
  const auto kernel = plan.width == 64 ? apart_kernel<64> : plan.width == 128 ? apart_kernel<128> : apart_kernel<256>;
  return launch(kernel, plan.few_launch, stream, args, plan.few, kept);
}

}  // namespace conclave::cuda
