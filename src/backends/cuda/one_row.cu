#include "backends/cuda/one_row_plan.h"

#include "backends/cuda/activation.cuh"
#include "backends/cuda/bulk_copy.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/plain_dot.cuh"
#include "backends/cuda/quantize.cuh"
#include "backends/cuda/quarter_unit.cuh"

namespace conclave::cuda {
namespace {

// A lane's 64 values of a row, and the sums of its groups.
template <DType type>
struct LaneRow {
  int word[16];
  int sum[2];
  float scale;

  __device__ __forceinline__ void load(const std::int8_t* chunk, float its_scale, int t) {
    scale = its_scale;
#pragma unroll
    for (int four = 0; four < 4; ++four) {
      const uint4 x = *reinterpret_cast<const uint4*>(chunk + QuarterUnit<type>::place(t, four));
#pragma unroll
      for (int i = 0; i < 4; ++i) word[4 * four + i] = word_of(x, i);
    }
    if constexpr (is_affine(type) || level_excess(type) != 0) {
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        sum[group] = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[group] = __dp4a(word[8 * group + i], 0x01010101, sum[group]);
      }
    }
  }
};

// Of blocks of 32, what each of the lane's two adds.
template <DType type>
__device__ __forceinline__ float2 block_products(const QuarterUnit<type>& unit, const QuarterLevels<type>& levels,
                                                 const LaneRow<type>& row) {
  float term[2];
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    int dot = level_excess(type) == 0 ? 0 : -level_excess(type) * row.sum[block];
#pragma unroll
    for (int i = 0; i < 8; ++i) dot = __dp4a(levels.word[8 * block + i], row.word[8 * block + i], dot);
    term[block] = (row.scale * unit.d(block)) * static_cast<float>(dot >> QuarterUnit<type>::kShift);
  }
  return {term[0], term[1]};
}

template <int kTerms>  // of a unit
struct OneRowShared {
  __align__(16) std::int8_t made[kOneChunks * kChunk];
  float made_scale[kOneChunks];
  float2 terms[kOneWarps][(kOnePasses + 1) * kPassUnits * kTerms];
};

// All columns of a warp in shared memory, those of up behind those of gate, brought there at once.
struct HeldColumns {
  std::byte* at = nullptr;
  std::uint64_t* arrived = nullptr;

  // Columns from `first` on, by a warp that has one.
  __device__ __forceinline__ void ask(const OneRowArgs& args, const OneRowCut& cut, int first, int expert) const {
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x % kWarp == 0) {
      const int bytes = min(cut.columns, args.n - first) * static_cast<int>(args.w_column);
      const bool gate_up = args.up != nullptr;
      barrier_init(arrived, 1);
      end_barrier_init();
      expect_bytes(arrived, gate_up ? 2 * bytes : bytes);
      copy_bulk(at, args.w + expert * args.w_expert + first * args.w_column, bytes, arrived);
      if (gate_up) {
        copy_bulk(at + cut.columns * args.w_column, args.up + expert * args.up_expert + first * args.w_column, bytes,
                  arrived);
      }
    }
#endif
  }
  __device__ __forceinline__ void await() const {
#if __CUDA_ARCH__ >= 900
    __syncwarp();  // the barrier is there for all lanes
    barrier_wait(arrived, 0);
#endif
  }
};

