#include "backends/cuda/activation.cuh"
#include "backends/cuda/chunk_product.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/unit_output.cuh"
#include "backends/cuda/weight_planes.h"
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

// Gate and up alternate every 8 columns: a tile of 16 has 8 of each.
constexpr int kRun = 8;
using WideColumns = UnitColumnsOf<kRun>;

#if CONCLAVE_WIDE

// The kernel starts with 168 for every thread.
constexpr int kCopyingRegisters = 56;
constexpr int kMultiplyingRegisters = 224;
static_assert(kCopyingRegisters + kWideMultiplying * kMultiplyingRegisters == 3 * 168);

template <DType type>
struct WideStage {
  std::byte* at;

  // 16-byte word `p` of row r.
  __device__ __forceinline__ std::byte* row(int r, int p) const {
    return at + p / 8 * kWideHalf + r * 128 + ((p ^ r) & 7) * 16;
  }
  __device__ __forceinline__ std::byte* column(int c) const {
    return at + 2 * kWideHalf + c * wide_column_stride(type);
  }
  __device__ __forceinline__ std::byte* sums(int r) const { return at + wide_sums_at(type) + r * kWideSumStride; }
  __device__ __forceinline__ std::byte* d(int c) const { return at + wide_sums_at(type) + c * 4; }
  __device__ __forceinline__ float* scales() const { return reinterpret_cast<float*>(at + wide_scales_at(type)); }
};

template <DType type>
__device__ __forceinline__ WideStage<type> stage_of(std::byte* stages, int place) {
  return {stages + place * wide_stage_bytes(type)};
}

// One warpgroup: finds tiles, and copies their superblocks. Four threads to a column and to a row, four of each.
template <DType type>
__device__ __forceinline__ void copy_tiles(const UnitArgs& args, std::byte* stages, WideShared& shared) {
  const int t = static_cast<int>(threadIdx.x) % kWideGroup;
  const int quarter = t % 4;
  WideTiles tiles{args, t};
  Ring<kWideStages> ring;
  Ring<2> told;
  const int chunks = args.chunks;
#pragma unroll 1
  for (;; told.next()) {
    const WideTile tile = tiles.take(args.table, shared);
    barrier_wait(&shared.done[told.place], told.parity ^ 1U);
    TableSlot* slots = shared.slots[told.place];
    if (tile.list >= 0) {
      slots[t] = t < tile.count ? slot_of(args.table, tile.list, tile.first_row + t) : TableSlot{-1, -1};
    }
    if (t == 0) shared.tile[told.place] = tile;
    group_barrier(kCopyingBarrier);
    barrier_arrive(&shared.known[told.place]);
    if (tile.list < 0) break;

    const WideColumns at{args, expert_of(args.table, tile.list), tile.column};
    const std::byte* columns[4];
    int from[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      columns[i] = at.address(t / 4 + 32 * i) + 16 * quarter;
      const int row = slots[t / 4 + 32 * i].from;
      from[i] = row < 0 ? 0 : row;
    }
#pragma unroll 1
    for (int c = 0; c < chunks; ++c, ring.next()) {
      barrier_wait(&shared.empty[ring.place], ring.parity ^ 1U);
      const WideStage<type> stage = stage_of<type>(stages, ring.place);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        std::byte* to = stage.column(t / 4 + 32 * i) + 16 * quarter;
        if constexpr (is_affine(type)) {
          constexpr int kWords = block_bytes(type) / 16;
          const std::byte* block = columns[i] + std::int64_t{block_bytes(type)} * c;
          copy_16(to, block);
          copy_16(to + 64, block + 64);
          if (8 + quarter < kWords) copy_16(to + 128, block + 128);
        } else {
          const PlanesQ6K planes{chunks};
          copy_16(to, columns[i] + planes.ql(c));
          copy_16(to + 64, columns[i] + planes.ql(c) + 64);
          copy_16(to + 128, columns[i] + planes.qh(c));
          if (quarter == 0) copy_16(to + 192, columns[i] + planes.scales(c));
          // The word that d is in; the column goes on for whole 16-byte words.
          if (quarter == 3) copy_4(stage.d(t / 4 + 32 * i), columns[i] - 16 * quarter + planes.d(c & ~1));
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = t / 4 + 32 * i;
        if (r >= tile.count) break;
        const std::int64_t place = std::int64_t{from[i]} * chunks + c;
        const std::int8_t* q = args.q + place * kChunk + 16 * quarter;
#pragma unroll
        for (int p = 0; p < 4; ++p) copy_16(stage.row(r, 4 * p + quarter), q + 64 * p);
        if (is_affine(type) && quarter < 2) {
          copy_16(stage.sums(r) + 16 * quarter, args.sums + place * 16 + 8 * quarter);
        }
        if (quarter == 3) copy_4(stage.scales() + r, args.scale + place);
      }
      barrier_arrive_with_copies(&shared.full[ring.place]);
    }
  }
  end_copies();
  await_copies<0>();
}

