#include "backends/cuda/activation.cuh"
#include "backends/cuda/dense_plain.cuh"
#include "backends/cuda/held_weights.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/unit_copy.cuh"

namespace conclave::cuda {
namespace {

// A warp's rows on their way to its ring: its superblock of eight rows at a time, round after round.
struct DenseRows {
  const DenseArgs& args;
  unsigned ring;
  unsigned beside;     // the lane's place for sums or scales
  unsigned stage = 0;  // the one to fill next, in bytes
  int first;           // superblock, and the one in work
  int c;
  int from;   // the first row
  int tiles;  // of rows, and those left of this round
  int left;
  const std::int8_t* q = nullptr;
  const std::byte* other = nullptr;  // sums, or scales

  __device__ __forceinline__ DenseRows(const DenseArgs& all, const std::byte* to, int first_chunk, int first_row,
                                       int n_tiles)
      : args(all), first(first_chunk), c(first_chunk), from(first_row), tiles(n_tiles), left(n_tiles) {
    const int lane = threadIdx.x % kWarp;
    ring = shared_address(to);
    beside = ring + (lane < 16 ? dense_word(lane / 2, 16 + lane % 2) : kRowTile * kDenseRowStride + 4 * (lane % 8));
    find();
  }
  __device__ __forceinline__ void find() {
    const int lane = threadIdx.x % kWarp;
    q = args.q + (std::int64_t{from + lane / 16} * args.chunks + c) * kChunk + 16 * (lane % 16);
    if (lane < 16) {
      other = reinterpret_cast<const std::byte*>(args.sums + (std::int64_t{from + lane / 2} * args.chunks + c) * 16) +
              16 * (lane % 2);
    } else {
      other = reinterpret_cast<const std::byte*>(args.scale + std::int64_t{from + lane % 8} * args.chunks + c);
    }
  }
  // The next tile; of a warp that has none, nothing.
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
    }
    if (--left == 0) {
      left = tiles;
      c += kDenseWarps;
      if (c >= (args.cut.rounds * kDenseWarps)) c = first;  // of the next columns
      find();
    }
    stage = stage + kDenseStage == kDenseStages * kDenseStage ? 0 : stage + kDenseStage;
  }
};

// What a warp's superblock adds to the outputs of a tile of rows and takes away, in pairs.
template <DType type, class Weights, int kTiles>
__device__ __forceinline__ void multiply_rows(const Weights (&w)[kTiles], const std::byte* rows, std::byte* terms) {
  const int t = threadIdx.x % 4;
  const std::byte* row = Weights::row_of(rows);
  int sum[kTiles][2][4];
#pragma unroll
  for (int i = 0; i < 8 * kTiles; ++i) sum[i / 8][i / 4 % 2][i % 4] = Weights::none();
#pragma unroll
  for (int group = 0; group < Weights::kGroups; ++group) {
    const uint2 part = Weights::part_of(row, group);
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
      float2 term{(scale * w[j].d[i / 2]) * Weights::total(sum[j], i), 0.0F};
      if constexpr (is_affine(type)) term.y = (scale * w[j].dmin[i / 2]) * low[i];
      *reinterpret_cast<float2*>(to + j * kDenseTerms + i % 2 * kDenseTermStride + i / 2 * 64) = term;
    }
  }
}

// Block `block` of a matrix. An item is a round of a part of the columns; a step is a tile of rows of an item.
template <DType type, int kTiles>
__device__ __forceinline__ void dense_block(const DenseArgs& args, const DenseMatrix& of, int block,
                                            std::byte* shared) {
  constexpr bool kOneItem = kTiles == kDenseTiles;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int share = args.cut.share;
  const int rounds = kOneItem ? 1 : args.cut.rounds;
  const int slots = kOneItem ? 1 : args.cut.slots;
  const int first_part = block / args.cut.row_parts;
  const int row_part = block - first_part * args.cut.row_parts;
  const int items = kOneItem ? 1 : (of.parts - first_part + of.across - 1) / of.across * rounds;
  const int group = warp / share;
  const int mine = warp - group * share;
  const bool idle = group >= args.cut.groups;
  const bool gate_up = of.up != nullptr;
  const int columns = gate_up ? kTile / 2 : kTile;  // of the output, of a tile

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
  // Items come in order: the next one's weights, to the slots in turn.
  int next_part = first_part;
  int next_round = 0;
  int slot = 0;
  const auto fetch_weights = [&] {
    const int c = next_round * share + mine;
    if (!idle && c < args.chunks) {
      const unsigned to = shared_address(weights) + slot * (kTiles * tile_bytes(type)) +
                          lane / 2 * column_stride(type) + 16 * (lane % 2);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const std::byte* column = column_of((next_part * args.cut.groups + group) * kTiles + j, lane / 2);
        copy_unit<type>(to + j * tile_bytes(type), column, column + c * block_bytes(type), c, args.chunks);
      }
    }
    if constexpr (!kOneItem) {
      if (++next_round == rounds) {
        next_round = 0;
        next_part += of.across;
      }
      slot ^= 1;  // of one slot there is one item
    }
  };
