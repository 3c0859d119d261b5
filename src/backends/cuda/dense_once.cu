#include "backends/cuda/dense_once_plan.h"
#include "backends/cuda/dense_plain.cuh"
#include "backends/cuda/held_weights.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/unit_copy.cuh"

namespace conclave::cuda {
namespace {

// Of up to four tiles of rows the compiler would unpack scales once, ahead of time: there is no room in registers.
__device__ __forceinline__ void keep_packed(unsigned& word) {
  asm volatile("" : "+r"(word));
}
template <DType type>
__device__ __forceinline__ void keep_packed(HeldWeights<type>& w) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if constexpr (is_affine(type)) {
      keep_packed(w.scales[half][0]), keep_packed(w.scales[half][1]);
    } else {
      keep_packed(w.scales[half].x), keep_packed(w.scales[half].y);
      keep_packed(w.scales[half].z), keep_packed(w.scales[half].w);
    }
  }
}

template <DType type>
__device__ __forceinline__ void keep_packed(HeldDigits<type>& /*w*/) {}

// What a warp's superblock adds to the outputs of a tile of rows and takes away, in pairs.
template <DType type, class Weights>
__device__ __forceinline__ void multiply_tile(const Weights& w, const std::byte* rows, std::byte* terms) {
  const int t = threadIdx.x % 4;
  const std::byte* row = Weights::row_of(rows);
  int sum[2][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) sum[i / 4][i % 4] = Weights::none();
#pragma unroll
  for (int group = 0; group < Weights::kGroups; ++group) w.add_group(group, Weights::part_of(row, group), sum);
  const float2 by = *reinterpret_cast<const float2*>(rows + kRowTile * kDenseRowStride + 8 * t);
  std::byte* to = terms + 2 * t * kDenseTermStride + threadIdx.x % kWarp / 4 * 8;
  float low[4];
  if constexpr (is_affine(type)) w.multiply_mins(row, low);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float scale = i % 2 == 0 ? by.x : by.y;
    float2 term{(scale * w.d[i / 2]) * Weights::total(sum, i), 0.0F};
    if constexpr (is_affine(type)) term.y = (scale * w.dmin[i / 2]) * low[i];
    *reinterpret_cast<float2*>(to + i % 2 * kDenseTermStride + i / 2 * 64) = term;
  }
}

// Of an output.
struct OncePlace {
  int tile;   // of rows
  int group;  // of warps
  int row;
  int column;
};

