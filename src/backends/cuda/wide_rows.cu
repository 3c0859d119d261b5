#include "backends/cuda/activation.cuh"
#include "backends/cuda/chunk_product.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/wide_copies.cuh"
#include "backends/cuda/wide_levels.cuh"
#include "backends/cuda/wide_rows_plan.h"
#include "backends/cuda/wide_tiles.cuh"

// The instructions are of sm_90a alone.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CONCLAVE_WIDE 1
#else
#define CONCLAVE_WIDE 0
#endif

namespace conclave::cuda {
namespace {

#if CONCLAVE_WIDE

// The kernel starts with 168 for every thread, or with 80 where two blocks share a multiprocessor.
constexpr int copying_registers(int rows) {
  return rows == kShortRows ? 40 : 56;
}
constexpr int multiplying_registers(int rows) {
  return rows == kShortRows ? 96 : 224;
}
static_assert(copying_registers(kWideRows) + kWideMultiplying * multiplying_registers(kWideRows) <= 3 * 168);
static_assert(copying_registers(kShortRows) + kWideMultiplying * multiplying_registers(kShortRows) <= 3 * 80);

// One warpgroup: finds tiles, and copies their superblocks.
template <DType type, int kRows>
__device__ __forceinline__ void copy_tiles(const UnitArgs& args, int tile_rows, std::byte* stages, WideShared& shared) {
  const int t = static_cast<int>(threadIdx.x) % kWideGroup;
  WideTiles tiles{args, tile_rows, t};
  Ring<kWideStages> ring;
  Ring<2> told;
#pragma unroll 1
  for (;; told.next()) {
    const WideTile tile = tiles.take(args.table, shared);
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
      copies.copy(shared_address(stage_of<type, kRows>(stages, ring.place).at), c);
      barrier_arrive_with_copies(&shared.full[ring.place]);
    }
  }
  end_copies();
  await_copies<0>();
}

// 64 columns times N rows of one superblock: exact sums.
template <DType type, int kRows, int N>
__device__ __forceinline__ void wide_sums(const WideStage<type, kRows>& stage, int column, int lane,
                                          int (&sum)[N / 2]) {
  const WideLevels<type> levels{stage.column(column), wide_column_stride(type), lane};
  const std::uint64_t rows = rows_descriptor(shared_address(stage.at));
  const auto rows_of = [&](int step) { return descriptor_at(rows, step / 4 * wide_half(kRows) + step % 4 * 32); };
  unsigned low[4][2][4];
  unsigned high[2][2][4];  // what wgmma still reads is left alone
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    levels.pair(j, high[j % 2], low[j]);
    wgmma_fence();
    if (j == 0) {
      wgmma_s8<N, !is_affine(type), false>(sum, high[0][0], rows_of(pair_step<type>(0, 0)));
    } else {
      wgmma_s8<N, !is_affine(type), true>(sum, high[j % 2][0], rows_of(pair_step<type>(j, 0)));
    }
    wgmma_s8<N, !is_affine(type), true>(sum, high[j % 2][1], rows_of(pair_step<type>(j, 1)));
    wgmma_commit();
    if (j < 3) {
      wgmma_wait<1>();
    } else {
      wgmma_wait<0>();
    }
  }
#pragma unroll
  for (int i = 0; i < N / 2; ++i) sum[i] <<= kDigitBits<type>;
  wgmma_fence();
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) wgmma_s8<N, false, true>(sum, low[j][e], rows_of(pair_step<type>(j, e)));
  }
  wgmma_commit();
}

