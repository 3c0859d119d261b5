#include "backends/cuda/half_rows_plan.h"

#include <algorithm>

#include "backends/cuda/activation.cuh"
#include "backends/cuda/active_lists.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/plain_dot.cuh"

namespace conclave::cuda {
namespace {

constexpr int kChains = 8;  // of a lane and an output

// A lane's weights of 32 values of k, one for each of its chains.
template <DType type>
__device__ __forceinline__ void unpack_halves(const uint4& piece, float (&w)[kChains]) {
  const unsigned words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (type == DType::f16) {
      const float2 two = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      w[2 * i] = two.x;
      w[2 * i + 1] = two.y;
    } else {
      w[2 * i] = __uint_as_float(words[i] << 16);
      w[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000U);
    }
  }
}

// The sum of an output's chains, eight in each of four lanes: in halves, as fold_lanes (plain_dot.cuh) does it. All
// four have it.
__device__ __forceinline__ float fold_chains(float (&chains)[kChains]) {
  fold_between<8>(chains, 2);  // chains 16 apart; a lane goes on with four of them
  fold_between<4>(chains, 1);  // 8 apart, two
  fold_between<2>(chains, 2);  // 4 apart, one
  const float half = chains[0] + __shfl_xor_sync(kAllLanes, chains[0], 1);
  return half + __shfl_xor_sync(kAllLanes, half, 2);
}

// A lane's columns and the ring that they come through.
template <int kSets>
struct HalfColumns {
  static constexpr int kStages = half_stages(kSets);
  static constexpr int kPiece = kWarp * 16;  // 32 values of k of eight columns
  static constexpr int kStage = 2 * kSets * kPiece;
  const std::byte* from[kSets];  // of the next step
  const std::byte* ring;         // the lane's place in it
  int left;                      // steps that are not asked for yet
  int stage;                     // the next step's

  __device__ __forceinline__ void copy_step() {
    if (left > 0) {
#pragma unroll
      for (int s = 0; s < kSets; ++s) {
        const unsigned to = shared_address(ring) + stage * kStage + 2 * s * kPiece;
        copy_16_of_many(to, from[s]);
        copy_16_of_many(to + kPiece, from[s] + kHalfStep);  // bytes: half a step
        from[s] += 2 * kHalfStep;
      }
    }
    --left;
    stage = stage + 1 == kStages ? 0 : stage + 1;
    end_copies();
  }

  // Columns from `first` on, and their first steps on their way. Past the last column it is the last again: computed
  // and not used.
  __device__ __forceinline__ void start(const UnitArgs& args, int expert, int first) {
    const bool gate_up = args.up != nullptr;
#pragma unroll
    for (int s = 0; s < kSets; ++s) {
      const bool is_up = gate_up && s == 1;
      const int at = min(first + (gate_up ? 0 : s * kHalfColumns), args.n - 1);
      from[s] = (is_up ? args.up : args.w) + expert * (is_up ? args.up_expert : args.w_expert) +
                at * (is_up ? args.up_column : args.w_column) + 16 * (threadIdx.x % 4);
    }
    left = args.k / kHalfStep;
    stage = 0;
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) copy_step();
  }
};

// kRows rows, `x` from the lane's first chain on, times the lane's columns, which have been started.
template <DType type, int kRows, int kSets>
__device__ __forceinline__ void multiply_rows(HalfColumns<kSets>& columns, const float* x, int k,
                                              float (&y)[kRows][kSets]) {
  using Columns = HalfColumns<kSets>;
  float chains[kRows][kSets][kChains] = {};
  int stage = 0;
#pragma unroll 1
  for (int at = 0; at < k; at += kHalfStep) {
    await_copies<Columns::kStages - 2>();  // the lane's own
    columns.copy_step();
    const std::byte* pieces = columns.ring + stage * Columns::kStage;
    stage = stage + 1 == Columns::kStages ? 0 : stage + 1;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      float w[kSets][kChains];
#pragma unroll
      for (int s = 0; s < kSets; ++s) {
        unpack_halves<type>(*reinterpret_cast<const uint4*>(pieces + (2 * s + block) * Columns::kPiece), w[s]);
      }
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const auto* values = reinterpret_cast<const float4*>(x + r * k + at + kHalfStep / 2 * block);
        const float4 low = values[0];
        const float4 high = values[1];
        const float xs[kChains] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int s = 0; s < kSets; ++s) {
#pragma unroll
          for (int i = 0; i < kChains; ++i) chains[r][s][i] = fmaf(xs[i], w[s][i], chains[r][s][i]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int s = 0; s < kSets; ++s) y[r][s] = fold_chains(chains[r][s]);
  }
}