// Block `block` of a product. kHalves: passes that a column takes. kHeld: weights come by way of `held`, else straight to
// registers.
template <DType type, int kHalves, bool kHeld = false>
__device__ __forceinline__ void one_row_block(const OneRowArgs& args, const OneRowCut& cut, unsigned block,
                                              OneRowShared<unit_terms(type)>& shared, const HeldColumns& held = {}) {
  auto& made = shared.made;
  auto& made_scale = shared.made_scale;
  auto& terms = shared.terms;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int t = lane % 4;
  const int chunks = args.chunks;
  const int units = is_block_32(type) ? args.k / 32 : chunks;  // of a column, as they are stored
  constexpr int kTerms = unit_terms(type);
  // All rows of a part follow one another: those that meet the same weights find them in the cache.
  const int part = static_cast<int>(block / static_cast<unsigned>(args.rows));
  const int row_at = static_cast<int>(block) - part * args.rows;
  // The lane's column of a pass, and its superblock of a column's first pass; lanes past the pass's columns go along.
  const int per_pass = 1 << cut.pass_shift;
  const int in_pass = kHalves == 1 ? lane / 4 * cut.by_chunks >> 8 : 0;  // lane / 4 / chunks
  const int my_column = min(in_pass, per_pass - 1);
  const int my_chunk = lane / 4 - in_pass * chunks;
  const int first = (part * kOneWarps + warp) * cut.columns;
  const bool gate_up = args.up != nullptr;
  const int passes = gate_up ? 2 * cut.passes : cut.passes;  // of gate, then of up

  // Passes come in order, `half` by half of a column. Past the last column it is the last again: computed and not used.
  using Place = typename QuarterUnit<type>::Place;
  const auto place = [&](int half) {
    return Place(kHalves == 1 ? my_chunk : min(my_chunk + half * kPassUnits, chunks - 1), t, units);
  };
  const Place places[] = {place(0), place(kHalves - 1)};
  const int my_first = min(first + my_column, args.n - 1);
  const std::byte* column = args.w + my_first * args.w_column;
  const std::byte* up_column = args.up + my_first * args.up_column;  // the first
  std::int64_t to_next = args.w_column << cut.pass_shift;
  int columns_left = args.n - 1 - first - my_column;
  const auto fetch = [&](int pass, int half, QuarterUnit<type>& unit) {
    if (pass == cut.passes) {
      column = up_column;
      to_next = args.up_column << cut.pass_shift;
      columns_left = args.n - 1 - first - my_column;
    }
    unit.load(column, places[half]);
    if (half == kHalves - 1) {
      columns_left -= per_pass;
      if (columns_left >= 0) column += to_next;
    }
  };
  int expert = 0;
  QuarterUnit<type> even;
  QuarterUnit<type> odd;
  const auto is_dead = [&] { return args.live != nullptr && row_at >= *args.live * args.top_k; };
  if (args.experts == nullptr) {
    fetch(0, 0, even);
    begin();
  } else {
    begin();
    expert = args.experts[row_at];
    if (expert < 0 || expert >= args.n_experts) return;
    if (kHeld && is_dead()) return;  // a block must not end while its copies are on their way
    if constexpr (kHeld) {
      if (first < args.n) held.ask(args, cut, first, expert);
    } else {
      column += expert * args.w_expert;
      up_column += expert * args.up_expert;
      fetch(0, 0, even);
    }
  }
  if (!kHeld && is_dead()) return;
  const int from = args.x_step == 1 ? row_at : row_at / args.x_step;
  if (args.q == nullptr) {
    // All of a warp's chunks are asked for together.
    constexpr int kEach = kHalves * kPassUnits / kOneWarps;
    const auto* x = reinterpret_cast<const std::byte*>(args.x + from * args.x_stride);
    float v[kEach][8];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      load_chunk(DType::f32, x, min(warp + i * kOneWarps, chunks - 1), args.k, lane, v[i]);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int c = warp + i * kOneWarps;
      const QuantizedLane made_lane = quantize_lane(v[i]);
      if (c < chunks) {
        reinterpret_cast<int2*>(made + c * kChunk)[lane] = make_int2(made_lane.low, made_lane.high);
        if (lane == 0) made_scale[c] = made_lane.scale;
      }
    }
    __syncthreads();
  }
  const std::int8_t* q = args.q == nullptr ? made : args.q + std::int64_t{from} * chunks * kChunk;
  const float* scale = args.q == nullptr ? made_scale : args.scale + std::int64_t{from} * chunks;
  LaneRow<type> row[kHalves];
  bool plain = false;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int c = min(my_chunk + half * kPassUnits, chunks - 1);
    row[half].load(q + c * kChunk, scale[c], t);
    plain = plain || isnan(row[half].scale);
  }
  plain = __any_sync(kAllLanes, plain);  // a warp has all chunks

  const auto take = [&](int pass, const QuarterUnit<type>& unit, const LaneRow<type>& with) {
    QuarterLevels<type> levels;
    unit.unpack(t, levels);
    float2* const to = terms[warp] + (pass * kPassUnits + lane / 4) * kTerms;
    if constexpr (is_block_32(type)) {
      to[t] = block_products<type>(unit, levels, with);
    } else {
      const float term = superblock_product<type>(unit, levels, with, t);
      if (t < (is_affine(type) ? 2 : 1)) reinterpret_cast<float*>(to)[t] = term;
    }
  };
  if constexpr (kHeld) {
    if (first >= args.n) return;
    held.await();
    unsigned from = kept_address(held.at) + my_column * static_cast<unsigned>(args.w_column);
#pragma unroll 2
    for (int pass = 0; pass < passes; ++pass, from += static_cast<unsigned>(to_next)) {
      even.load(from, places[0]);
      take(pass, even, row[0]);
    }
  } else {
#pragma unroll 1
    for (int pass = 0; pass < passes; pass += 2) {
      if (pass + 1 < passes) fetch(pass + 1, kHalves - 1, odd);
      take(pass, even, row[0]);
      if (pass + 1 >= passes) break;
      if (pass + 2 < passes) fetch(pass + 2, 0, even);
      take(pass + 1, odd, row[kHalves - 1]);
    }
  }
  __syncwarp();

  // Column `first` + lane; of gate and up, those of up a warp's columns on.
  const auto column_sum = [&](int at) {
    const int pass = kHalves == 1 ? at >> cut.pass_shift : at * kHalves;
    const float2* mine =
        terms[warp] + (pass * kPassUnits + (at - (pass << cut.pass_shift)) * (kHalves == 1 ? chunks : 0)) * kTerms;
    float y = 0.0F;
    if constexpr (is_block_32(type)) {
#pragma unroll 4
      for (int c = 0; c < chunks; ++c) {
#pragma unroll
        for (int i = 0; i < kTerms; ++i) {
          const float2 two = mine[kTerms * c + i];
          y = (y + two.x) + two.y;
        }
      }
    } else {
#pragma unroll
      for (int c = 0; c < kHalves * kPassUnits; ++c) {
        const float2 term = mine[c];  // past the last chunk: whatever lies there
        const float sum = y + term.x;
        y = c < chunks ? (is_affine(type) ? sum - term.y : sum) : y;
      }
    }
    return y;
  };
  const int my_out = first + lane;
  if (lane >= cut.columns || my_out >= args.n) return;
  const auto sum_of = [&](int at, const std::byte* w, std::int64_t stride) {
    if (!plain) return column_sum(at);
    return plain_dot<is_block_32(type)>({reinterpret_cast<const std::byte*>(args.x + from * args.x_stride), DType::f32,
                                         w + my_out * stride, type, !is_affine(type), args.k});
  };
  float y = sum_of(lane, args.w + expert * args.w_expert, args.w_column);
  if (gate_up) {
    y = gated(args.act, y, sum_of(cut.columns + lane, args.up + expert * args.up_expert, args.up_column));
  } else if (args.bias != nullptr) {
    y += args.bias[my_out];
  }
  args.out[row_at * args.out_stride + my_out] = y;
}