// Adds superblock c to the outputs, in the steps of product_plan.h.
template <DType type, int kRows, int N>
__device__ __forceinline__ void add_superblock(const WideStage<type, kRows>& stage, int c, int column, int lane,
                                               float (&y)[N / 2], int (&sum)[N / 2]) {
  float d[2];
  float dmin[2];
  unsigned mins[4];
  if constexpr (is_affine(type)) {
    const ChunkColumns<type> w{stage.column(0), wide_column_stride(type)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      d[half] = factor(w, column + 8 * half);
      dmin[half] = min_factor(w, column + 8 * half);
    }
    chunk_mins(w, column - lane / 4, 0, mins);
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      d[half] = __half2float(reinterpret_cast<const __half*>(stage.d(column + 8 * half))[c & 1]);
    }
  }
  // Two tiles of eight rows at a time.
  const std::byte* sums = stage.sums(lane % 8 + 8 * (lane / 16)) + 16 * (lane / 8 % 2);
  wgmma_wait<0>();
#pragma unroll
  for (int two = 0; two < N / 16; ++two) {
    unsigned x[4];
    if constexpr (is_affine(type)) load_tiles(x, sums + 16 * two * kWideSumStride);
#pragma unroll
    for (int one = 0; one < 2; ++one) {
      const int n = 2 * two + one;
      float low[4];
      if constexpr (is_affine(type)) mma_f16_k16(low, mins, x[2 * one], x[2 * one + 1]);
      const float2 scale = *reinterpret_cast<const float2*>(stage.scales() + 8 * n + 2 * (lane % 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float by = i % 2 == 0 ? scale.x : scale.y;
        float& out = y[4 * n + i];
        out = out + (by * d[i / 2]) * static_cast<float>(sum[4 * n + i]);
        if constexpr (is_affine(type)) out = out - (by * dmin[i / 2]) * low[i];
      }
    }
  }
}

// Four floats as elements of a row, from one whose address their size divides.
__device__ __forceinline__ void store_4(DType type, std::byte* to, const float (&y)[4]) {
  if (type == DType::f32) {
    *reinterpret_cast<float4*>(to) = {y[0], y[1], y[2], y[3]};
    return;
  }
  std::uint16_t bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    bits[i] =
        type == DType::f16 ? __half_as_ushort(__float2half_rn(y[i])) : __bfloat16_as_ushort(__float2bfloat16_rn(y[i]));
  }
  *reinterpret_cast<ushort4*>(to) = {bits[0], bits[1], bits[2], bits[3]};
}

// Rows `first` to first + 31 of a tile, whose products lie in shared memory: four columns a thread.
__device__ __forceinline__ void store_rows(const UnitArgs& args, const WideTile& tile, const WideShared& shared,
                                           const TableSlot* slots, int group, int first) {
  const WideColumns at{args, tile.expert, tile.column};
  const bool gate_up = args.up != nullptr;
  const int t = static_cast<int>(threadIdx.x) % kWideGroup;
  const int per_row = gate_up ? 8 : 16;  // threads
  const int c = gate_up ? t % 8 / 2 * (2 * kWideRun) + t % 2 * 4 : t % 16 * 4;
  const int weights_c = group * (kWideColumns / kWideMultiplying) + c;
  const int column = at.column(weights_c);
  const int size = args.out_type == DType::f32 ? 4 : 2;
  const bool whole = args.bias == nullptr && column + 4 <= columns_of(args.table, args.n) &&
                     reinterpret_cast<std::uintptr_t>(args.out) % (4 * size) == 0 && args.out_stride % (4 * size) == 0;
  const int rows = tile.count - first < kWideOutRows ? tile.count - first : kWideOutRows;
#pragma unroll 1
  for (int r = t / per_row; r < rows; r += kWideGroup / per_row) {
    const TableSlot slot = slots[first + r];
    if (slot.from < 0) continue;
    const float* y = &shared.out[group][r][c];
    const bool plain = shared.plain[group][first + r] != 0;
    if (whole && !plain) {
      float out[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) out[e] = gate_up ? gated(args.act, y[e], y[e + kWideRun]) : y[e];
      store_4(args.out_type, args.out + slot.to * args.out_stride + std::int64_t{column} * size, out);
      continue;
    }
#pragma unroll 1
    for (int e = 0; e < 4; ++e) {
      float out = plain ? at.plain(weights_c + e, slot.from) : y[e];
      if (gate_up) out = gated(args.act, out, plain ? at.plain(weights_c + e + kWideRun, slot.from) : y[e + kWideRun]);
      at.store(weights_c + e, slot.to, out);
    }
  }
}