// `to`: the row of the output that each row is for; negative: none. `first`: the lane's first column.
template <DType type, int kRows, int kSets>
__device__ __forceinline__ void multiply_batch(const UnitArgs& args, HalfColumns<kSets>& columns, const float* x,
                                               const int* to, int first) {
  const int quarter = threadIdx.x % 4;
  const int all = columns_of(args.table, args.n);
  float y[kRows][kSets];
  multiply_rows<type, kRows, kSets>(columns, x + kChains * quarter, args.k, y);
  // A lane stores one row's.
  float mine[kSets];
#pragma unroll
  for (int s = 0; s < kSets; ++s) {
    mine[s] = y[0][s];
#pragma unroll
    for (int r = 1; r < kRows; ++r) mine[s] = quarter == r ? y[r][s] : mine[s];
  }
  if (quarter >= kRows || to[quarter] < 0) return;
  std::byte* out = args.out + to[quarter] * args.out_stride;
  if (args.up != nullptr) {
    if (first < all) store_float(args.out_type, out, first, gated(args.act, mine[0], mine[kSets - 1]));
    return;
  }
#pragma unroll
  for (int s = 0; s < kSets; ++s) {
    const int at = first + s * kHalfColumns;
    if (at >= all) continue;
    if (args.bias != nullptr) mine[s] += load_float(args.bias_type, args.bias, at);
    store_float(args.out_type, out, at, mine[s]);
  }
}

// The rows that slots name, on their way to shared memory.
__device__ __forceinline__ void copy_rows(const UnitArgs& args, const TableSlot* slots, int rows, float* to) {
#pragma unroll 1
  for (int r = 0; r < rows; ++r) {
    if (slots[r].from < 0) continue;
    const auto* x = reinterpret_cast<const float*>(args.x + slots[r].from * args.x_stride);
#pragma unroll 4
    for (int at = 4 * static_cast<int>(threadIdx.x); at < args.k; at += 4 * kHalfThreads) {
      copy_16(to + r * args.k + at, x + at);
    }
  }
  end_copies();
}

// In shared memory beside weights and rows.
struct FoundRows {
  ActiveLists active;
  TableSlot slots[kHalfRows];
  int to[kHalfRows];  // rows of the output; negative: none
};
static_assert(sizeof(FoundRows) <= kHalfFound);

