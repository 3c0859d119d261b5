#include "backends/cuda/activation.cuh"
#include "backends/cuda/block_rows_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/mma.cuh"
#include "backends/cuda/plane_levels.cuh"
#include "backends/cuda/row_tiles.cuh"
#include "backends/cuda/unit_output.cuh"

namespace conclave::cuda {
namespace {

// Sums start at the bits of 1.5 2^23, so that what they become is that number plus the sum, as a float: no conversion.
// Of levels 16 times too large it is 1.5 2^19. A sum is below 2^22: 32 * 128 * 127.
template <DType type>
inline constexpr int kStartBits = 0x4B400000 - (level_shift(type) << 23);
template <DType type>
inline constexpr float kStart = 12582912.0F / (1 << level_shift(type));

// One buffer of shared memory.
template <DType type, bool few>
struct BlockStage {
  std::byte* at;

  __device__ std::byte* column(int c) const { return at + c * block_column_stride(type); }
  __device__ std::byte* scales(int c) const { return at + block_scales_at(type, few) + c * 8 * scale_bytes(type); }
  __device__ std::byte* row(int r) const { return at + block_rows_at(type, few) + r * kBlockRowStride; }
  __device__ float* row_scales() const { return reinterpret_cast<float*>(row(block_shape(type, few).rows)); }
};

// What blocks 2 pair and 2 pair + 1 of a chunk add to 16 columns from `column` on and all rows.
template <DType type, bool few, int kGroups>
__device__ __forceinline__ void add_two_blocks(const BlockStage<type, few>& stage, int column, int pair, int count,
                                               int lane, const float2 (&by)[kGroups][2], float (&y)[kGroups][2][4]) {
  const std::byte* levels = stage.column(column + lane % 16) + 16 * (lane / 16);
  const std::byte* rows = stage.row(lane % 8 + 8 * (lane / 16)) + 16 * (lane / 8 % 2);
  unsigned words[4];  // of both blocks
  if constexpr (type != DType::q8_0) load_tiles(words, levels + 32 * pair);
  unsigned scales[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    scales[half] = reinterpret_cast<const ScalePair<type>*>(stage.scales(column + 8 * half + lane / 4))[pair];
  }
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    unsigned a[4];
    if constexpr (type == DType::q8_0) {
      load_tiles(a, levels + 64 * pair + 32 * block);
    } else {
      split_levels<type>(words[2 * block], a[0], a[2]);
      split_levels<type>(words[2 * block + 1], a[1], a[3]);
#pragma unroll
      for (unsigned& four : a) four = exact_levels<type>(four);
    }
    const float d[2] = {scale_of<type>(scales[0], block), scale_of<type>(scales[1], block)};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group > 0 && 16 * group >= count) break;  // the same for all lanes
      unsigned b[4];
      load_tiles(b, rows + 16 * group * kBlockRowStride + 64 * pair + 32 * block);
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        int sum[4];
        mma_s8_k32(sum, a, b[2 * tile], b[2 * tile + 1], kStartBits<type>);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float scale = i % 2 == 0 ? by[group][tile].x : by[group][tile].y;
          float& out = y[group][tile][i];
          out = out + (scale * d[i / 2]) * (__int_as_float(sum[i]) - kStart<type>);
        }
      }
    }
  }
}