template <DType type, int kHalves>
__global__ void __launch_bounds__(kOneThreads, kHalves == 1 ? 7 : 5)
    one_row(const __grid_constant__ OneRowArgs args, const __grid_constant__ OneRowCut cut) {
  __shared__ OneRowShared<unit_terms(type)> shared;
  one_row_block<type, kHalves>(args, cut, blockIdx.x, shared);
}

// The same for experts, on Hopper. Weights that a warp asks for at once are more than its registers would hold.
template <DType type>
__global__ void __launch_bounds__(kOneThreads, 5)
    one_row_held(const __grid_constant__ OneRowArgs args, const __grid_constant__ OneRowCut cut) {
  extern __shared__ __align__(128) int4 held_words[];
  __shared__ OneRowShared<unit_terms(type)> shared;
  __shared__ std::uint64_t arrived[kOneWarps];
  const int warp = threadIdx.x / kWarp;
  const HeldColumns held{reinterpret_cast<std::byte*>(held_words) + warp * held_bytes(args, cut), arrived + warp};
  one_row_block<type, 1, true>(args, cut, blockIdx.x, shared, held);
}

struct SideBySide {
  OneRowCut cut[kSideBySide];
  unsigned end[kSideBySide];  // of its blocks
};

// Products of the same rows with matrices of their own.
__global__ void __launch_bounds__(kOneThreads, 7)
    one_rows(const __grid_constant__ OneRowsArgs all, const __grid_constant__ SideBySide cuts) {
  __shared__ OneRowShared<1> shared;
  const int i = blockIdx.x < cuts.end[0] ? 0 : blockIdx.x < cuts.end[1] ? 1 : 2;
  const unsigned block = blockIdx.x - (i == 0 ? 0 : cuts.end[i - 1]);
  if (all.of[i].type == DType::q4_k) {
    one_row_block<DType::q4_k, 1>(all.of[i], cuts.cut[i], block, shared);
  } else {
    one_row_block<DType::q6_k, 1>(all.of[i], cuts.cut[i], block, shared);
  }
}

