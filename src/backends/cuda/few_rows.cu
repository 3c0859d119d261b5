#include "backends/cuda/activation.cuh"
#include "backends/cuda/chunk_product.cuh"
#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/quantize.cuh"
#include "backends/cuda/row_table.cuh"
#include "backends/cuda/unit_output.cuh"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {
namespace {

// A list with rows, by its place among those; -1 where there are fewer. All threads of the block together.
__device__ __forceinline__ int active_list(const RowTable& table, int place) {
  if (table.begin == nullptr) return place == 0 ? 0 : -1;
  __shared__ int before[kFewThreads / kWarp];
  __shared__ int found;
  if (threadIdx.x == 0) found = -1;
  int seen = 0;
#pragma unroll 1
  for (int first = 0; first < table.n_lists && seen <= place; first += kFewThreads) {
    const int list = first + static_cast<int>(threadIdx.x);
    bool has = false;
    if (list < table.n_lists) {
      const RowRange range = range_of(table, list);
      has = range.end > range.begin && expert_of(table, list) >= 0;
    }
    const unsigned votes = __ballot_sync(0xFFFFFFFFU, has);
    __syncthreads();
    if (threadIdx.x % kWarp == 0) before[threadIdx.x / kWarp] = __popc(votes);
    __syncthreads();
    int rank = seen + __popc(votes & ((1U << threadIdx.x % kWarp) - 1));
#pragma unroll
    for (unsigned w = 0; w < kFewThreads / kWarp; ++w) {
      if (w < threadIdx.x / kWarp) rank += before[w];
      seen += before[w];
    }
    if (has && rank == place) found = list;
  }
  __syncthreads();
  return found;
}

template <DType type>
__global__ void __launch_bounds__(kFewThreads) few_rows(const __grid_constant__ UnitArgs args) {
  extern __shared__ int4 shared_words[];
  __shared__ TableSlot slots[kFewRows];
  __shared__ int plain[kFewRows];
  const bool gate_up = args.up != nullptr;
  const int columns = gate_up ? kFewColumns / 2 : kFewColumns;  // of the output
  const unsigned parts = static_cast<unsigned>(args.n + columns - 1) / static_cast<unsigned>(columns);
  const int first_column = static_cast<int>(blockIdx.x % parts) * columns;
  const int chunks = args.chunks;

  const int column_stride = few_column_stride(type, chunks);
  const int row_stride = few_row_stride(chunks);
  const int sum_stride = few_sum_stride(chunks);
  auto* weights = reinterpret_cast<std::byte*>(shared_words);
  std::byte* q = weights + kFewColumns * column_stride;
  std::byte* sums = q + kFewRows * row_stride;
  auto* scales = reinterpret_cast<float*>(sums + kFewRows * sum_stride);
  auto* terms = reinterpret_cast<float2*>(scales + kFewRows * kSegment);  // [superblock][row][column]

  const std::byte* my_column = nullptr;  // eight threads to a column
  const auto copy_segment = [&](int first, int count) {
    std::byte* to = weights + threadIdx.x / 8 * column_stride;
    const auto copy = [&](int place, const std::byte* from, int words) {
#pragma unroll 3
      for (int i = threadIdx.x % 8; i < words; i += 8) copy_16(to + place + 16 * i, from + 16 * i);
    };
    if constexpr (is_affine(type)) {
      copy(0, my_column + block_bytes(type) * first, block_bytes(type) / 16 * count);
    } else {
      const PlanesQ6K planes{chunks};
      const int s = segment_of(chunks);
      copy(0, my_column + planes.ql(first), 8 * count);
      copy(128 * s, my_column + planes.qh(first), 4 * count);
      copy(192 * s, my_column + planes.scales(first), count);
      copy(208 * s, my_column + planes.d(first), 1);
    }
    end_copies();
  };
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  // The rows of a pass: each warp makes the superblock that it will multiply.
  const auto stage_rows = [&](int n_rows, int c) {
#pragma unroll 1
    for (int r = 0; r < n_rows; ++r) {
      const std::int64_t from = slots[r].from < 0 ? 0 : slots[r].from;
      int2 values;
      float scale;
      if (args.q != nullptr) {
        const std::int64_t place = from * chunks + c;
        values = reinterpret_cast<const int2*>(args.q + place * kChunk)[lane];
        scale = args.scale[place];
      } else {
        float v[8];
        load_chunk(args.x_type, args.x + from * args.x_stride, c, std::int64_t{chunks} * kChunk, lane, v);
        const QuantizedLane made = quantize_lane(v);
        values = make_int2(made.low, made.high);
        scale = made.scale;
      }
      reinterpret_cast<int2*>(q + r * row_stride + warp * kChunk)[lane] = values;
      int sum = __dp4a(values.x, 0x01010101, __dp4a(values.y, 0x01010101, 0));
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
      if (lane % 2 == 0) reinterpret_cast<__half*>(sums + r * sum_stride + 32 * warp)[lane / 2] = __int2half_rn(sum);
      if (lane == 0) {
        scales[r * kSegment + warp] = scale;
        if (isnan(scale)) plain[r] = 1;
      }
    }
  };
  const auto chunk_at = [&](int i) {
    if constexpr (is_affine(type)) {
      return ChunkColumns<type>{weights + block_bytes(type) * i, column_stride};
    } else {
      const int s = segment_of(chunks);
      return ChunkColumns<type>{weights + 128 * i, weights + 128 * s + 64 * i, weights + 192 * s + 16 * i,
                                weights + 208 * s + 2 * i, column_stride};
    }
  };

  // Where there is one matrix, its weights are fetched before anything else is waited for. Where all of a column is one
  // segment, it stays.
  const bool one_matrix = args.table.begin == nullptr;
  if (one_matrix) {
    my_column = UnitColumns{args, 0, first_column}.address(static_cast<int>(threadIdx.x / 8));
    copy_segment(0, segment_of(chunks));
  }
  begin();
  const int my_row = threadIdx.x / kFewColumns;
  const int my_c = threadIdx.x % kFewColumns;
  const int places = static_cast<int>(gridDim.x / parts);
#pragma unroll 1
  for (int place = static_cast<int>(blockIdx.x / parts);; place += places) {
    const int list = active_list(args.table, place);
    if (list < 0) break;
    const RowRange range = range_of(args.table, list);
    const bool mine = range.end > range.begin && (args.most_rows == 0 || range.end - range.begin <= args.most_rows);
    const UnitColumns at{args, expert_of(args.table, list), first_column};
    if (mine && !one_matrix) {
      my_column = at.address(static_cast<int>(threadIdx.x / 8));
      copy_segment(0, segment_of(chunks));
    }
#pragma unroll 1
    for (int i = range.begin; mine && i < range.end; i += kFewRows) {
      const int n_rows = range.end - i < kFewRows ? range.end - i : kFewRows;
      float y = 0.0F;  // of row threadIdx / 32, column threadIdx % 32
      __syncthreads();
      if (threadIdx.x < kFewRows) {
        slots[threadIdx.x] = static_cast<int>(threadIdx.x) < n_rows
                                 ? slot_of(args.table, list, i + static_cast<int>(threadIdx.x))
                                 : TableSlot{-1, -1};
        plain[threadIdx.x] = 0;
      }
#pragma unroll 1
      for (int first = 0; first < chunks; first += kSegment) {
        const int count = chunks - first < kSegment ? chunks - first : kSegment;
        __syncthreads();  // the last segment's terms have been added
        if (chunks > kSegment && (first > 0 || i > range.begin)) copy_segment(first, count);
        if (warp < count) stage_rows(n_rows, first + warp);
        await_copies<0>();
        __syncthreads();
        if (warp < count) {
          const ChunkColumns<type> w = chunk_at(warp);
          const ChunkRows rows{q + warp * kChunk, row_stride, sums + 32 * warp, sum_stride};
          int sum[kTiles][1][4];
          chunk_sums<1>(w, 0, rows, 0, sum);
#pragma unroll
          for (int m = 0; m < kTiles; ++m) {
            float low[4];
            if constexpr (is_affine(type)) {
              unsigned mins[4];
              chunk_mins(w, 0, m, mins);
              min_sums(mins, rows, 0, low);
            }
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int c = 16 * m + lane / 4 + 8 * (e / 2);
              const int r = 2 * (lane % 4) + e % 2;
              const float scale = scales[r * kSegment + warp];
              float2 term{(scale * factor(w, c)) * static_cast<float>(sum[m][0][e]), 0.0F};
              if constexpr (is_affine(type)) term.y = (scale * min_factor(w, c)) * low[e];
              terms[(warp * kFewRows + r) * kTermStride + c] = term;
            }
          }
        }
        __syncthreads();
#pragma unroll 1
        for (int c = 0; c < count; ++c) {
          const float2 add = terms[(c * kFewRows + my_row) * kTermStride + my_c];
          y = y + add.x;
          if constexpr (is_affine(type)) y = y - add.y;
        }
      }

      const TableSlot slot = slots[my_row];
      if (plain[my_row] != 0 && slot.from >= 0) y = at.plain(my_c, slot.from);
      if (gate_up) {
        const float up = __shfl_down_sync(0xFFFFFFFFU, y, 16);
        if (my_c < 16 && slot.from >= 0) at.store(my_c, slot.to, gated(args.act, y, up));
      } else if (slot.from >= 0) {
        at.store(my_c, slot.to, y);
      }
    }
    // Lists that are known not to overlap are no more than there are blocks.
    if (args.table.list == nullptr) break;
    __syncthreads();
  }
  await_copies<0>();
}

}  // namespace

int launch_few_rows(const UnitArgs& args, std::int64_t max_active, const Stream& stream) {
  const LaunchPlan plan = few_rows_plan(args.type, max_active, args.n, args.chunks, args.up != nullptr);
  if (args.type == DType::q4_k) return launch(few_rows<DType::q4_k>, plan, stream, args);
  if (args.type == DType::q5_k) return launch(few_rows<DType::q5_k>, plan, stream, args);
  return launch(few_rows<DType::q6_k>, plan, stream, args);
}

}  // namespace conclave::cuda