template <DType type, bool few>
__global__ void __launch_bounds__(block_shape(type, few).threads(), block_shape(type, few).at_once)
    block_rows(const __grid_constant__ UnitArgs args) {
  constexpr BlockShape kShape = block_shape(type, few);
  constexpr int kThreads = kShape.threads();
  constexpr int kColumns = kShape.columns;
  constexpr int kRows = kShape.rows;
  constexpr int kGroups = kRows / 16;        // of 16 rows
  constexpr int kOutStride = kColumns + 4;   // of results in shared memory
  constexpr int kPerRow = kThreads / kRows;  // threads that copy a row; two copy a column
  static_assert(kRows * kOutStride * 4 <= block_shared_bytes(type, few) && kColumns * 2 == kThreads);
  extern __shared__ int4 shared_words[];
  __shared__ TableSlot slots[kRows];
  __shared__ int plain[kRows];
  begin();
  const bool gate_up = args.up != nullptr;
  const int columns = gate_up ? kColumns / 2 : kColumns;  // of the output
  const unsigned column_tiles = static_cast<unsigned>(args.n + columns - 1) / static_cast<unsigned>(columns);
  const int tiles = static_cast<int>(gridDim.x / column_tiles);
#pragma unroll 1
  for (int tile_at = static_cast<int>(blockIdx.x / column_tiles);; tile_at += tiles) {
    const RowTile place = find_tile<kThreads>(args.table, tile_at, kRows, 1);
    if (place.list < 0) return;
    const UnitColumns<16, true> at{args, expert_of(args.table, place.list),
                                   static_cast<int>(blockIdx.x % column_tiles) * columns};
    const int count = place.end_row - place.first_row;
    const int chunks = args.chunks;
    take_slots(args.table, place, slots, plain);

    const auto stage_of = [&](int c) {
      return BlockStage<type, few>{reinterpret_cast<std::byte*>(shared_words) +
                                   c % kShape.stages * block_stage_bytes(type, few)};
    };
    // What each thread copies stays the same but for the chunk.
    const int my_column = threadIdx.x / 2;
    const int odd = threadIdx.x % 2;
    const std::byte* my_levels = at.address(my_column) + 16 * odd;
    const std::byte* my_scales = at.address(my_column) + Planes32{type, args.k / 32}.scales(0);
    const int level_words = args.k / 32 * (level_bytes(type) / 16);  // of 16 bytes, of a column
    const int my_row = threadIdx.x / kPerRow;
    const int part = threadIdx.x % kPerRow;
    const std::int64_t from = slots[my_row].from < 0 ? 0 : slots[my_row].from;
    const std::int8_t* my_q = args.q + from * chunks * kChunk + 16 * part;
    const float* my_scale = args.scale + from * chunks;
    const auto copy_chunk = [&](int c) {
      constexpr int kWords = level_bytes(type) / 2;  // of a chunk
      if (c < chunks) {
        const BlockStage<type, few> stage = stage_of(c);
        std::byte* to = stage.column(my_column) + 16 * odd;
#pragma unroll
        for (int i = 0; i < kWords; i += 2) {
          if (c * kWords + i + odd < level_words) copy_16(to + 16 * i, my_levels + 16 * (c * kWords + i));
        }
        if (odd == 0) {
          if constexpr (scale_bytes(type) == 2) {
            copy_16(stage.scales(my_column), my_scales + 16 * c);
          } else {
            copy_8(shared_address(stage.scales(my_column)), my_scales + 8 * c);
          }
        }
        if (my_row < count) {
          std::byte* row = stage.row(my_row) + 16 * part;
#pragma unroll
          for (int i = 0; i < kChunk / 16; i += kPerRow) copy_16(row + 16 * i, my_q + c * kChunk + 16 * i);
          if (part == kPerRow - 1) copy_4(stage.row_scales() + my_row, my_scale + c);
        }
      }
      end_copies();
    };

    const int lane = threadIdx.x % kWarp;
    const int column = 16 * (threadIdx.x / kWarp);
    float y[kGroups][2][4] = {};  // rows 16 group + 8 tile + 2 (lane % 4) + i % 2, columns lane / 4 + 8 (i / 2)

#pragma unroll 1
    for (int c = 0; c + 1 < kShape.stages; ++c) copy_chunk(c);
#pragma unroll 1
    for (int c = 0; c < chunks; ++c) {
      await_copies<kShape.stages - 2>();
      __syncthreads();  // and the buffer of the chunk before is free
      copy_chunk(c + kShape.stages - 1);
      const BlockStage<type, few> stage = stage_of(c);
      if (static_cast<int>(threadIdx.x) < count && isnan(stage.row_scales()[threadIdx.x])) plain[threadIdx.x] = 1;
      float2 by[kGroups][2];
#pragma unroll
      for (int i = 0; i < 2 * kGroups; ++i) {
        by[i / 2][i % 2] = *reinterpret_cast<const float2*>(stage.row_scales() + 8 * i + 2 * (lane % 4));
      }
      const int pairs = min(4, (args.k / 32 - 8 * c + 1) / 2);
#pragma unroll(few ? 4 : 1)
      for (int pair = 0; pair < pairs; ++pair) {
        add_two_blocks<type, few, kGroups>(stage, column, pair, count, lane, by, y);
      }
    }
    __syncthreads();

    // Through shared memory, so that rows are stored whole and the code that stores is short.
    auto* tile_out = reinterpret_cast<float*>(shared_words);  // [row][column of the block]
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (16 * group >= count) break;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = 16 * group + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        tile_out[r * kOutStride + column + 8 * (i / 2 % 2) + lane / 4] = y[group][i / 4][i % 4];
      }
    }
    __syncthreads();
    store_tile<kThreads, kColumns>(at, slots, plain, count, tile_out, kOutStride);
    // Lists that are known not to overlap need no more tiles than there are blocks.
    if (args.table.list == nullptr) return;
    __syncthreads();
  }
}

template <DType type>
int launch_type(const UnitArgs& args, bool few, const Stream& stream) {
  const LaunchPlan plan =
      block_rows_plan(type, few, args.table.n_slots, args.table.n_lists, args.n, args.up != nullptr);
  return launch(few ? block_rows<type, true> : block_rows<type, false>, plan, stream, args);
}

}  // namespace

int launch_block_rows(const UnitArgs& args, bool few, const Stream& stream) {
  if (args.type == DType::q8_0) return launch_type<DType::q8_0>(args, few, stream);
  if (args.type == DType::q4_0) return launch_type<DType::q4_0>(args, few, stream);
  return launch_type<DType::mxfp4>(args, few, stream);
}

}  // namespace conclave::cuda