// A tile of up to N rows, by one of the warpgroups that multiply.
template <DType type, int kRows, int N>
__device__ __forceinline__ void multiply_tile(const UnitArgs& args, const WideTile& tile, const TableSlot* slots,
                                              std::byte* stages, WideShared& shared, Ring<kWideStages>& ring) {
  const int group = static_cast<int>(threadIdx.x) / kWideGroup;
  const int t = static_cast<int>(threadIdx.x) % kWideGroup;
  const int lane = t % kWarp;
  const int in_group = t / kWarp * 16 + lane / 4;
  const int column = group * (kWideColumns / kWideMultiplying) + in_group;
  float y[N / 2] = {};
  int sum[N / 2] = {};
  bool plain = false;
#pragma unroll 1
  for (int c = 0; c < args.chunks; ++c, ring.next()) {
    barrier_wait(&shared.full[ring.place], ring.parity);
    shared_for_wgmma();
    const WideStage<type, kRows> stage = stage_of<type, kRows>(stages, ring.place);
    if (t < tile.count && isnan(stage.scales()[t])) plain = true;
    wide_sums<type, kRows, N>(stage, column, lane, sum);
    add_superblock<type, kRows, N>(stage, c, column, lane, y, sum);
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[ring.place]);
  }

#pragma unroll 1
  for (int first = 0; first < tile.count; first += kWideOutRows) {
    group_barrier(kCopyingBarrier + 1 + group);
    if (first == 0) shared.plain[group][t] = plain ? 1 : 0;
#pragma unroll
    for (int n = 0; n < N / 8; ++n) {
      if (8 * n / kWideOutRows * kWideOutRows != first) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        shared.out[group][8 * n % kWideOutRows + 2 * (lane % 4) + i % 2][in_group + 8 * (i / 2)] = y[4 * n + i];
      }
    }
    group_barrier(kCopyingBarrier + 1 + group);
    store_rows(args, tile, shared, slots, group, first);
  }
}

template <DType type, int kRows>
__device__ __forceinline__ void multiply_tiles(const UnitArgs& args, std::byte* stages, WideShared& shared) {
  Ring<kWideStages> ring;
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
    } else if (tile.count <= 96) {
      multiply_tile<type, kRows, 96>(args, tile, slots, stages, shared, ring);
    } else {
      multiply_tile<type, kRows, 128>(args, tile, slots, stages, shared, ring);
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(&shared.done[told.place]);
  }
}

#endif

// Where it has no body, launch bounds tell (wide_rows_built).
template <DType type, int kRows>
__global__ void __launch_bounds__(CONCLAVE_WIDE ? kWideThreads : kWarp, wide_blocks_each(kRows))
    wide_rows(const __grid_constant__ UnitArgs args, int tile_rows) {
  begin();
#if !CONCLAVE_WIDE
  static_cast<void>(tile_rows);
#else
  extern __shared__ std::byte wide_memory[];
  std::byte* stages = wide_memory + (1024U - shared_address(wide_memory) % 1024U) % 1024U;
  auto& shared = *reinterpret_cast<WideShared*>(stages + kWideStages * wide_stage_bytes(type, kRows));
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWideMultiplying * kWideGroup / kWarp;
    for (int i = 0; i < kWideStages; ++i) {
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
    fewer_registers<copying_registers(kRows)>();
    copy_tiles<type, kRows>(args, tile_rows, stages, shared);
  } else {
    more_registers<multiplying_registers(kRows)>();
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
  const LaunchPlan plan = wide_rows_plan(type, most, args.n, gate_up, room, multiprocessors);
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