OneRowCut cut_of(const OneRowArgs& args) {
  return one_row_cut(args.rows, args.n, args.chunks, args.up != nullptr);
}

template <DType type>
int launch_type(const OneRowArgs& args, const Stream& stream) {
  const OneRowCut cut = cut_of(args);
  if constexpr (!is_block_32(type)) {
    if (is_held(args)) {
      return launch(one_row_held<type>,
                    {.blocks = std::int64_t{args.rows} * cut.parts,
                     .threads = kOneThreads,
                     .shared_bytes = kOneWarps * held_bytes(args, cut)},
                    stream, args, cut);
    }
  }
  const LaunchPlan plan{.blocks = std::int64_t{args.rows} * cut.parts, .threads = kOneThreads, .wants_cache = true};
  if (args.chunks <= kPassUnits) return launch(one_row<type, 1>, plan, stream, args, cut);
  return launch(one_row<type, 2>, plan, stream, args, cut);
}

}  // namespace

int launch_one_row(const OneRowArgs& args, const Stream& stream) {
  switch (args.type) {
    case DType::q4_k:
      return launch_type<DType::q4_k>(args, stream);
    case DType::q5_k:
      return launch_type<DType::q5_k>(args, stream);
    case DType::q8_0:
      return launch_type<DType::q8_0>(args, stream);
    case DType::q4_0:
      return launch_type<DType::q4_0>(args, stream);
    case DType::mxfp4:
      return launch_type<DType::mxfp4>(args, stream);
    default:
      return launch_type<DType::q6_k>(args, stream);
  }
}

int launch_one_rows(const OneRowsArgs& args, const Stream& stream) {
  SideBySide cuts{};
  unsigned blocks = 0;
  for (int i = 0; i < kSideBySide; ++i) {
    cuts.cut[i] = cut_of(args.of[i]);
    blocks += static_cast<unsigned>(args.of[i].rows * cuts.cut[i].parts);
    cuts.end[i] = blocks;
  }
  return launch(one_rows, {.blocks = blocks, .threads = kOneThreads, .wants_cache = true}, stream, args, cuts);
}

}  // namespace conclave::cuda
