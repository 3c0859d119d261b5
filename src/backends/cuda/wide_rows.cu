#include "backends/cuda/launch.cuh"
#include "backends/cuda/wide_copies.cuh"
#include "backends/cuda/wide_rows_plan.h"
#include "backends/cuda/wide_store.cuh"
#include "backends/cuda/wide_sums.cuh"
#include "backends/cuda/wide_tiles.cuh"

namespace conclave::cuda {
namespace {

#if CONCLAVE_HOPPER

// The kernel starts with 168 for every thread, or with 80 where two blocks share a multiprocessor.
constexpr int copying_registers(DType type, int rows) {
  return rows == kShortRows ? 48 : type == DType::q5_k ? 72 : 56;
}
constexpr int multiplying_registers(DType type, int rows) {
  return rows == kShortRows ? 96 : type == DType::q5_k ? 216 : 224;
}
constexpr bool registers_fit(DType type, int rows) {
  const int all = copying_registers(type, rows) + kWideMultiplying * multiplying_registers(type, rows);
  return all <= 3 * (rows == kShortRows ? 80 : 168);
}
static_assert(registers_fit(DType::q4_k, kWideRows) && registers_fit(DType::q5_k, kWideRows) &&
              registers_fit(DType::q4_k, kShortRows));

// One warpgroup: finds tiles, and copies their superblocks.
template <DType type, int kRows>
__device__ __forceinline__ void copy_tiles(const UnitArgs& args, int tile_rows, std::byte* stages, WideShared& shared) {
  int t = static_cast<int>(threadIdx.x) % kWideGroup;
  WideTiles tiles{args, tile_rows};
  Ring<wide_stages(kRows)> ring;
  Ring<2> told;
#pragma unroll 1
  for (;; told.next()) {
    asm volatile(""
                 : "+r"(t));  // nothing that is made of it is kept from tile to tile: there are no registers for that
    const WideTile tile = tiles.take(args.table, shared, t);
    barrier_wait(&shared.done[told.place], told.parity ^ 1U);
    TableSlot* slots = shared.slots[told.place];
    if (tile.list >= 0) {
      if (t < kRows) slots[t] = t < tile.count ? slot_of(args.table, tile.list, tile.first_row + t) : TableSlot{-1, -1};
    }
    if (t == 0) shared.tile[told.place] = tile;
    group_barrier(kCopyingBarrier);
    barrier_arrive(&shared.known[told.place]);
    if (tile.list < 0) break;
    WideCopies<type, kRows> copies{args, tile, slots, t};
#pragma unroll 1
    for (int c = 0; c < args.chunks; ++c, ring.next()) {
      barrier_wait(&shared.empty[ring.place], ring.parity ^ 1U);
      copies.copy(shared_address(stage_of<type, kRows>(stages, ring.place).at), static_cast<unsigned>(c));
      barrier_arrive_with_copies(&shared.full[ring.place]);
    }
  }
  end_copies();
  await_copies<0>();
}

// A tile of up to N rows, by one of the warpgroups that multiply.
template <DType type, int kRows, int N>
__device__ __forceinline__ void multiply_tile(const UnitArgs& args, const WideTile& tile, const TableSlot* slots,
                                              std::byte* stages, WideShared& shared, Ring<wide_stages(kRows)>& ring) {
  // Through a shuffle: it is kept then, where the compiler would ask for it again and again, and wait.
  const int me = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x), static_cast<int>(threadIdx.x % kWarp));
  const int group = me / kWideGroup;
  const int t = me % kWideGroup;
  const int lane = t % kWarp;
  const int in_group = t / kWarp * 16 + lane / 4;
  const int column = group * (kWideColumns / kWideMultiplying) + in_group;
  float y[N / 2] = {};
  WideSums<type, kRows, N> products;
  bool plain = false;
  WideWords<type> words;
  const auto await_stage = [&] {
    barrier_wait(&shared.full[ring.place], ring.parity);
    shared_for_wgmma();
  };
  const auto load_words = [&] {
    const std::byte* from = stage_of<type, kRows>(stages, ring.place).column(column);
    if constexpr (is_affine(type)) words.load_head(from, wide_column_stride(type));
    if constexpr (words_ahead(kRows)) {
#pragma unroll
      for (int j = 0; j < 2; ++j) words.load_pair(from, wide_column_stride(type), lane, j);
    }
  };
  constexpr bool kAhead = words_ahead(kRows);
  if constexpr (kAhead) {
    await_stage();
    load_words();
  }
#pragma unroll 1
  for (int c = 0; c < args.chunks; ++c) {
    if constexpr (!kAhead) {
      await_stage();
      load_words();
    }
    const int place = ring.place;
    const WideStage<type, kRows> stage = stage_of<type, kRows>(stages, place);
    products.multiply(stage, words, column, lane);
    // While that is multiplied:
    if constexpr (kAhead && is_affine(type)) {
      words.load_head(stage.column(column), wide_column_stride(type));  // it was not kept
    }
    const WideFactors<type> factors{stage, words, c, column, lane};
    if (t < tile.count && isnan(stage.scales()[wide_scale_place(t)])) plain = true;
    ring.next();
    const bool more = kAhead && c + 1 < args.chunks;
    if (more) await_stage();
    wgmma_wait<0>();
    WideAdder<type, kRows, N>{stage, factors, lane}.add(products, y, [&] {
      if (more) load_words();
    });
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[place]);
  }