// What block `block` of `blocks` does. Work is dealt out as (batch of a list's rows, tile of columns), of one matrix
// tile by tile.
template <DType type, int kSets>
__device__ __forceinline__ void half_block(const UnitArgs& args, int tiles, int batch_rows, int block, int blocks) {
  extern __shared__ __align__(16) std::byte half_shared[];
  auto& found = *reinterpret_cast<FoundRows*>(half_shared + kHalfWarps * kHalfRing);
  ActiveLists& active = found.active;
  const int lane = threadIdx.x % kWarp;
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  auto* const x = reinterpret_cast<float*>(half_shared + kHalfWarps * kHalfRing + kHalfFound);
  HalfColumns<kSets> columns;
  columns.ring = half_shared + warp * kHalfRing + 16 * lane;
  const auto first_column = [&](int tile) {
    return (tile * kHalfWarps + warp) * kHalfColumns * (args.up != nullptr ? 1 : kSets) + lane / 4;
  };
  // The first weights of one matrix are fetched before anything is waited for.
  const bool one_matrix = args.table.begin == nullptr;
  const int batches = one_matrix ? blocks / tiles : 1;
  if (one_matrix) columns.start(args, 0, first_column(block / batches));
  begin();
#pragma unroll 1
  for (int first_list = 0, skip = 0; first_list < args.table.n_lists;) {
    if (!one_matrix) active.find(args.table, first_list, skip, batch_rows, 0);
    const int items = one_matrix ? blocks : active.count * tiles;
#pragma unroll 1
    for (int item = block; item < items; item += blocks) {
      const int place = one_matrix ? item % batches : item / tiles;
      const int tile = one_matrix ? item / batches : item - place * tiles;
      const int list = one_matrix ? 0 : active.at(place);
      RowRange range = range_of(args.table, list);
      range.begin += batch_rows * (one_matrix ? place : active.pass[place]);
      const int rows = min(batch_rows, range.end - range.begin);
      const int first = first_column(tile);
      if (!one_matrix) columns.start(args, expert_of(args.table, list), first);
      if (threadIdx.x < kHalfRows) {
        const auto r = static_cast<int>(threadIdx.x);
        const TableSlot slot = r < rows ? slot_of(args.table, list, range.begin + r) : TableSlot{-1, -1};
        found.slots[r] = slot;
        found.to[r] = slot.from < 0 ? -1 : slot.to;
      }
      __syncthreads();
      copy_rows(args, found.slots, rows, x);
      await_copies<0>();
      __syncthreads();
      if (rows == 1) multiply_batch<type, 1, kSets>(args, columns, x, found.to, first);
      if (rows == 2) multiply_batch<type, 2, kSets>(args, columns, x, found.to, first);
      if (rows == 3) multiply_batch<type, 3, kSets>(args, columns, x, found.to, first);
      if (rows == 4) multiply_batch<type, 4, kSets>(args, columns, x, found.to, first);
      __syncthreads();  // the rows are done with
    }
    if (one_matrix) break;
    skip = active.has_more() ? active.skipped + kListed : 0;
    first_list = active.begin + (skip > 0 ? 0 : kListed);
    __syncthreads();
  }
}

template <DType type, int kSets>
__global__ void __launch_bounds__(kHalfThreads, 3)
    half_rows(const __grid_constant__ UnitArgs args, const int tiles, const int batch_rows) {
  half_block<type, kSets>(args, tiles, batch_rows, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
}

struct MatrixCuts {
  int tiles[kHalfMatrices];
  int end[kHalfMatrices];  // of its blocks
};

// Products of the same rows with matrices of their own.
template <DType type>
__global__ void __launch_bounds__(kHalfThreads, 3)
    half_matrices(const __grid_constant__ HalfMatricesArgs all, const __grid_constant__ MatrixCuts cuts,
                  const int batch_rows) {
  const auto block = static_cast<int>(blockIdx.x);
  const int i = block < cuts.end[0] ? 0 : block < cuts.end[1] ? 1 : 2;
  const int before = i == 0 ? 0 : cuts.end[i - 1];
  half_block<type, 1>(all.of[i], cuts.tiles[i], batch_rows, block - before, cuts.end[i] - before);
}

HalfRowsPlan plan_of(const UnitArgs& args, std::int64_t max_active) {
  const RowTable& table = args.table;
  return half_rows_plan(table.begin == nullptr ? 0 : max_active, std::min(table.n_from, table.n_slots), args.n, args.k,
                        args.up != nullptr);
}

}  // namespace

int launch_half_rows(const UnitArgs& args, std::int64_t max_active, const Stream& stream) {
  const HalfRowsPlan plan = plan_of(args, max_active);
  const bool is_f16 = args.type == DType::f16;
  const auto kernel = plan.sets == 1 ? (is_f16 ? half_rows<DType::f16, 1> : half_rows<DType::bf16, 1>)
                                     : (is_f16 ? half_rows<DType::f16, 2> : half_rows<DType::bf16, 2>);
  return launch(kernel, plan.launch, stream, args, plan.tiles, plan.batch);
}

int launch_half_matrices(const HalfMatricesArgs& args, const Stream& stream) {
  MatrixCuts cuts{};
  LaunchPlan all;
  for (int i = 0; i < kHalfMatrices; ++i) {
    const HalfRowsPlan one = plan_of(args.of[i], 0);
    const std::int64_t before = all.blocks;
    all = one.launch;
    all.blocks += before;
    cuts.tiles[i] = one.tiles;
    cuts.end[i] = static_cast<int>(all.blocks);
  }
  const auto kernel = args.of[0].type == DType::f16 ? half_matrices<DType::f16> : half_matrices<DType::bf16>;
  return launch(kernel, all, stream, args, cuts, plan_of(args.of[0], 0).batch);
}

}  // namespace conclave::cuda
