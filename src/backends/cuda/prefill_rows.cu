#include <type_traits>

#include "backends/cuda/launch.cuh"
#include "backends/cuda/prefill_copies.cuh"
#include "backends/cuda/prefill_gather.cuh"
#include "backends/cuda/prefill_levels.cuh"
#include "backends/cuda/prefill_levels_32.cuh"
#include "backends/cuda/prefill_rows_plan.h"
#include "backends/cuda/prefill_store.cuh"
#include "backends/cuda/prefill_tiles.cuh"
#include "backends/cuda/weight_boxes.h"
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

// Whether the phase has ended: barrier_wait() that does not wait.
__device__ __forceinline__ bool barrier_ended(std::uint64_t* barrier, unsigned parity) {
  unsigned ended = 0;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(ended)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return ended != 0;
}

// The same as boxes, by one warp, a lane a warpgroup: those are not equally far, and one may be in the next tile.
template <DType type, int kRows, bool kGateUp, int kSpan>
__device__ __forceinline__ void prefill_weight_boxes(const PrefillArgs& args, const PrefillCut& cut,
                                                     const WeightBoxes& from,
                                                     const PrefillMemory<type, kRows>& memory) {
  constexpr int kStages = prefill_box_stages(type, kRows, kSpan);
  constexpr int kColumns = kGateUp ? kPrefillGroupColumns / 2 : kPrefillGroupColumns;  // of one matrix
  constexpr unsigned kNanoseconds = 100;  // to sleep where nothing is to do
  auto& shared = memory.shared();
  const int group = static_cast<int>(threadIdx.x) % kWarp;
  const bool bank = args.bank_out != nullptr;
  PrefillTiles tiles{args, cut};
  PrefillTile tile = tiles.take(args.table);
  PrefillTile next = tiles.take(args.table);
  Ring<kStages> ring;
  int c = 0;
  bool ahead = group >= prefill_groups(kRows);  // in the next tile
#pragma unroll 1
  while (tile.list >= 0) {
    const PrefillTile& mine = ahead ? next : tile;
    const int at = group * kStages + ring.place;
    const bool put = group < prefill_groups(kRows) && mine.list >= 0 && c < args.chunks &&
                     barrier_ended(&shared.weights_empty[at], ring.parity ^ 1U);
    if (put) {
      std::uint64_t* full = &shared.weights_full[at];
      expect_bytes(full, prefill_box_bytes(type, kSpan));
      const unsigned to = shared_address(memory.template box<kSpan>(ring.place, group));
      const int place = mine.first + group * kColumns;
      const int y = bank ? place % kChunk / kBankRuns : place;
      const int run = bank ? place / kChunk * kBankRuns : 0;
      const int x = c * (block_bytes(type) / 4);
      copy_box(to, &from.map[kGateUp ? 0 : mine.side], x, y, run, mine.expert, full);
      if (kGateUp) copy_box(to + prefill_box_bytes(type, kSpan) / 2, &from.map[1], x, y, run, mine.expert, full);
      ring.next();
      c += kSpan;
      if (c >= args.chunks && !ahead) {
        ahead = true;
        c = 0;
      }
    }
    __syncwarp();
    if (__all_sync(kAllLanes, ahead)) {
      tile = next;
      next = tiles.take(args.table);
      const bool done = c >= args.chunks;
      ahead = done || group >= prefill_groups(kRows);
      if (done) c = 0;
    } else if (!__any_sync(kAllLanes, put)) {
      __nanosleep(kNanoseconds);
    }
  }
}

// How one of the warps that multiply finds its weights in the ring. kSpan: superblocks of a box, 0 where there is none;
// kApart: bytes from a lane's first column to its second.
template <DType type, int kRows, bool kGateUp, int kSpan>
struct PrefillWeights {
  static constexpr bool kBoxed = kSpan > 0;
  static constexpr int kTogether = kBoxed ? kSpan : 1;
  static constexpr int kStages = kBoxed ? prefill_box_stages(type, kRows, kSpan) : prefill_weight_stages(type, kRows);
  static constexpr int kApart = kBoxed ? (kGateUp ? kPrefillGroupColumns / 2 : 8) * prefill_box_column(type, kSpan)
                                       : 8 * prefill_column_stride(type);
  using Rings = PrefillRings<type, kRows, kStages>;

  const PrefillMemory<type, kRows>& memory;
  int warp;
  int in_stage;  // of the lane's first column