#pragma unroll 1
  for (int first = 0; first < tile.count; first += kWideOutRows) {
    group_barrier(kCopyingBarrier + 1 + group);
    if (first == 0 && t < kWideRows) shared.plain[group][t] = plain ? 1 : 0;
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      if (8 * n / kWideOutRows * kWideOutRows != first) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        shared.out[group][8 * n % kWideOutRows + 2 * (lane % 4) + i % 2][in_group + 8 * (i / 2)] = y[4 * n + i];
      }
    }
    group_barrier(kCopyingBarrier + 1 + group);
    WideStore{args, tile, shared, slots, group, t, first}.store();
  }
}

template <DType type, int kRows>
__device__ __forceinline__ void multiply_tiles(const UnitArgs& args, std::byte* stages, WideShared& shared) {
  Ring<wide_stages(kRows)> ring;
  Ring<2> told;
#pragma unroll 1
  for (;; told.next()) {
    barrier_wait(&shared.known[told.place], told.parity);
    const WideTile tile = shared.tile[told.place];
    if (tile.list < 0) return;
    const TableSlot* slots = shared.slots[told.place];
    if constexpr (kRows == kShortRows) {
      multiply_tile<type, kRows, 32>(args, tile, slots, stages, shared, ring);
    } else if (tile.count <= 32) {
      multiply_tile<type, kRows, 32>(args, tile, slots, stages, shared, ring);
    } else if (tile.count <= 64) {
      multiply_tile<type, kRows, 64>(args, tile, slots, stages, shared, ring);
    } else {
      multiply_tile<type, kRows, kWideRows>(args, tile, slots, stages, shared, ring);
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(&shared.done[told.place]);
  }
}

#endif

// Where it has no body, launch bounds tell (wide_rows_built).
template <DType type, int kRows>
__global__ void __launch_bounds__(CONCLAVE_HOPPER ? kWideThreads : kWarp, wide_blocks_each(kRows))
    wide_rows(const __grid_constant__ UnitArgs args, int tile_rows) {
  begin();
#if !CONCLAVE_HOPPER
  static_cast<void>(tile_rows);
#else
  extern __shared__ std::byte wide_memory[];
  std::byte* stages = wide_memory + (1024U - shared_address(wide_memory) % 1024U) % 1024U;
  auto& shared = *reinterpret_cast<WideShared*>(stages + wide_stages(kRows) * wide_stage_bytes(type, kRows));
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWideMultiplying * kWideGroup / kWarp;
    for (int i = 0; i < wide_stages(kRows); ++i) {
      barrier_init(&shared.full[i], kWideGroup);
      barrier_init(&shared.empty[i], kWarps);
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(&shared.known[i], kWideGroup);
      barrier_init(&shared.done[i], kWarps);
    }
  }
  __syncthreads();
  if (threadIdx.x >= kWideMultiplying * kWideGroup) {
    fewer_registers<copying_registers(type, kRows)>();
    copy_tiles<type, kRows>(args, tile_rows, stages, shared);
  } else {
    more_registers<multiplying_registers(type, kRows)>();
    multiply_tiles<type, kRows>(args, stages, shared);
  }
#endif
}

template <DType type>
int launch_type(const UnitArgs& args, int multiprocessors, const Stream& stream) {
  const bool gate_up = args.up != nullptr;
  const int rows = wide_tile_rows(args.table.n_rows, args.table.n_lists, args.n, gate_up, multiprocessors);
  const std::int64_t most = most_wide_tiles(args.table.n_slots, args.table.n_lists, args.most_rows + 1, rows);
  const int room = rows == kShortRows ? kShortRows : kWideRows;
  LaunchPlan plan = wide_rows_plan(type, most, args.n, gate_up, room, multiprocessors);
  // Where few_rows has the other lists, these are few or none.
  if (args.most_rows > 0 && plan.blocks > multiprocessors) plan.blocks = multiprocessors;
  if (rows == kShortRows) return launch(wide_rows<type, kShortRows>, plan, stream, args, rows);
  return launch(wide_rows<type, kWideRows>, plan, stream, args, rows);
}

}  // namespace

bool wide_rows_built() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, wide_rows<DType::q4_k, kWideRows>) == cudaSuccess &&
         attributes.maxThreadsPerBlock >= kWideThreads;
}

int launch_wide_rows(const UnitArgs& args, int multiprocessors, const Stream& stream) {
  if (args.type == DType::q4_k) return launch_type<DType::q4_k>(args, multiprocessors, stream);
  if (args.type == DType::q5_k) return launch_type<DType::q5_k>(args, multiprocessors, stream);
  return launch_type<DType::q6_k>(args, multiprocessors, stream);
}

}  // namespace conclave::cuda
