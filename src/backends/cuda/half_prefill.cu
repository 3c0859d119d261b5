#include "backends/cuda/half_prefill_plan.h"

#include "backends/cuda/half_boxes.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/prefill_gather.cuh"
#include "backends/cuda/prefill_store.cuh"
#include "backends/cuda/wgmma_half.cuh"

namespace conclave::cuda {
namespace {

#if CONCLAVE_HOPPER

// The warp that has weights copied, a lane a box.
template <DType type, int kRows, bool kGateUp>
__device__ __forceinline__ void half_weights(const PrefillArgs& args, const PrefillCut& cut, const HalfBoxes& boxes,
                                             const PrefillMemory<type, kRows>& memory) {
  constexpr int kColumns = half_box_columns(kGateUp);
  constexpr int kBoxes = prefill_columns(kRows) / kColumns;
  auto& shared = memory.shared();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  PrefillTiles tiles{args, cut};
  Ring<prefill_weight_stages(type, kRows)> ring;
#pragma unroll 1
  for (;;) {
    const PrefillTile tile = tiles.take(args.table);
    if (tile.list < 0) return;
    const CUtensorMap* map = &boxes.map[kGateUp ? lane % 2 : tile.side];
    const int column = tile.first + (kGateUp ? lane / 2 : lane) * kColumns;
#pragma unroll 1
    for (int at = 0; at < args.chunks * kChunk; at += kHalfBox, ring.next()) {
      std::uint64_t* full = &shared.weights_full[ring.place];
      barrier_wait(&shared.weights_empty[ring.place], ring.parity ^ 1U);
      if (lane == 0) expect_bytes(full, prefill_weight_bytes(type, kRows));
      __syncwarp();
      if (lane >= kBoxes) continue;
      copy_box(shared_address(memory.weights(ring.place)) + lane * kColumns * 128, map, at, column, tile.expert, full);
    }
  }
}

// Sums of a tile's rows times what each row's are multiplied by. By a warpgroup; `space`: shared memory of its own.
template <int N>
__device__ __forceinline__ void scale_rows(float (&y)[N / 2], const float* factors, const TableSlot* slots,
                                           float* space) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int id = 1 + thread / 128;
#pragma unroll
  for (int row = 0; row < N; row += 128) {
    const int mine = row + thread % 128;
    if (mine >= N) continue;
    const int from = slots[mine].from;
    space[mine] = from < 0 ? 0.0F : factors[from];
  }
  group_barrier(id);
#pragma unroll
  for (int n = 0; n < N / 8; ++n) {
    const float2 two = *reinterpret_cast<const float2*>(space + 8 * n + 2 * (thread % 4));
    y[4 * n] *= two.x;
    y[4 * n + 1] *= two.y;
    y[4 * n + 2] *= two.x;
    y[4 * n + 3] *= two.y;
  }
  group_barrier(id);
}

// A tile of up to N rows, by one of the warps that multiply. A stage is given back when the next one's products have
// begun.
template <DType type, int kRows, bool kGateUp, int N>
__device__ __forceinline__ void half_tile(const PrefillArgs& args, const float* factors, const PrefillTile& tile,
                                          const TableSlot* slots, const PrefillMemory<type, kRows>& memory,
                                          PrefillRings<type, kRows>& rings) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  auto& shared = memory.shared();
  float y[N / 2] = {};
  std::uint64_t* used_weights = nullptr;
  std::uint64_t* used_rows = nullptr;
  const auto give_back = [&](std::uint64_t*& used) {
    if (lane == 0 && used != nullptr) barrier_arrive(used);
    used = nullptr;
  };
#pragma unroll 1
  for (int half = 0; half < 2 * args.chunks; ++half, rings.rows.next()) {
    barrier_wait(&shared.rows_full[rings.rows.place], rings.rows.parity);
    shared_for_wgmma();
    const std::uint64_t rows = rows_descriptor(shared_address(memory.rows(rings.rows.place)));
#pragma unroll
    for (int slice = 0; slice < 2; ++slice, rings.weights.next()) {
      const int place = rings.weights.place;
      barrier_wait(&shared.weights_full[place], rings.weights.parity);
      const std::uint64_t columns =
          rows_descriptor(shared_address(memory.weights(place)) + warp / 4 * (64 * prefill_column_stride(type)));
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        wgmma_half<type, N>(y, descriptor_at(columns, 32 * i),
                            descriptor_at(rows, slice * prefill_slice(kRows) + 32 * i));
      }
      wgmma_commit();
      wgmma_wait<1>();
      give_back(used_weights);
      if (slice == 0) give_back(used_rows);
      used_weights = &shared.weights_empty[place];
    }
    used_rows = &shared.rows_empty[rings.rows.place];
  }
  wgmma_wait<0>();
  give_back(used_weights);
  give_back(used_rows);
  std::byte* out = shared.out[warp / 4];
  if constexpr (type == DType::f16) scale_rows<N>(y, factors, slots, reinterpret_cast<float*>(out));
  PrefillStore<prefill_out_rows(type, kRows), kGateUp, true>{args, tile, slots, out, warp, lane}.template store<N>(y);
}

