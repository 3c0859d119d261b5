#include <type_traits>

#include "backends/cuda/launch.cuh"
#include "backends/cuda/prefill_copies.cuh"
#include "backends/cuda/prefill_gather.cuh"
#include "backends/cuda/prefill_levels.cuh"
#include "backends/cuda/prefill_levels_32.cuh"
#include "backends/cuda/prefill_rows_plan.h"
#include "backends/cuda/prefill_store.cuh"
#include "backends/cuda/prefill_tiles.cuh"
#include "backends/cuda/wgmma_bf16.cuh"

namespace conclave::cuda {
namespace {

#if CONCLAVE_HOPPER

// One of kCopying warps that copy weights, 32 columns at a time.
template <DType type, int kRows, int kCopying>
__device__ __forceinline__ void prefill_weights(const PrefillArgs& args, const PrefillCut& cut,
                                                const PrefillMemory<type, kRows>& memory, int first) {
  constexpr int kColumns = prefill_columns(kRows);
  constexpr int kBytes = kWarp * prefill_column_stride(type);
  auto& shared = memory.shared();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  PrefillTiles tiles{args, cut};
  Ring<prefill_weight_stages(type, kRows)> ring;
#pragma unroll 1
  for (;;) {
    const PrefillTile tile = tiles.take(args.table);
    if (tile.list < 0) break;
    const PrefillColumnsOf at{args, args.side[tile.side], tile.expert, tile.first};
    __syncwarp();
#pragma unroll 1
    for (int i = first; i < kColumns / kWarp; i += kCopying) {
      shared.starts[kWarp * i + lane] = prefill_start<type>(at.address(kWarp * i + lane), lane);
    }
    __syncwarp();
#pragma unroll 1
    for (int c = 0; c < args.chunks; ++c, ring.next()) {
      barrier_wait(&shared.weights_empty[ring.place], ring.parity ^ 1U);
      const unsigned to = shared_address(memory.weights(ring.place));
#pragma unroll 1
      for (int i = first; i < kColumns / kWarp; i += kCopying) {
        copy_prefill_weights<type>(to + kBytes * i, to + kColumns * prefill_column_stride(type) + 4 * kWarp * i,
                                   shared.starts + kWarp * i, c, args, lane);
      }
      barrier_arrive_with_copies(&shared.weights_full[ring.place]);
    }
  }
  end_copies();
  await_copies<0>();
}

// A tile of up to N rows, by one of the warps that multiply.
template <DType type, int kRows, bool kGateUp, int N>
__device__ __forceinline__ void prefill_tile(const PrefillArgs& args, const PrefillTile& tile, const TableSlot* slots,
                                             const PrefillMemory<type, kRows>& memory,
                                             PrefillRings<type, kRows>& rings) {
  // Through a shuffle: it is kept then, where the compiler would ask for it again and again, and wait.
  const unsigned me = __shfl_sync(kAllLanes, threadIdx.x, static_cast<int>(threadIdx.x % kWarp));
  const int lane = static_cast<int>(me % kWarp);
  const int warp = static_cast<int>(me / kWarp);
  const int t = lane % 4;
  const int column = warp * 16 + lane / 4;
  using Levels = std::conditional_t<is_block_32(type), PrefillLevels32<type>, PrefillLevels<type>>;
  auto& shared = memory.shared();
  float y[N / 2] = {};
  Levels levels;
  constexpr int kTogether = prefill_steps(kRows, kGateUp);
  static_assert(Levels::kSteps % kTogether == 0);
  unsigned a[kTogether][4];
#pragma unroll 1
  for (int c = 0; c < args.chunks; ++c, rings.weights.next()) {
    const int place = rings.weights.place;
    barrier_wait(&shared.weights_full[place], rings.weights.parity);
    const std::byte* stage = memory.weights(place);
    const std::byte* from = stage + column * Levels::kStride;
    levels.load_scales(from, stage + prefill_columns(kRows) * Levels::kStride + 4 * column, c, t);
#pragma unroll
    for (int half = 0; half < 2; ++half, rings.rows.next()) {
      levels.begin_half(half);
      std::uint64_t rows = 0;
#pragma unroll
      for (int i = 0; i < 8; i += kTogether) {
        if (i % Levels::kSteps == 0) levels.load(from, t, half, i / Levels::kSteps);
        if (half == 1 && i == 8 - Levels::kSteps) {
          __syncwarp();
          if (lane == 0) barrier_arrive(&shared.weights_empty[place]);
        }
#pragma unroll
        for (int j = 0; j < kTogether; ++j) levels.step((i + j) % Levels::kSteps, t, a[j]);
        if (i == 0) {
          barrier_wait(&shared.rows_full[rings.rows.place], rings.rows.parity);
          shared_for_wgmma();
          rows = rows_descriptor(shared_address(memory.rows(rings.rows.place)));
        }
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < kTogether; ++j) {
          wgmma_bf16<N>(y, a[j], descriptor_at(rows, (i + j) / 4 * prefill_slice(kRows) + (i + j) % 4 * 32));
        }
        wgmma_commit();
        wgmma_wait<0>();
      }
      if (lane == 0) barrier_arrive(&shared.rows_empty[rings.rows.place]);
    }
  }
  PrefillStore<prefill_out_rows(type, kRows), kGateUp>{args, tile, slots, shared.out[warp / 4], warp, lane}
      .template store<N>(y);
}

// The same for the first N of several that is enough.
template <DType type, int kRows, bool kGateUp, int N, int... kMore>
__device__ __forceinline__ void prefill_tile_of(const PrefillArgs& args, const PrefillTile& tile,
                                                const TableSlot* slots, const PrefillMemory<type, kRows>& memory,
                                                PrefillRings<type, kRows>& rings) {
  if constexpr (N < kRows) {
    if (tile.count > N) {
      prefill_tile_of<type, kRows, kGateUp, kMore...>(args, tile, slots, memory, rings);
      return;
    }
  }
  prefill_tile<type, kRows, kGateUp, N>(args, tile, slots, memory, rings);
}

template <DType type, int kRows, bool kGateUp>
__device__ __forceinline__ void prefill_multiply(const PrefillArgs& args, const PrefillMemory<type, kRows>& memory) {
  auto& shared = memory.shared();
  PrefillRings<type, kRows> rings;
  Ring<kPrefillTold> told;
#pragma unroll 1
  for (;; told.next()) {
    barrier_wait(&shared.known[told.place], told.parity);
    const PrefillTile& tile = shared.tile[told.place];
    if (tile.list < 0) return;
    const TableSlot* slots = shared.slots[told.place];
    if constexpr (kRows == kPrefillShortRows) {
      prefill_tile_of<type, kRows, kGateUp, 16, 32, 48>(args, tile, slots, memory, rings);
    } else {
      prefill_tile_of<type, kRows, kGateUp, 16, 32, 48, 64, 96, 112, 128, 144, 160>(args, tile, slots, memory, rings);
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(&shared.done[told.place]);
  }
}

#endif

// Gate and up have a kernel of their own, and so less code each. Where it has no body, launch bounds tell
// (prefill_rows_built).
template <DType type, int kRows, bool kGateUp>
__global__ void __launch_bounds__(CONCLAVE_HOPPER ? prefill_threads(kRows) : kWarp, 1)
    prefill_rows(const __grid_constant__ PrefillArgs args, const __grid_constant__ PrefillCut cut,
                 const __grid_constant__ RowBoxes boxes) {
#if CONCLAVE_HOPPER
  extern __shared__ std::byte prefill_memory[];
  const PrefillMemory<type, kRows> memory{prefill_memory + (1024U - shared_address(prefill_memory) % 1024U) % 1024U};
  constexpr int kWarps = prefill_warps(kRows);
  const int gathering = prefill_gathering(kRows, boxes.given);
  const int copying = kPrefillHelpers - gathering;
  if (threadIdx.x == 0) {
    auto& shared = memory.shared();
    for (int i = 0; i < prefill_weight_stages(type, kRows); ++i) {
      barrier_init(&shared.weights_full[i], copying * kWarp);
      barrier_init(&shared.weights_empty[i], kWarps);
    }
    for (int i = 0; i < prefill_halves(type, kRows); ++i) {
      barrier_init(&shared.rows_full[i], boxes.given ? 1 : gathering * kWarp);
      barrier_init(&shared.rows_empty[i], kWarps);
    }
    for (int i = 0; i < kPrefillTold; ++i) {
      barrier_init(&shared.known[i], gathering * kWarp);
      barrier_init(&shared.done[i], kWarps);
    }
    end_barrier_init();
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (warp < kWarps) {
    begin();
    more_registers<prefill_multiplying_registers(kRows)>();
    prefill_multiply<type, kRows, kGateUp>(args, memory);
  } else {
    fewer_registers<prefill_copying_registers(kRows)>();
    const int helper = warp - kWarps;
    if (helper >= gathering) {
      if (!args.early) begin();
      if (boxes.given) {
        prefill_weights<type, kRows, kPrefillHelpers - prefill_gathering(kRows, true)>(args, cut, memory,
                                                                                       helper - gathering);
      } else {
        prefill_weights<type, kRows, kPrefillHelpers - prefill_gathering(kRows, false)>(args, cut, memory,
                                                                                        helper - gathering);
      }
    } else {
      begin();
      if (boxes.given) {
        prefill_gather<type, kRows, true>(args, cut, boxes, memory, helper);
      } else {
        prefill_gather<type, kRows, false>(args, cut, boxes, memory, helper);
      }
    }
  }
#else
  begin();
#endif
}

template <DType type>
int launch_prefill_type(const PrefillArgs& args, int multiprocessors, const Stream& stream) {
  const RowTable& table = args.table;
  const std::int64_t n_rows = table.begin == nullptr ? table.n_rows : table.n_slots;
  const std::int64_t n_lists = table.begin == nullptr ? 1 : table.n_lists;
  const PrefillCut cut =
      prefill_cut(type, n_rows, n_lists, args.side, args.up != nullptr, args.bank_out != nullptr, multiprocessors);
  const LaunchPlan plan = prefill_rows_plan(type, n_rows, n_lists, cut, multiprocessors);
  const RowBoxes boxes =
      table.from == nullptr ? row_boxes(args.x, table.n_from, prefill_bank_stride(args.k), args.x_stride) : RowBoxes{};
  const auto kernel = cut.room == kPrefillShortRows
                          ? (args.up != nullptr ? prefill_rows<type, kPrefillShortRows, true>
                                                : prefill_rows<type, kPrefillShortRows, false>)
                          : (args.up != nullptr ? prefill_rows<type, prefill_long_rows(type), true>
                                                : prefill_rows<type, prefill_long_rows(type), false>);
  return launch(kernel, plan, stream, args, cut, boxes);
}

}  // namespace

bool prefill_rows_built() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, prefill_rows<DType::q4_k, kPrefillRows, false>) == cudaSuccess &&
         attributes.maxThreadsPerBlock >= prefill_threads(kPrefillRows);
}

int launch_prefill_rows(const PrefillArgs& args, int multiprocessors, const Stream& stream) {
  if (args.table.n_from == 0) return cudaSuccess;
  switch (args.type) {
    case DType::q4_k:
      return launch_prefill_type<DType::q4_k>(args, multiprocessors, stream);
    case DType::q5_k:
      return launch_prefill_type<DType::q5_k>(args, multiprocessors, stream);
    case DType::q6_k:
      return launch_prefill_type<DType::q6_k>(args, multiprocessors, stream);
    case DType::q8_0:
      return launch_prefill_type<DType::q8_0>(args, multiprocessors, stream);
    case DType::q4_0:
      return launch_prefill_type<DType::q4_0>(args, multiprocessors, stream);
    default:
      return launch_prefill_type<DType::mxfp4>(args, multiprocessors, stream);
  }
}

}  // namespace conclave::cuda