// 64 columns times N rows of one superblock: exact sums.
template <DType type, int N>
__device__ __forceinline__ void wide_sums(const WideStage<type>& stage, int column, int lane, int (&sum)[N / 2]) {
  const WideLevels<type> levels{stage.column(column), wide_column_stride(type), lane};
  const unsigned rows = shared_address(stage.at);
  const auto rows_of = [&](int step) { return rows_descriptor(rows + step / 4 * kWideHalf, step % 4); };
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
template <DType type, int N>
__device__ __forceinline__ void add_superblock(const WideStage<type>& stage, int c, int column, int lane,
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

// Rows `first` to first + 31 of a tile of `count`, whose products lie in shared memory: four columns a thread.
__device__ __forceinline__ void store_rows(const UnitArgs& args, const WideColumns& at, const WideShared& shared,
                                           const TableSlot* slots, int group, int first, int count) {
  const bool gate_up = args.up != nullptr;
  const int first_c = group * (kWideColumns / kWideMultiplying);
  const int per_row = gate_up ? 8 : 16;
  const int size = args.out_type == DType::f32 ? 4 : 2;
  const int rows = count - first < kWideOutRows ? count - first : kWideOutRows;
  const int columns = columns_of(args.table, args.n);
  const bool fours = args.bias == nullptr && reinterpret_cast<std::uintptr_t>(args.out) % (4 * size) == 0 &&
                     args.out_stride % (4 * size) == 0;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % kWideGroup; i < rows * per_row; i += kWideGroup) {
    const int r = i / per_row;
    const int c = gate_up ? i % per_row / 2 * (2 * kRun) + i % 2 * 4 : i % per_row * 4;
    const TableSlot slot = slots[first + r];
    if (slot.from < 0) continue;
    const float* y = &shared.out[group][r][c];
    const bool plain = shared.plain[group][first + r] != 0;
    const int column = at.column(first_c + c);
    if (fours && !plain && column + 4 <= columns) {
      float out[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) out[e] = gate_up ? gated(args.act, y[e], y[e + kRun]) : y[e];
      store_4(args.out_type, args.out + slot.to * args.out_stride + column * size, out);
      continue;
    }
#pragma unroll 1
    for (int e = 0; e < 4; ++e) {
      float out = plain ? at.plain(first_c + c + e, slot.from) : y[e];
      if (gate_up) out = gated(args.act, out, plain ? at.plain(first_c + c + e + kRun, slot.from) : y[e + kRun]);
      at.store(first_c + c + e, slot.to, out);
    }
  }
}

// A tile of up to N rows, by one of the warpgroups that multiply.
template <DType type, int N>
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
    const WideStage<type> stage = stage_of<type>(stages, ring.place);
    if (t < tile.count && isnan(stage.scales()[t])) plain = true;
    wide_sums<type, N>(stage, column, lane, sum);
    add_superblock<type, N>(stage, c, column, lane, y, sum);
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[ring.place]);
  }

  const WideColumns at{args, expert_of(args.table, tile.list), tile.column};
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
    store_rows(args, at, shared, slots, group, first, tile.count);
  }
}

template <DType type>
__device__ __forceinline__ void multiply_tiles(const UnitArgs& args, std::byte* stages, WideShared& shared) {
  Ring<kWideStages> ring;
  Ring<2> told;
#pragma unroll 1
  for (;; told.next()) {
    barrier_wait(&shared.known[told.place], told.parity);
    const WideTile tile = shared.tile[told.place];
    if (tile.list < 0) return;
    const TableSlot* slots = shared.slots[told.place];
    if (tile.count <= 32) {
      multiply_tile<type, 32>(args, tile, slots, stages, shared, ring);
    } else if (tile.count <= 64) {
      multiply_tile<type, 64>(args, tile, slots, stages, shared, ring);
    } else if (tile.count <= 96) {
      multiply_tile<type, 96>(args, tile, slots, stages, shared, ring);
    } else {
      multiply_tile<type, 128>(args, tile, slots, stages, shared, ring);
    }
    __syncwarp();
    if (threadIdx.x % kWarp == 0) barrier_arrive(&shared.done[told.place]);
  }
}

#endif

// Where it has no body, launch bounds tell (wide_rows_built).
template <DType type>
__global__ void __launch_bounds__(CONCLAVE_WIDE ? kWideThreads : kWarp, 1)
    wide_rows(const __grid_constant__ UnitArgs args) {
  begin();
#if CONCLAVE_WIDE
  extern __shared__ std::byte wide_memory[];
  std::byte* stages = wide_memory + (1024U - shared_address(wide_memory) % 1024U) % 1024U;
  auto& shared = *reinterpret_cast<WideShared*>(stages + kWideStages * wide_stage_bytes(type));
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
    fewer_registers<kCopyingRegisters>();
    copy_tiles<type>(args, stages, shared);
  } else {
    more_registers<kMultiplyingRegisters>();
    multiply_tiles<type>(args, stages, shared);
  }
#endif
}

}  // namespace

bool wide_rows_built() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, wide_rows<DType::q4_k>) == cudaSuccess &&
         attributes.maxThreadsPerBlock >= kWideThreads;
}

int launch_wide_rows(const UnitArgs& args, int multiprocessors, const Stream& stream) {
  const LaunchPlan plan =
      wide_rows_plan(args.type, args.table.n_slots, args.table.n_lists, args.n, args.up != nullptr, multiprocessors);
  if (args.type == DType::q4_k) return launch(wide_rows<DType::q4_k>, plan, stream, args);
  if (args.type == DType::q5_k) return launch(wide_rows<DType::q5_k>, plan, stream, args);
  return launch(wide_rows<DType::q6_k>, plan, stream, args);
}

}  // namespace conclave::cuda
