#include "backends/cuda/activation.cuh"
#include "backends/cuda/dense_rows_plan.h"
#include "backends/cuda/held_weights.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/plain_dot.cuh"
#include "backends/cuda/unit_copy.cuh"

namespace conclave::cuda {
namespace {

// The product in floating point where a row has no int8 form; y where it has one.
static __device__ __noinline__ float checked(const DenseArgs& args, const DenseMatrix& of, const std::byte* column,
                                             int row, float y) {
  bool int8 = true;
#pragma unroll 1
  for (int c = 0; c < args.chunks; ++c) int8 = int8 && !isnan(args.scale[std::int64_t{row} * args.chunks + c]);
  if (int8) return y;
  return plain_dot({args.x + row * args.x_stride, args.x_type, column, of.type, !is_affine(of.type), args.k});
}

// A warp's rows on their way to its ring: its superblock of eight rows at a time, round after round.
struct DenseRows {
  const DenseArgs& args;
  unsigned ring;  // the lane's places in it: of values, of sums or scales
  unsigned beside;
  unsigned stage = 0;  // the one to fill next, in bytes
  int c;               // superblock
  int tiles;           // of rows
  int left;            // of this round
  const std::int8_t* q = nullptr;
  const std::byte* other = nullptr;  // sums, or scales

  __device__ __forceinline__ DenseRows(const DenseArgs& all, const std::byte* to, int first, int n_tiles)
      : args(all), c(first), tiles(n_tiles), left(n_tiles) {
    const int lane = threadIdx.x % kWarp;
    ring = shared_address(to);
    beside = ring + (lane < 16 ? dense_word(lane / 2, 16 + lane % 2) : kRowTile * kDenseRowStride + 4 * (lane % 8));
    find();
  }
  __device__ __forceinline__ void find() {
    const int lane = threadIdx.x % kWarp;
    q = args.q + (std::int64_t{lane / 16} * args.chunks + c) * kChunk + 16 * (lane % 16);
    if (lane < 16) {
      other = reinterpret_cast<const std::byte*>(args.sums + (std::int64_t{lane / 2} * args.chunks + c) * 16) +
              16 * (lane % 2);
    } else {
      other = reinterpret_cast<const std::byte*>(args.scale + std::int64_t{lane % 8} * args.chunks + c);
    }
  }
  // The next tile. Every step has its group of copies, be it empty.
  template <bool kSums>
  __device__ __forceinline__ void fetch() {
    const int lane = threadIdx.x % kWarp;
    if (c < args.chunks) {
      const std::int64_t two = std::int64_t{2 * kChunk} * args.chunks;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // Rows 2 i and 2 i + 1.
        copy_16(ring + stage + dense_word(2 * i + lane / 16, lane % 16), q + i * two);
      }
      if (kSums && lane < 16) copy_16(beside + stage, other);
      if (lane >= 16 && lane < 16 + kRowTile) copy_4(beside + stage, other);
      q += 4 * two;
      other += std::int64_t{lane < 16 ? 32 : 4} * kRowTile * args.chunks;
      if (--left == 0) {
        left = tiles;
        c += kDenseWarps;
        find();
      }
    }
    end_copies();
    stage = stage + kDenseStage == kDenseStages * kDenseStage ? 0 : stage + kDenseStage;
  }
};

// What a warp's superblock adds to the outputs of a tile of rows and takes away, in pairs.
template <DType type, int kTiles>
__device__ __forceinline__ void multiply_rows(const HeldWeights<type> (&w)[kTiles], const std::byte* rows,
                                              std::byte* terms) {
  using Held = HeldWeights<type>;
  const int t = threadIdx.x % 4;
  const std::byte* row = Held::row_of(rows);
  int sum[kTiles][2][4] = {};
#pragma unroll
  for (int group = 0; group < Held::kGroups; ++group) {
    const uint2 part = Held::part_of(row, group);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) w[j].add_group(group, part, sum[j]);
  }
  const float2 by = *reinterpret_cast<const float2*>(rows + kRowTile * kDenseRowStride + 8 * t);
  std::byte* to = terms + 2 * t * kDenseTermStride + threadIdx.x % kWarp / 4 * 8;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    float low[4];
    if constexpr (is_affine(type)) w[j].multiply_mins(row, low);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float scale = i % 2 == 0 ? by.x : by.y;
      float2 term{(scale * w[j].d[i / 2]) * static_cast<float>(Held::total(sum[j], i)), 0.0F};
      if constexpr (is_affine(type)) term.y = (scale * w[j].dmin[i / 2]) * low[i];
      *reinterpret_cast<float2*>(to + j * kDenseTerms + i % 2 * kDenseTermStride + i / 2 * 64) = term;
    }
  }
}