// Block `block` of a matrix.
template <DType type, int kWarps>
__device__ __forceinline__ void once_block(const DenseArgs& args, const DenseOnceCut& cut, const DenseMatrix& of,
                                           int block, std::byte* shared) {
  const int lane = threadIdx.x % kWarp;
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const int chunks = args.chunks;
  const int group = warp / chunks;
  const int mine = warp - group * chunks;  // superblock
  const bool idle = group >= cut.groups;
  std::byte* const own = shared + warp * cut.own_bytes;
  std::byte* const rows = shared + kWarps * cut.own_bytes;  // [tiles of rows][superblocks]
  // Past the last column it is the last again: computed and not used.
  const auto column_at = [&](int column) { return of.w + min(column, of.n - 1) * of.w_column; };
  if (!idle) {
    const std::byte* column = column_at((block * cut.groups + group) * kTile + lane / 2);
    copy_unit<type>(shared_address(own) + lane / 2 * column_stride(type) + 16 * (lane % 2), column,
                    column + mine * block_bytes(type), mine, chunks);
  }
  end_copies();

  // Where the lane's part of a tile of rows is, two rows at a time, and of their sums or scales; and where it goes.
  const std::int8_t* q = args.q + (std::int64_t{lane / 16} * chunks + mine) * kChunk + 16 * (lane % 16);
  const std::byte* other =
      lane < 16 ? reinterpret_cast<const std::byte*>(args.sums + (lane / 2 * chunks + mine) * 16) + 16 * (lane % 2)
                : reinterpret_cast<const std::byte*>(args.scale + lane % 8 * chunks + mine);
  const unsigned to = shared_address(rows) + mine * kDenseStage;
  const unsigned beside =
      to + (lane < 16 ? dense_word(lane / 2, 16 + lane % 2) : kRowTile * kDenseRowStride + 4 * (lane % 8));
  const std::int64_t two = std::int64_t{2 * kChunk} * chunks;
  const int first_copy = idle ? 4 : group;  // groups want the same, and copy a part each
  const bool copies_others = !idle && 4 % cut.groups == group;

  begin();
#pragma unroll 1
  for (int tile = 0; tile < cut.row_tiles; ++tile) {
    const unsigned stage = tile * chunks * kDenseStage;
#pragma unroll 1
    for (int i = first_copy; i < 4; i += cut.groups) {  // rows 2 i and 2 i + 1
      copy_16(to + stage + dense_word(2 * i + lane / 16, lane % 16), q + (4 * tile + i) * two);
    }
    if (copies_others) {
      const std::byte* from = other + std::int64_t{tile} * kRowTile * chunks * (lane < 16 ? 32 : 4);
      if (is_affine(type) && lane < 16) copy_16(beside + stage, from);
      if (lane >= 16 && lane < 16 + kRowTile) copy_4(beside + stage, from);
    }
    if (tile == 0) end_copies();
  }
  end_copies();
  Held<type, kWarps == kOnceFewWarps> w;  // while the rows are on their way
  await_copies<2>();
  __syncwarp();
  if (!idle) w.load(own, mine);
  const int n_rows = static_cast<int>(live_rows(args.live, args.rows));

  // What the thread adds up: the same place of some tiles, a unit each.
  constexpr int kUnitThreads = kRowTile * kTile;
  constexpr int kUnitStep = kWarps * kWarp / kUnitThreads;
  const int units = cut.row_tiles * cut.groups;
  const auto place_of = [&](int unit) {
    const int tile = unit * cut.by_groups >> 16;
    const int of_group = unit - tile * cut.groups;
    return OncePlace{.tile = tile,
                     .group = of_group,
                     .row = tile * kRowTile + static_cast<int>(threadIdx.x) / kTile % kRowTile,
                     .column = (block * cut.groups + of_group) * kTile + static_cast<int>(threadIdx.x) % kTile};
  };
  // Of the residual, what a unit is added to: asked for before its sum is there, or the number of live rows.
  const auto before_of = [&](int unit) {
    const OncePlace at = place_of(unit);
    const bool there = of.residual != nullptr && unit < units && at.row < args.rows && at.column < of.n;
    return there ? of.residual[at.row * of.residual_stride + at.column] : 0.0F;
  };
  int unit = static_cast<int>(threadIdx.x) / kUnitThreads;
  float before = before_of(unit);

#pragma unroll 1
  for (int tile = 0; tile < cut.row_tiles; ++tile) {
    if (tile == 0) await_copies<1>();
    if (tile == 1) await_copies<0>();
    if (tile < 2) __syncthreads();  // all copies of it, or of all others; and every lane has read its weights
    keep_packed(w);
    if (!idle) multiply_tile<type>(w, rows + (tile * chunks + mine) * kDenseStage, own + tile * kDenseTerms);
  }
  __syncthreads();

#pragma unroll 1
  for (; unit < units; unit += kUnitStep) {
    const OncePlace at = place_of(unit);
    const std::byte* term = shared + at.group * chunks * cut.own_bytes + at.tile * kDenseTerms +
                            at.row % kRowTile * kDenseTermStride + threadIdx.x % kTile * 8;
    const float sum_with = before;
    before = before_of(unit + kUnitStep);
    float y = 0.0F;
#pragma unroll 8
    for (int c = 0; c < chunks; ++c) {  // superblocks in order
      const float2 both = *reinterpret_cast<const float2*>(term + c * cut.own_bytes);
      y = y + both.x;
      if constexpr (is_affine(type)) y = y - both.y;
    }
    if (at.row >= n_rows || at.column >= of.n) continue;
    if (isnan(y)) y = checked(args, of, column_at(at.column), at.row, y);
    if (of.bias != nullptr) y += load_float(of.bias_type, of.bias, at.column);
    store_float(of.out_type, of.out + at.row * of.out_stride, at.column, y);
    if (of.residual != nullptr) of.residual[at.row * of.residual_stride + at.column] = sum_with + y;
  }
}

template <int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, 1) dense_once(const __grid_constant__ DenseArgs args) {
  const DenseOnceCut& cut = args.once;
  extern __shared__ int4 once_words[];
  auto* const shared = reinterpret_cast<std::byte*>(once_words);
  int i = 0;
  // Values come last and may be of q6_k, which takes longer: their blocks begin first.
  int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  const auto blocks = [&](int of) { return (args.of[of].n + kTile * cut.groups - 1) / (kTile * cut.groups); };
  while (block >= blocks(i)) block -= blocks(i++);
  const DenseMatrix& of = args.of[i];
  if (of.type == DType::q4_k) {
    once_block<DType::q4_k, kWarps>(args, cut, of, block, shared);
  } else if (of.type == DType::q5_k) {
    once_block<DType::q5_k, kWarps>(args, cut, of, block, shared);
  } else {
    once_block<DType::q6_k, kWarps>(args, cut, of, block, shared);
  }
}

}  // namespace

int launch_dense_once(const DenseArgs& args, const Stream& stream) {
  const DenseOnceCut& cut = args.once;
  const LaunchPlan plan{.blocks = dense_once_blocks(args, cut),
                        .threads = cut.warps * kWarp,
                        .shared_bytes = dense_once_shared(cut, args.chunks)};
  return cut.warps == kOnceWarps ? launch(dense_once<kOnceWarps>, plan, stream, args)
                                 : launch(dense_once<kOnceFewWarps>, plan, stream, args);
}

}  // namespace conclave::cuda