#pragma unroll 1
  for (int i = 0; i < min(slots, items); ++i) fetch_weights();
  end_copies();
  begin();
  const int first_row = row_part * args.cut.row_tiles * kRowTile;
  const int n_rows = static_cast<int>(live_rows(args.live, args.rows));
  const auto tiles_to = [&](int end) { return min(args.cut.row_tiles, (end - first_row + kRowTile - 1) / kRowTile); };
  // What few rows are read does not wait for how many are alive.
  int row_tiles = tiles_to(args.rows);
  if (row_tiles >= kDenseStages) row_tiles = tiles_to(n_rows);
  const int steps = row_tiles > 0 ? items * row_tiles : 0;

  // The outputs of a tile of rows, by all threads: superblocks of a round, in order.
  const auto add_up = [&](const std::byte* from, int part, int round, int row_tile) {
    const int outputs = args.cut.groups * kTiles * kRowTile * kTile;
    const int count = min(args.chunks - round * share, share);
    const int row = first_row + row_tile * kRowTile + threadIdx.x / kTile % kRowTile;
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
      const int at_tile = part * args.cut.groups * kTiles + tile;
      if (there && isnan(y)) y = checked(args, of, column_of(at_tile, in_tile), row, y);
      const int column = at_tile * columns + in_tile;
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

  DenseRows rows(args, ring, idle ? args.chunks : mine, first_row, max(row_tiles, 1));
  // Every step has its group of copies, be it empty.
  const auto fetch_rows = [&](int step) {
    if (step < steps) rows.fetch<is_affine(type)>();
    end_copies();
  };
#pragma unroll
  for (int i = 0; i < kDenseStages - 1; ++i) fetch_rows(i);
  constexpr bool kRoom = !kOneItem;  // in registers, for digits
  Held<type, kRoom> w[kTiles];
  unsigned stage = 0;
  int c = mine;  // of the item in work
  int tile = 0;
  int with = 0;  // its slot
  int added_part = first_part;
  int added_round = 0;
  int added_tile = 0;
  // Warps that share a scheduler take turns: while one adds up what came of the step before, the other multiplies.
  const bool multiplies_first = warp >= kDenseWarps / 2;
#pragma unroll 1
  for (int step = 0; step <= steps; ++step) {
#pragma unroll 1
    for (int phase = 0; phase < 2; ++phase) {
      if ((phase == 0) == multiplies_first) {
        if (step == steps) continue;
        if (step == 0) await_copies<kDenseStages - 1>();  // weights; the rows may be on their way
        if (step > 0) await_copies<kDenseStages - 2>();
        __syncwarp();  // all lanes' copies for this step have arrived, and all lanes have read the step before
        const bool works = !idle && c < args.chunks;
        if (tile == 0) {
          if (works) {
#pragma unroll
            for (int j = 0; j < kTiles; ++j) w[j].load(weights + (with * kTiles + j) * tile_bytes(type), c);
          }
          if constexpr (!kOneItem) {
            with ^= 1;
            __syncwarp();
            if (step + slots * row_tiles < steps) fetch_weights();
          }
          if (step == 0) {
            await_copies<kDenseStages - 2>();
            __syncwarp();
          }
        }
        fetch_rows(step + kDenseStages - 1);
        if (works) {
          multiply_rows<type>(w, ring + stage, terms + (step % 2 * kDenseWarps + warp) * (kTiles * kDenseTerms));
        }
        stage = stage + kDenseStage == kDenseStages * kDenseStage ? 0 : stage + kDenseStage;
        if (++tile == row_tiles) {
          tile = 0;
          c += share;
          if (c >= rounds * share) c = mine;
        }
      } else if (step > 0) {
        add_up(terms + (step - 1) % 2 * (kDenseWarps * kTiles * kDenseTerms), added_part, added_round, added_tile);
        if (++added_tile == row_tiles) {
          added_tile = 0;
          if (++added_round == rounds) {
            added_round = 0;
            added_part += of.across;
          }
        }
      }
    }
    __syncthreads();
  }
  await_copies<0>();
}

template <int kTiles>
__global__ void __launch_bounds__(kDenseThreads, 1) dense_rows(const __grid_constant__ DenseArgs args) {
  extern __shared__ int4 shared_words[];
  auto* const shared = reinterpret_cast<std::byte*>(shared_words);
  int i = 0;
  int block = static_cast<int>(blockIdx.x);
  while (block >= args.of[i].across * args.cut.row_parts) block -= args.of[i++].across * args.cut.row_parts;
  const DenseMatrix& of = args.of[i];
  if (of.type == DType::q4_k) {
    dense_block<DType::q4_k, kTiles>(args, of, block, shared);
  } else if (of.type == DType::q5_k) {
    dense_block<DType::q5_k, kTiles>(args, of, block, shared);
  } else {
    dense_block<DType::q6_k, kTiles>(args, of, block, shared);
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