// Block `part` of a matrix.
template <DType type, int kTiles>
__device__ __forceinline__ void dense_block(const DenseArgs& args, const DenseMatrix& of, int part, std::byte* shared) {
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int share = args.cut.share;
  const int rounds = args.cut.rounds;
  const int slots = dense_slots(rounds);
  const int group = warp / share;
  const int mine = warp - group * share;
  const bool gate_up = of.up != nullptr;
  const int columns = gate_up ? kTile / 2 : kTile;  // of the output, of a tile
  const int first_tile = part * args.cut.groups * kTiles;

  std::byte* const ring = shared + warp * (kDenseStages * kDenseStage);
  std::byte* const all_weights = shared + kDenseWarps * (kDenseStages * kDenseStage);
  std::byte* const weights = all_weights + warp * (slots * kTiles * tile_bytes(type));
  std::byte* const terms = all_weights + kDenseWarps * (slots * kTiles * tile_bytes(type));
  auto* const kept = reinterpret_cast<float*>(terms + 2 * kDenseWarps * kTiles * kDenseTerms);

  // Past the last column it is the last again: computed and not used.
  const auto column_of = [&](int tile, int in_tile) {
    const int at = min(tile * columns + in_tile % columns, of.n - 1);
    return in_tile < columns ? of.w + at * of.w_column : of.up + at * of.up_column;
  };
  const bool idle = group >= args.cut.groups;
  const auto fetch_weights = [&](int round) {
    const int c = round * share + mine;
    if (idle || c >= args.chunks) return;
    const unsigned to = shared_address(weights) + round % slots * (kTiles * tile_bytes(type)) +
                        lane / 2 * column_stride(type) + 16 * (lane % 2);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const std::byte* column = column_of(first_tile + group * kTiles + j, lane / 2);
      copy_unit<type>(to + j * tile_bytes(type), column, column + c * block_bytes(type), c, args.chunks);
    }
  };