// The same for the first N of several that is enough.
template <DType type, int kRows, bool kGateUp, int N, int... kMore>
__device__ __forceinline__ void half_tile_of(const PrefillArgs& args, const float* factors, const PrefillTile& tile,
                                             const TableSlot* slots, const PrefillMemory<type, kRows>& memory,
                                             PrefillRings<type, kRows>& rings) {
  if constexpr (N < kRows) {
    if (tile.count > N) {
      half_tile_of<type, kRows, kGateUp, kMore...>(args, factors, tile, slots, memory, rings);
      return;
    }
  }
  half_tile<type, kRows, kGateUp, N>(args, factors, tile, slots, memory, rings);
}

template <DType type, int kRows, bool kGateUp>
__device__ __forceinline__ void half_multiply(const PrefillArgs& args, const float* factors,
                                              const PrefillMemory<type, kRows>& memory) {
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
      half_tile_of<type, kRows, kGateUp, 16, 32, 48>(args, factors, tile, slots, memory, rings);
    } else {
      half_tile_of<type, kRows, kGateUp, 16, 32, 64, 96, 128, 160>(args, factors, tile, slots, memory, rings);
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(&shared.done[told.place]);
  }
}

#endif

template <DType type, int kRows, bool kGateUp>
__global__ void __launch_bounds__(CONCLAVE_HOPPER ? prefill_threads(kRows) : kWarp, 1)
    half_prefill(const __grid_constant__ PrefillArgs args, const float* const factors,
                 const __grid_constant__ PrefillCut cut, const __grid_constant__ RowBoxes rows,
                 const __grid_constant__ HalfBoxes boxes) {
#if CONCLAVE_HOPPER
  extern __shared__ std::byte half_prefill_memory[];
  const PrefillMemory<type, kRows> memory{half_prefill_memory +
                                          (1024U - shared_address(half_prefill_memory) % 1024U) % 1024U};
  constexpr int kWarps = prefill_warps(kRows);
  const int gathering = prefill_gathering(kRows, rows.given);
  if (threadIdx.x == 0) {
    auto& shared = memory.shared();
    for (int i = 0; i < prefill_weight_stages(type, kRows); ++i) {
      barrier_init(&shared.weights_full[i], 1);
      barrier_init(&shared.weights_empty[i], kWarps);
    }
    for (int i = 0; i < prefill_halves(type, kRows); ++i) {
      barrier_init(&shared.rows_full[i], rows.given ? 1 : gathering * kWarp);
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
    half_multiply<type, kRows, kGateUp>(args, factors, memory);
  } else {
    fewer_registers<prefill_copying_registers(kRows)>();
    const int helper = warp - kWarps;
    if (helper == gathering) {
      if (!args.early) begin();
      half_weights<type, kRows, kGateUp>(args, cut, boxes, memory);
    } else if (helper < gathering) {
      begin();
      if (rows.given) {
        prefill_gather<type, kRows, true>(args, cut, rows, memory, helper);
      } else {
        prefill_gather<type, kRows, false>(args, cut, rows, memory, helper);
      }
    }
  }
#else
  begin();
#endif
}

template <DType type>
int launch_half_type(const PrefillArgs& args, const float* factors, int multiprocessors, const Stream& stream) {
  const RowTable& table = args.table;
  const bool gate_up = args.up != nullptr;
  const std::int64_t n_rows = table.begin == nullptr ? table.n_rows : table.n_slots;
  const std::int64_t n_lists = table.begin == nullptr ? 1 : table.n_lists;
  const PrefillCut cut =
      prefill_cut(type, n_rows, n_lists, args.side, gate_up, args.bank_out != nullptr, multiprocessors);
  const LaunchPlan plan = prefill_rows_plan(type, n_rows, n_lists, cut, multiprocessors);
  const RowBoxes rows =
      table.from == nullptr ? row_boxes(args.x, table.n_from, prefill_bank_stride(args.k), args.x_stride) : RowBoxes{};
  const HalfBoxes boxes = half_boxes(args);
  if (!boxes.given) return cudaErrorNotSupported;
  const auto kernel =
      cut.room == kPrefillShortRows
          ? (gate_up ? half_prefill<type, kPrefillShortRows, true> : half_prefill<type, kPrefillShortRows, false>)
          : (gate_up ? half_prefill<type, kPrefillRows, true> : half_prefill<type, kPrefillRows, false>);
  return launch(kernel, plan, stream, args, factors, cut, rows, boxes);
}

}  // namespace

int launch_half_prefill(const PrefillArgs& args, const float* factors, int multiprocessors, const Stream& stream) {
  if (args.table.n_from == 0) return cudaSuccess;
  return args.type == DType::f16 ? launch_half_type<DType::f16>(args, factors, multiprocessors, stream)
                                 : launch_half_type<DType::bf16>(args, factors, multiprocessors, stream);
}

}  // namespace conclave::cuda
