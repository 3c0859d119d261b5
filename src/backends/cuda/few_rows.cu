#include "backends/cuda/activation.cuh"
#include "backends/cuda/active_lists.cuh"
#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/lane_product.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/quantize.cuh"
#include "backends/cuda/unit_output.cuh"

namespace conclave::cuda {
namespace {

// Superblock c of the 16 columns of tile `tile`, in words of 16 bytes.
template <DType type>
__device__ __forceinline__ void copy_tile(const UnitArgs& args, int expert, int first_column, int tile, int c,
                                          std::byte* to) {
  constexpr int kWords = tile_bytes(type) / 16;
  constexpr int kColumnWords = kWords / kTile;
  const UnitColumns<kTile / 2> at{args, expert, first_column};
#pragma unroll
  for (int j = 0; j < (kWords + kWarp - 1) / kWarp; ++j) {
    const int word = static_cast<int>(threadIdx.x % kWarp) + kWarp * j;
    if (kWords % kWarp != 0 && word >= kWords) break;
    const int of = word / kColumnWords;
    const int w = word % kColumnWords;
    const std::byte* column = at.address(kTile * tile + of);
    if constexpr (is_affine(type)) {
      copy_16(to + 16 * word, column + block_bytes(type) * c + 16 * w);
    } else {
      const PlanesQ6K planes{args.chunks};
      const std::int64_t from = w < 8    ? planes.ql(c) + 16 * w
                                : w < 12 ? planes.qh(c) + 16 * (w - 8)
                                : w < 13 ? planes.scales(c)
                                         : planes.d(c) / 16 * 16;
      copy_16(to + (w < 13 ? of * 208 + 16 * w : kTile * 208 + 16 * of), column + from);
    }
  }
}

// Chunk c of up to eight rows as int8, made here or taken from the bank. Lane l names row l / 4, and gets its scale.
template <DType type>
__device__ __forceinline__ float stage_rows(const UnitArgs& args, int n_rows, int from, int c, std::byte* to) {
  using W = LaneWeights<type>;
  const int lane = threadIdx.x % kWarp;
  float scale = 0.0F;
  __syncwarp();
#pragma unroll 1
  for (int r = 0; r < n_rows; ++r) {
    const std::int64_t row = max(__shfl_sync(kAllLanes, from, 4 * r), 0);
    QuantizedLane made;
    if (args.q != nullptr) {
      const std::int64_t place = row * args.chunks + c;
      const int2 words = reinterpret_cast<const int2*>(args.q + place * kChunk)[lane];
      made = {words.x, words.y, args.scale[place]};
    } else {
      float v[8];
      load_chunk(args.x_type, args.x + row * args.x_stride, c, std::int64_t{args.chunks} * kChunk, lane, v);
      made = quantize_lane(v);
    }
    *reinterpret_cast<int2*>(to + r * W::kRowStride + W::place(8 * lane)) = make_int2(made.low, made.high);
    if (lane / 4 == r) scale = made.scale;
  }
  __syncwarp();
  return scale;
}

// What superblock c of a tile adds to its outputs.
template <DType type>
__device__ __forceinline__ void multiply_tile(const std::byte* tile, int c, const std::byte* rows, int n_rows,
                                              float scale, float2* terms) {
  const int lane = threadIdx.x % kWarp;
  const LaneWeights<type> w(tile, c);
  int sum[4];
  int low[4];
  w.multiply(rows, sum, low);
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int r = 2 * (lane % 4) + e % 2;
    const float by = __shfl_sync(kAllLanes, scale, 4 * r);
    float2 term{(by * w.d(e / 2)) * static_cast<float>(sum[e]), 0.0F};
    if constexpr (is_affine(type)) term.y = (by * w.dmin(e / 2)) * static_cast<float>(low[e]);
    if (r < n_rows) terms[r * kTermStride + lane / 4 + 8 * (e / 2)] = term;
  }
}

// An output takes what `count` superblocks add to it. `plain`: one of them says that the row has no int8 form.
template <DType type>
__device__ __forceinline__ void add_terms(const float2* terms, const float* scales, int count, float& y, bool& plain) {
#pragma unroll
  for (int k = 0; k < kMaxSegment; ++k) {
    if (k >= count) break;
    const float2 add = terms[k * kWarpTerms];
    plain = plain || isnan(scales[k * kFewRows]);
    y = y + add.x;
    if constexpr (is_affine(type)) y = y - add.y;
  }
}

// All lanes of a warp together: with gate and up, lanes 8 apart have the two.
__device__ __forceinline__ void store_output(const UnitArgs& args, const UnitColumns<kTile / 2>& at,
                                             const TableSlot& slot, int column, float y, bool plain) {
  if (plain && slot.from >= 0) y = at.plain(column, slot.from);
  if (args.up != nullptr) {
    const float up = __shfl_down_sync(kAllLanes, y, kTile / 2);
    if (column % kTile >= kTile / 2) return;
    y = gated(args.act, y, up);
  }
  if (slot.from >= 0) at.store(column, slot.to, y);
}

template <DType type>
__global__ void __launch_bounds__(kFewMaxThreads, 2) few_rows(const __grid_constant__ UnitArgs args) {
  extern __shared__ int4 shared_words[];
  __shared__ ActiveLists active;
  constexpr int kAhead = tiles_ahead(type);
  constexpr int kTileBytes = tile_bytes(type);
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int n_warps = static_cast<int>(blockDim.x) / kWarp;
  const int chunks = args.chunks;
  const int segment = few_segment(chunks);
  const int segments = (chunks + segment - 1) / segment;
  const int tiles = few_tiles(chunks);
  const int my_tile = warp / segment;
  const int my_chunk = warp - my_tile * segment;
  const int columns = few_columns(chunks, args.up != nullptr);
  const int parts = (args.n + columns - 1) / columns;

  auto* const shared = reinterpret_cast<std::byte*>(shared_words);
  std::byte* const ring = shared + warp * ((kAhead + 1) * kTileBytes);
  std::byte* const rows_q = shared + n_warps * ((kAhead + 1) * kTileBytes) + warp * (kFewRows * kLaneRowStride);
  auto* const terms =
      reinterpret_cast<float2*>(shared + n_warps * ((kAhead + 1) * kTileBytes + kFewRows * kLaneRowStride));
  auto* const scales = reinterpret_cast<float*>(terms + 2 * n_warps * kWarpTerms);
  // terms: [pass % 2][warp][row][column], scales: [pass % 2][warp][row]

  // Step s of a run is superblock s % segments of part s / segments, each warp its own. Its tile is copied in words of 16
  // bytes. Every step has its group of copies, be it empty.
  const auto fetch = [&](int expert, int step, int end_step) {
    const int part = segments == 1 ? step : step / segments;
    const int c = (step - part * segments) * segment + my_chunk;
    if (step < end_step && c < chunks)
      copy_tile<type>(args, expert, part * columns, my_tile, c, ring + step % (kAhead + 1) * kTileBytes);
    end_copies();
  };
  const auto fetch_first = [&](int expert, int first_step, int end_step) {
#pragma unroll
    for (int s = 0; s < kAhead; ++s) fetch(expert, first_step + s, end_step);
  };

  // Blocks have equal runs of all (list, part), one after another. The first weights of one matrix are fetched before
  // anything is waited for.
  const bool one_matrix = args.table.begin == nullptr;
  const auto first_of = [&](unsigned block, int n_lists) {
    return static_cast<int>(static_cast<std::uint64_t>(static_cast<unsigned>(n_lists) * parts) * block / gridDim.x);
  };
  if (one_matrix) fetch_first(0, first_of(blockIdx.x, 1) * segments, first_of(blockIdx.x + 1, 1) * segments);
  begin();
  int pass = 0;
  int out_warp = 0;  // the first of those that sum and store this time
#pragma unroll 1
  for (int first_list = 0; first_list < args.table.n_lists; first_list += kListed) {
    if (!one_matrix) active.find(args.table, first_list);
    const int n_lists = one_matrix ? 1 : active.count;
    const int end_item = first_of(blockIdx.x + 1, n_lists);
#pragma unroll 1
    for (int item = first_of(blockIdx.x, n_lists); item < end_item;) {
      const int place = item / parts;
      const int list = one_matrix ? 0 : active.list[place];
      const int first_part = item - place * parts;
      const int end_part = min(parts, first_part + end_item - item);
      item += end_part - first_part;
      const RowRange range = range_of(args.table, list);
      if (range.end <= range.begin || (args.most_rows != 0 && range.end - range.begin > args.most_rows)) continue;
      const int expert = expert_of(args.table, list);
      const int end_step = end_part * segments;
#pragma unroll 1
      for (int i = range.begin; i < range.end; i += kFewRows) {
        if (!one_matrix || i > range.begin) fetch_first(expert, first_part * segments, end_step);
        const int n_rows = min(range.end - i, kFewRows);
        // Lanes 4 r .. 4 r + 3 have row r.
        const int from = lane / 4 < n_rows ? slot_of(args.table, list, i + lane / 4).from : -1;
        float scale = 0.0F;
        if (segments == 1) scale = stage_rows<type>(args, n_rows, from, my_chunk, rows_q);
        const int n_out = n_rows * tiles * kTile;
        float y = 0.0F;
        bool plain = false;
#pragma unroll 1
        for (int step = first_part * segments; step < end_step; ++step) {
          const int part = segments == 1 ? step : step / segments;
          const int first = (step - part * segments) * segment;
          await_copies<kAhead - 1>();
          __syncwarp();  // all lanes' copies for this step have arrived, and all lanes have read the step before
          fetch(expert, step + kAhead, end_step);
          if (first + my_chunk < chunks) {  // the same for a warp
            if (segments > 1) scale = stage_rows<type>(args, n_rows, from, first + my_chunk, rows_q);
            multiply_tile<type>(ring + step % (kAhead + 1) * kTileBytes, first + my_chunk, rows_q, n_rows, scale,
                                terms + (pass * n_warps + warp) * kWarpTerms);
            if (lane % 4 == 0) scales[(pass * n_warps + warp) * kFewRows + lane / 4] = scale;
          }
          __syncthreads();
          // A thread has one output over all segments; where all of a column is one segment, it may take several.
          const int my_turn = warp >= out_warp ? warp - out_warp : warp - out_warp + n_warps;
#pragma unroll 1
          for (int o = kWarp * my_turn + lane; o - lane < n_out; o += static_cast<int>(blockDim.x)) {
            if (first == 0) y = 0.0F, plain = false;
            const int row_tile = o / kTile;
            const int r = tiles == 1 ? row_tile : row_tile / tiles;
            const int tile = row_tile - r * tiles;
            const int count = min(segment, chunks - first);
            if (r < n_rows) {
              const int k = pass * n_warps + tile * segment;
              add_terms<type>(terms + k * kWarpTerms + r * kTermStride + o % kTile, scales + k * kFewRows + r, count, y,
                              plain);
            }
            if (first + segment < chunks) continue;
            store_output(args, {args, expert, part * columns},
                         r < n_rows ? slot_of(args.table, list, i + r) : TableSlot{-1, -1}, tile * kTile + o % kTile, y,
                         plain);
          }
          if (first + segment >= chunks) {
            out_warp += (n_out + kWarp - 1) / kWarp;
            while (out_warp >= n_warps) out_warp -= n_warps;
          }
          pass ^= 1;
        }
      }
    }
    if (one_matrix) break;
    __syncthreads();
  }
  await_copies<0>();
}

}  // namespace

int launch_few_rows(const UnitArgs& args, std::int64_t max_active, const Stream& stream) {
  const LaunchPlan plan = few_rows_plan(args.type, max_active, args.n, args.chunks, args.up != nullptr);
  if (args.type == DType::q4_k) return launch(few_rows<DType::q4_k>, plan, stream, args);
  if (args.type == DType::q5_k) return launch(few_rows<DType::q5_k>, plan, stream, args);
  return launch(few_rows<DType::q6_k>, plan, stream, args);
}

}  // namespace conclave::cuda