#pragma unroll 1
  for (int round = 0; round < slots; ++round) fetch_weights(round);
  end_copies();
  begin();
  const int n_rows = static_cast<int>(live_rows(args.live, args.rows));
  const int row_tiles = (n_rows + kRowTile - 1) / kRowTile;

  // The outputs of tile `row_tile`, by all threads: superblocks of this round, in order.
  const auto add_up = [&](const std::byte* from, int round, int row_tile) {
    const int outputs = args.cut.groups * kTiles * kRowTile * kTile;
    const int count = min(args.chunks - round * share, share);
    const int row = row_tile * kRowTile + threadIdx.x / kTile % kRowTile;
    const int in_tile = threadIdx.x % kTile;
#pragma unroll 1
    for (int i = threadIdx.x; i < outputs; i += kDenseThreads) {  // whole warps
      const int tile = i / (kRowTile * kTile);
      const int of_group = tile / kTiles;
      const std::byte* term = from + (of_group * share * kTiles + (tile - of_group * kTiles)) * kDenseTerms +
                              threadIdx.x / kTile % kRowTile * kDenseTermStride + in_tile * 8;
      float* const between = kept + row_tile * outputs + i;
      float y = round == 0 ? 0.0F : *between;
#pragma unroll
      for (int c = 0; c < kDenseWarps; ++c) {
        if (c < count) {
          const float2 both = *reinterpret_cast<const float2*>(term + c * kTiles * kDenseTerms);
          y = y + both.x;
          if constexpr (is_affine(type)) y = y - both.y;
        }
      }
      if (round + 1 < rounds) {
        *between = y;
        continue;
      }
      const bool there = row < n_rows;
      if (there && isnan(y)) y = checked(args, of, column_of(first_tile + tile, in_tile), row, y);
      const int column = (first_tile + tile) * columns + in_tile;
      bool stores = there && column < of.n;
      if (gate_up) {
        y = gated(of.act, y, __shfl_xor_sync(kAllLanes, y, kTile / 2));
        stores = stores && in_tile < kTile / 2;
      }
      if (!stores) continue;
      if (of.bias != nullptr) y += load_float(of.bias_type, of.bias, column);
      store_float(of.out_type, of.out + row * of.out_stride, column, y);
    }
  };

  DenseRows rows(args, ring, idle ? args.chunks : mine, row_tiles);
  if (row_tiles > 0) {
#pragma unroll
    for (int i = 0; i < kDenseStages - 1; ++i) rows.fetch<is_affine(type)>();
  }
  unsigned stage = 0;
  int half = 0;  // of the terms
#pragma unroll 1
  for (int round = 0; round < (row_tiles > 0 ? rounds : 0); ++round) {
    const int c = round * share + mine;
    const bool works = !idle && c < args.chunks;
    if (round < slots) {
      await_copies<kDenseStages - 1>();  // the rows may be on their way
    } else {
      await_copies<0>();
    }
    __syncwarp();
    HeldWeights<type> w[kTiles];
    if (works) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) w[j].load(weights + (round % slots * kTiles + j) * tile_bytes(type), c);
    }
    __syncwarp();
    if (round + slots < rounds) fetch_weights(round + slots);
#pragma unroll 1
    for (int tile = 0; tile < row_tiles; ++tile) {
      await_copies<kDenseStages - 2>();
      __syncwarp();  // all lanes' copies for this step have arrived, and all lanes have read the step before
      rows.fetch<is_affine(type)>();
      std::byte* const to = terms + half * (kDenseWarps * kTiles * kDenseTerms);
      if (works) multiply_rows<type, kTiles>(w, ring + stage, to + warp * (kTiles * kDenseTerms));
      __syncthreads();
      add_up(to, round, tile);
      half ^= 1;
      stage = stage + kDenseStage == kDenseStages * kDenseStage ? 0 : stage + kDenseStage;
    }
  }
  await_copies<0>();
}

template <int kTiles>
__global__ void __launch_bounds__(kDenseThreads, 1) dense_rows(const __grid_constant__ DenseArgs args) {
  extern __shared__ int4 shared_words[];
  auto* const shared = reinterpret_cast<std::byte*>(shared_words);
  int i = 0;
  unsigned part = blockIdx.x;
  while (part >= args.of[i].blocks) part -= args.of[i++].blocks;
  const DenseMatrix& of = args.of[i];
  if (of.type == DType::q4_k) {
    dense_block<DType::q4_k, kTiles>(args, of, static_cast<int>(part), shared);
  } else if (of.type == DType::q5_k) {
    dense_block<DType::q5_k, kTiles>(args, of, static_cast<int>(part), shared);
  } else {
    dense_block<DType::q6_k, kTiles>(args, of, static_cast<int>(part), shared);
  }
}

}  // namespace

int launch_dense_rows(const DenseArgs& args, const Stream& stream) {
  const LaunchPlan plan = dense_rows_plan(args);
  if (args.cut.tiles == 1) return launch(dense_rows<1>, plan, stream, args);
  if (args.cut.tiles == 2) return launch(dense_rows<2>, plan, stream, args);
  return launch(dense_rows<3>, plan, stream, args);
}

}  // namespace conclave::cuda