  __device__ __forceinline__ PrefillWeights(const PrefillMemory<type, kRows>& of, int my_warp, int lane, bool bank)
      : memory(of), warp(my_warp) {
    if constexpr (kBoxed) {
      const int place = kGateUp ? warp % 4 * 8 + lane / 4 : warp % 4 * 16 + lane / 4;
      in_stage = (kGateUp && bank ? bank_run_place(place) : place) * prefill_box_column(type, kSpan);
    } else {
      in_stage = (warp * 16 + lane / 4) * prefill_column_stride(type);
    }
  }
  __device__ __forceinline__ const std::byte* stage(int place) const {
    if constexpr (kBoxed) return memory.template box<kSpan>(place, warp / 4);
    return memory.weights(place);
  }
  __device__ __forceinline__ int barrier(int place) const { return kBoxed ? warp / 4 * kStages + place : place; }
};

// A tile of up to N rows, by one of the warps that multiply.
template <DType type, int kRows, bool kGateUp, int kSpan, int N>
__device__ __forceinline__ void prefill_tile(const PrefillArgs& args, const PrefillTile& tile, const TableSlot* slots,
                                             const PrefillMemory<type, kRows>& memory,
                                             typename PrefillWeights<type, kRows, kGateUp, kSpan>::Rings& rings) {
  using Weights = PrefillWeights<type, kRows, kGateUp, kSpan>;
  // Through a shuffle: it is kept then, where the compiler would ask for it again and again, and wait.
  const unsigned me = __shfl_sync(kAllLanes, threadIdx.x, static_cast<int>(threadIdx.x % kWarp));
  const int lane = static_cast<int>(me % kWarp);
  const int warp = static_cast<int>(me / kWarp);
  const int t = lane % 4;
  const Weights weights{memory, warp, lane, args.bank_out != nullptr};
  using Levels = std::conditional_t<is_block_32(type), PrefillLevels32<type, Weights::kApart>,
                                    PrefillLevels<type, Weights::kApart>>;
  auto& shared = memory.shared();
  float y[N / 2] = {};
  Levels levels;
  constexpr int kTogether = prefill_steps(kRows, kGateUp);
  static_assert(Levels::kSteps % kTogether == 0);
  unsigned a[kTogether][4];
#pragma unroll 1
  for (int c = 0; c < args.chunks; ++c) {
    const int at = weights.barrier(rings.weights.place);
    if (c % Weights::kTogether == 0) barrier_wait(&shared.weights_full[at], rings.weights.parity);
    const bool last = (c + 1) % Weights::kTogether == 0 || c + 1 == args.chunks;  // of those that came together
    const std::byte* stage = weights.stage(rings.weights.place);
    const std::byte* from = stage + weights.in_stage + c % Weights::kTogether * block_bytes(type);
    const std::byte* d = stage + prefill_columns(kRows) * prefill_column_stride(type) + 4 * (warp * 16 + lane / 4);
    levels.load_scales(from, d, c, t);
#pragma unroll
    for (int half = 0; half < 2; ++half, rings.rows.next()) {
      levels.begin_half(half);
      std::uint64_t rows = 0;
#pragma unroll
      for (int i = 0; i < 8; i += kTogether) {
        if (i % Levels::kSteps == 0) levels.load(from, t, half, i / Levels::kSteps);
        if (half == 1 && i == 8 - Levels::kSteps) {
          __syncwarp();
          if (lane == 0 && last) barrier_arrive(&shared.weights_empty[at]);
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
    if (last) rings.weights.next();
  }
  PrefillStore<prefill_out_rows(type, kRows), kGateUp>{args, tile, slots, shared.out[warp / 4], warp, lane}
      .template store<N>(y);
}

// The same for the first N of several that is enough.
template <DType type, int kRows, bool kGateUp, int kSpan, int N, int... kMore>
__device__ __forceinline__ void prefill_tile_of(const PrefillArgs& args, const PrefillTile& tile,
                                                const TableSlot* slots, const PrefillMemory<type, kRows>& memory,
                                                typename PrefillWeights<type, kRows, kGateUp, kSpan>::Rings& rings) {
  if constexpr (N < kRows) {
    if (tile.count > N) {
      prefill_tile_of<type, kRows, kGateUp, kSpan, kMore...>(args, tile, slots, memory, rings);
      return;
    }
  }
  prefill_tile<type, kRows, kGateUp, kSpan, N>(args, tile, slots, memory, rings);
}

template <DType type, int kRows, bool kGateUp, int kSpan>
__device__ __forceinline__ void prefill_multiply(const PrefillArgs& args, const PrefillMemory<type, kRows>& memory) {
  auto& shared = memory.shared();
  typename PrefillWeights<type, kRows, kGateUp, kSpan>::Rings rings;
  Ring<kPrefillTold> told;
#pragma unroll 1
  for (;; told.next()) {
    barrier_wait(&shared.known[told.place], told.parity);
    const PrefillTile& tile = shared.tile[told.place];
    if (tile.list < 0) return;
    const TableSlot* slots = shared.slots[told.place];
    if constexpr (kRows == kPrefillShortRows) {
      prefill_tile_of<type, kRows, kGateUp, kSpan, 16, 32, 48>(args, tile, slots, memory, rings);
    } else {
      prefill_tile_of<type, kRows, kGateUp, kSpan, 16, 32, 48, 64, 96, 112, 128, 144, 160>(args, tile, slots, memory,
                                                                                           rings);
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(&shared.done[told.place]);
  }
}

#endif

struct NoBoxes {};
template <int kSpan>
using BoxesOf = std::conditional_t<(kSpan > 0), WeightBoxes, NoBoxes>;

// Gate and up have a kernel of their own, and so less code each. Where it has no body, launch bounds tell
// (prefill_rows_built).
template <DType type, int kRows, bool kGateUp, int kSpan>
__global__ void __launch_bounds__(CONCLAVE_HOPPER ? prefill_threads(kRows) : kWarp, 1)
    prefill_rows(const __grid_constant__ PrefillArgs args, const __grid_constant__ PrefillCut cut,
                 const __grid_constant__ RowBoxes boxes, const __grid_constant__ BoxesOf<kSpan> weights) {
#if CONCLAVE_HOPPER
  extern __shared__ std::byte prefill_memory[];
  const PrefillMemory<type, kRows> memory{prefill_memory + (1024U - shared_address(prefill_memory) % 1024U) % 1024U};
  constexpr int kWarps = prefill_warps(kRows);
  constexpr bool kBoxed = kSpan > 0;
  const int gathering = prefill_gathering(kRows, boxes.given, kBoxed);
  const int copying = kPrefillHelpers - gathering;
  if (threadIdx.x == 0) {
    auto& shared = memory.shared();
    constexpr int kRings = kBoxed ? prefill_groups(kRows) : 1;
    using Weights = PrefillWeights<type, kRows, kGateUp, kSpan>;
    for (int i = 0; i < kRings * Weights::kStages; ++i) {
      barrier_init(&shared.weights_full[i], kBoxed ? 1 : copying * kWarp);
      barrier_init(&shared.weights_empty[i], kWarps / kRings);
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
    prefill_multiply<type, kRows, kGateUp, kSpan>(args, memory);
  } else {
    fewer_registers<prefill_copying_registers(kRows)>();
    const int helper = warp - kWarps;
    if (helper >= gathering) {
      if (!args.early) begin();
      if constexpr (kBoxed) {
        if (helper == gathering) prefill_weight_boxes<type, kRows, kGateUp, kSpan>(args, cut, weights, memory);
      } else if (boxes.given) {
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
        prefill_gather<type, kRows, false, prefill_gathering(kRows, false, kBoxed)>(args, cut, boxes, memory, helper);
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
  const bool gate_up = args.up != nullptr;
  if constexpr (prefill_boxes_fit(type, kPrefillShortRows)) {
    const int span = prefill_span(gate_up, table.begin != nullptr);
    const WeightBoxes weights = cut.room == kPrefillShortRows ? weight_boxes(args, span) : WeightBoxes{};
    const auto boxed = gate_up     ? prefill_rows<type, kPrefillShortRows, true, 2>
                       : span == 2 ? prefill_rows<type, kPrefillShortRows, false, 2>
                                   : prefill_rows<type, kPrefillShortRows, false, 1>;
    if (weights.given) return launch(boxed, plan, stream, args, cut, boxes, weights);
  }
  const auto kernel =
      cut.room == kPrefillShortRows
          ? (gate_up ? prefill_rows<type, kPrefillShortRows, true, 0> : prefill_rows<type, kPrefillShortRows, false, 0>)
          : (gate_up ? prefill_rows<type, prefill_long_rows(type), true, 0>
                     : prefill_rows<type, prefill_long_rows(type), false, 0>);
  return launch(kernel, plan, stream, args, cut, boxes, NoBoxes{});
}

}  // namespace

bool prefill_rows_built() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, prefill_rows<DType::q4_k, kPrefillRows, false, 0>) == cudaSuccess &&
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
