#include "backends/cuda/activation.cuh"
#include "backends/cuda/chunk_product.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/many_rows_plan.h"
#include "backends/cuda/row_tiles.cuh"
#include "backends/cuda/unit_output.cuh"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {
namespace {

constexpr int kRowTiles = 4;                  // of 8, of a warp
constexpr int kOutStride = kManyColumns + 4;  // of results in shared memory
static_assert(kManyRows * kOutStride * 4 <= 2 * stage_bytes(DType::q4_k));

// One buffer of shared memory.
template <DType type>
struct Stage {
  std::byte* at;

  __device__ std::byte* column(int c) const { return at + c * many_column_stride(type); }
  __device__ std::uint16_t* d() const {
    return reinterpret_cast<std::uint16_t*>(at + kManyColumns * many_column_stride(type));
  }
  __device__ std::byte* row(int r) const { return at + stage_weights(type) + r * kRowStride; }
  __device__ std::byte* sums(int r) const { return row(kManyRows) + r * kSumStride; }
  __device__ float* scales() const { return reinterpret_cast<float*>(sums(kManyRows)); }

  __device__ ChunkColumns<type> columns() const {
    if constexpr (is_affine(type)) {
      return {at, many_column_stride(type)};
    } else {
      return {at, at + 128, at + 192, nullptr, many_column_stride(type)};
    }
  }
  __device__ float factor_of(int c) const {
    if constexpr (is_affine(type)) return factor(columns(), c);
    return __half2float(__ushort_as_half(d()[c]));
  }
};

template <DType type>
__global__ void __launch_bounds__(kManyThreads, 2) many_rows(const __grid_constant__ UnitArgs args) {
  extern __shared__ int4 shared_words[];
  __shared__ TableSlot slots[kManyRows];
  __shared__ int plain[kManyRows];
  begin();
  const bool gate_up = args.up != nullptr;
  const int columns = gate_up ? kManyColumns / 2 : kManyColumns;  // of the output
  const unsigned column_tiles = static_cast<unsigned>(args.n + columns - 1) / static_cast<unsigned>(columns);
  const int tiles = static_cast<int>(gridDim.x / column_tiles);
#pragma unroll 1
  for (int tile_at = static_cast<int>(blockIdx.x / column_tiles);; tile_at += tiles) {
    const RowTile place = find_tile<kManyThreads>(args.table, tile_at, kManyRows, kManyFrom);
    if (place.list < 0) return;
    const UnitColumns<16> at{args, expert_of(args.table, place.list),
                             static_cast<int>(blockIdx.x % column_tiles) * columns};
    const int count = place.end_row - place.first_row;
    const int chunks = args.chunks;
    take_slots(args.table, place, slots, plain);

    const auto stage_of = [&](int c) {
      return Stage<type>{reinterpret_cast<std::byte*>(shared_words) + (c & 1) * stage_bytes(type)};
    };
    // Two threads to a column, four to a row: what each copies stays the same but for the superblock.
    const std::byte* my_column = at.address(static_cast<int>(threadIdx.x / 2));
    const int my_row = threadIdx.x / 4;
    const std::int64_t from = slots[my_row].from < 0 ? 0 : slots[my_row].from;
    const std::int8_t* my_q = args.q + from * chunks * kChunk + 64 * (threadIdx.x % 4);
    const std::uint16_t* my_sums = args.sums + from * chunks * 16 + 8 * (threadIdx.x % 4);
    const float* my_scale = args.scale + from * chunks;
    const auto copy_chunk = [&](int c) {
      const Stage<type> stage = stage_of(c);
      std::byte* to = stage.column(threadIdx.x / 2);
      if constexpr (is_affine(type)) {
#pragma unroll
        for (int i = 0; i < 6; ++i) {
          const int word = 2 * i + threadIdx.x % 2;
          if (word < block_bytes(type) / 16) copy_16(to + 16 * word, my_column + block_bytes(type) * c + 16 * word);
        }
      } else {
        const PlanesQ6K planes{chunks};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          copy_16(to + 32 * i + 16 * (threadIdx.x % 2), my_column + planes.ql(c) + 32 * i + 16 * (threadIdx.x % 2));
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          copy_16(to + 128 + 32 * i + 16 * (threadIdx.x % 2),
                  my_column + planes.qh(c) + 32 * i + 16 * (threadIdx.x % 2));
        }
        if (threadIdx.x % 2 == 0) {
          copy_16(to + 192, my_column + planes.scales(c));
        } else {
          stage.d()[threadIdx.x / 2] = __ldg(reinterpret_cast<const std::uint16_t*>(my_column + planes.d(c)));
        }
      }
      if (my_row < count) {
        std::byte* row = stage.row(my_row) + 64 * (threadIdx.x % 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) copy_16(row + 16 * i, my_q + c * kChunk + 16 * i);
        if (threadIdx.x % 4 < 2) copy_16(stage.sums(my_row) + 16 * (threadIdx.x % 4), my_sums + 16 * c);
        if (threadIdx.x % 4 == 3) copy_4(stage.scales() + my_row, my_scale + c);
      }
      end_copies();
    };

    const int warp = threadIdx.x / kWarp;
    const int lane = threadIdx.x % kWarp;
    const int column = 32 * (warp % 4);
    const int row = 32 * (warp / 4);
    float y[kTiles][kRowTiles][4] = {};

    copy_chunk(0);
    for (int c = 0; c < chunks; ++c) {
      if (c + 1 < chunks) {
        copy_chunk(c + 1);
        await_copies<1>();
      } else {
        await_copies<0>();
      }
      __syncthreads();
      const Stage<type> stage = stage_of(c);
      if (threadIdx.x < kManyRows && static_cast<int>(threadIdx.x) < count && isnan(stage.scales()[threadIdx.x])) {
        plain[threadIdx.x] = 1;
      }
      if (row < count) {  // the same for all lanes of a warp
        const ChunkColumns<type> w = stage.columns();
        const ChunkRows rows{stage.row(0), kRowStride, stage.sums(0), kSumStride};
        int sum[kTiles][kRowTiles][4];
        chunk_sums<kRowTiles>(w, column, rows, row, sum);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          unsigned mins[4];
          float d[2];
          float dmin[2];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int at = column + 16 * m + 8 * half + lane / 4;
            d[half] = stage.factor_of(at);
            if constexpr (is_affine(type)) dmin[half] = min_factor(w, at);
          }
          if constexpr (is_affine(type)) chunk_mins(w, column, m, mins);
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            float low[4];
            if constexpr (is_affine(type)) min_sums(mins, rows, row + 8 * tile, low);
            const float2 scale = *reinterpret_cast<const float2*>(stage.scales() + row + 8 * tile + 2 * (lane % 4));
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const float by = i % 2 == 0 ? scale.x : scale.y;
              float& out = y[m][tile][i];
              out = out + (by * d[i / 2]) * static_cast<float>(sum[m][tile][i]);
              if constexpr (is_affine(type)) out = out - (by * dmin[i / 2]) * low[i];
            }
          }
        }
      }
      __syncthreads();
    }

    // Through shared memory, so that rows are stored whole and the code that stores is short.
    auto* tile_out = reinterpret_cast<float*>(shared_words);  // [row][column of the 128]
    if (row < count) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int r = row + 8 * tile + 2 * (lane % 4) + i % 2;
            tile_out[r * kOutStride + column + 16 * m + 8 * (i / 2) + lane / 4] = y[m][tile][i];
          }
        }
      }
    }
    __syncthreads();
    store_tile<kManyThreads, kManyColumns>(at, slots, plain, count, tile_out, kOutStride);
    // Lists that are known not to overlap need no more tiles than there are blocks.
    if (args.table.list == nullptr) return;
    __syncthreads();
  }
}

}  // namespace

int launch_many_rows(const UnitArgs& args, const Stream& stream) {
  const LaunchPlan plan = many_rows_plan(args.type, args.table.n_slots, args.table.n_lists, args.n, args.up != nullptr);
  if (args.type == DType::q4_k) return launch(many_rows<DType::q4_k>, plan, stream, args);
  if (args.type == DType::q5_k) return launch(many_rows<DType::q5_k>, plan, stream, args);
  return launch(many_rows<DType::q6_k>, plan, stream, args);
}

}  // namespace conclave::cuda
