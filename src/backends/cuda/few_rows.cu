#include "backends/cuda/activation.cuh"
#include "backends/cuda/active_lists.cuh"
#include "backends/cuda/few_copies.cuh"
#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/lane_product.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/unit_output.cuh"

namespace conclave::cuda {
namespace {

// Where a lane's part of a tile is: the first superblocks of its columns, from the start of the first tile of all rings
// on, of q6_k how far they are turned, and the rows of the first superblock of a segment.
struct LanePlace {
  unsigned block[2] = {};
  const std::byte* q;
  const float* scale;

  template <DType type, int kTiles>
  static __device__ __forceinline__ LanePlace find(const UnitArgs& args, const TileRun& run, int item,
                                                   const StagedRows& rows) {
    const int lane = threadIdx.x % kWarp;
    const int next = run.is_next(item) ? 1 : 0;
    // Lanes without a row read another's: what many lanes read is read once.
    const int row = next * kRowTile + (kTiles == 1 ? min(lane / 4, run.rows[next] - 1) : lane / 4);
    LanePlace at{.q = rows.q + row * kFewRowStride + 16 * (lane % 4),
                 .scale = rows.scale + next * kRowTile + 2 * (lane % 4)};
    const FewColumns columns = run.columns(args, item);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (is_affine(type)) {
        const std::byte* column = columns.address(tile_column(lane / 4 + kTile / 2 * half));
        at.block[half] = threadIdx.x / kWarp * few_ring_bytes(type) +
                         (lane / 4 + kTile / 2 * half) * column_stride(type) +
                         (static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(column)) & 16);
      } else {
        const int of = lane % 8 + kTile / 2 * half;
        at.block[half] = turned_q6_k(columns.address(tile_column(of)), of);
      }
    }
    return at;
  }
};

// `tile`: bytes from the start of a ring.
template <DType type>
__device__ __forceinline__ LaneWeights<type> lane_weights(const std::byte* rings, unsigned tile, int c,
                                                          const LanePlace& at) {
  if constexpr (is_affine(type)) {
    static_assert(block_bytes(type) % 32 == 16);
    const unsigned turned = c % 2 * 16;
    return LaneWeights<type>(rings + ((at.block[0] ^ turned) + tile), rings + ((at.block[1] ^ turned) + tile));
  } else {
    return LaneWeights<type>(rings + (threadIdx.x / kWarp * few_ring_bytes(type) + tile), c, at.block[0], at.block[1]);
  }
}

// What a superblock adds to the outputs: y + add - less.
template <DType type, int kTiles, class Take>
__device__ __forceinline__ void multiply_tile(const std::byte* rings, unsigned tile, int c, const LanePlace& at,
                                              int slot, Take&& take) {
  const LaneWeights<type> w = lane_weights<type>(rings, tile, c, at);
  int sum[kTiles][4];
  float low[kTiles][4];
  w.template multiply<kTiles>(at.q + slot * kChunk, sum);
  if constexpr (is_affine(type)) {
    w.template multiply_mins<kTiles>(at.q + few_sums(slot), low);
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const float2 by = *reinterpret_cast<const float2*>(at.scale + slot * 2 * kRowTile + t * kRowTile);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float scale = e % 2 == 0 ? by.x : by.y;
      const float add = (scale * w.d(e / 2)) * static_cast<float>(sum[t][e]);
      float less = 0.0F;
      if constexpr (is_affine(type)) less = (scale * w.dmin(e / 2)) * low[t][e];
      take(t, e, add, less);
    }
  }
}
template <DType type>
__device__ __forceinline__ void add_to(float& y, float add, float less) {
  y = y + add;
  if constexpr (is_affine(type)) y = y - less;
}

// Whether a row is int8 at all; by one thread, where an output came out as NaN.
static __device__ __noinline__ bool has_int8_form(const UnitArgs& args, std::int64_t row) {
#pragma unroll 1
  for (int c = 0; c < args.chunks; ++c) {
    if (args.q != nullptr) {
      if (isnan(args.scale[row * args.chunks + c])) return false;
      continue;
    }
    float largest = 0.0F;
#pragma unroll 1
    for (int i = 0; i < kChunk; ++i) {
      const float v = load_float(args.x_type, args.x + row * args.x_stride, std::int64_t{c} * kChunk + i);
      if (!isfinite(v)) return false;
      largest = fmaxf(largest, fabsf(v));
    }
    if (largest != 0.0F && largest < 0x1p-100F) return false;
  }
  return true;
}
// What a lane's two columns give for such a row.
static __device__ __noinline__ float2 checked(const FewColumns& at, int column, int from, float2 y) {
  if (has_int8_form(at.args, from)) return y;
  return {at.plain(column, from), at.plain(column + 8, from)};
}
static __device__ __noinline__ void store_other(const UnitArgs& args, int first, int column, int row, float y) {
  FewColumns{args, 0, first}.store(column, row, y);
}

// A lane's outputs of a tile.
template <int kTiles>
__device__ __forceinline__ void store_tile(const FewColumns& at, const TableSlot* slots, float (&y)[kTiles][4]) {
  const UnitArgs& args = at.args;
  const int mine = tile_column(threadIdx.x % kWarp / 4);
  const int first = at.first;
  const int n = columns_of(args.table, args.n);
  const bool simple = args.out_type == DType::f32 && args.bias == nullptr;
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    const TableSlot slot = slots[i / 2 * kRowTile + 2 * (threadIdx.x % 4) + i % 2];
    float2 both{y[i / 2][i % 2], y[i / 2][i % 2 + 2]};
    if (slot.from < 0) continue;
    if (isnan(both.x) || isnan(both.y)) both = checked(at, mine, slot.from, both);
    const float a = args.up != nullptr ? gated(args.act, both.x, both.y) : both.x;
    if (simple) {
      float* out = reinterpret_cast<float*>(args.out + slot.to * args.out_stride) + (first + mine);
      if (first + mine < n) out[0] = a;
      if (args.up == nullptr && first + mine + 8 < n) out[8] = both.y;
    } else {
      store_other(args, first, mine, slot.to, a);
      if (args.up == nullptr) store_other(args, first, mine + 8, slot.to, both.y);
    }
  }
}

// What a warp has while it works on a list.
template <DType type>
struct FewWork {
  const UnitArgs& args;
  Fetcher<type>& fetcher;
  const std::byte* rings;
  const StagedRows& rows;
  const TableSlot* slots;
  float4* terms;  // [step % 2][warp][2][lane]
  int& step;

  // Waits for the next tile, asks for one more, and multiplies.
  template <int kTiles, class Take>
  __device__ __forceinline__ void multiply_next(int c, const LanePlace& at, int slot, Take&& take) const {
    await_copies<tiles_ahead(type) - 1>();
    __syncwarp();  // all lanes' copies for this step have arrived, and all lanes have read the step before
    fetcher.fetch(args);
    multiply_tile<type, kTiles>(rings, fetcher.at, c, at, slot, take);  // the ring is full: it is the next to fill
  }

  // Superblocks c0 .. c0 + count - 1 of the rows, by all warps. Those of a second list are the second tile of rows.
  __device__ __forceinline__ void stage_segment(int c0, int count) const {
    const int warp = threadIdx.x / kWarp;
    const int inverse = 65536 / count + 1;
    const int first = fetcher.run.rows[0];
    const int places = (first + fetcher.run.rows[1]) * count;
    stage_rows<type>(args, slots, (places - warp + kFewWarps - 1) / kFewWarps, rows, [&](int i) {
      const int place = warp + i * kFewWarps;
      const int r = place * inverse >> 16;  // place / count: exact for so few
      return RowPlace{r < first ? r : r - first + kRowTile, place - r * count, c0 + place - r * count};
    });
  }

  // All items of a run, each by a warp alone. All warps take part in all rounds.
  template <int kTiles>
  __device__ __forceinline__ void multiply_own() const {
    const TileRun& run = fetcher.run;
#pragma unroll 1
    for (int item = threadIdx.x / kWarp; item / kFewWarps * kFewWarps < run.end; item += kFewWarps) {
      const bool is_first = item < kFewWarps;
      float y[kTiles][4] = {};
#pragma unroll 1
      for (int c0 = 0; c0 < args.chunks; c0 += kMaxSegment) {
        const int count = min(args.chunks - c0, kMaxSegment);
        if (args.chunks > kMaxSegment || is_first) {  // else they are there
          if (c0 > 0 || !is_first) __syncthreads();
          stage_segment(c0, count);
          __syncthreads();
        }
        if (item >= run.end) continue;
        const LanePlace at = LanePlace::find<type, kTiles>(args, run, item, rows);
#pragma unroll 1
        for (int c = 0; c < count; ++c) {
          multiply_next<kTiles>(c0 + c, at, c,
                                [&](int t, int e, float add, float less) { add_to<type>(y[t][e], add, less); });
        }
      }
      if (item < run.end) {
        store_tile<kTiles>(run.columns(args, item), slots + (run.is_next(item) ? kRowTile : 0), y);
      }
    }
  }

  // Groups of tiles first .. end - 1, each by all warps of the block.
  __device__ __forceinline__ void multiply_shared(int first, int end) const {
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;
    const int share = few_share(args.chunks);
    const int tiles = few_tiles(args.chunks);
    const int of = warp / share;
    const int mine = warp - of * share;
    int adds = 0;  // the one of a tile's warps that adds up this time
#pragma unroll 1
    for (int part = first; part < end; ++part) {
      const LanePlace at = LanePlace::find<type, 1>(args, fetcher.run, part * tiles + of, rows);
      float y[1][4] = {};
#pragma unroll 1
      for (int c0 = 0; c0 < args.chunks; c0 += kMaxSegment) {
        const int c = c0 + mine;
        float4* const to = terms + step % 2 * (kFewWarps * 2 * kWarp) + lane;
        if (of < tiles && c < args.chunks) {
          if (args.chunks > kMaxSegment || part == first) {
            __syncwarp();
            stage_rows<type>(args, slots, fetcher.run.rows[0], rows, [&](int i) { return RowPlace{i, warp, c}; });
            __syncwarp();
          }
          float add[4];
          float less[4];
          multiply_next<1>(c, at, warp, [&](int, int e, float a, float l) { add[e] = a, less[e] = l; });
          to[warp * 2 * kWarp] = make_float4(add[0], add[1], add[2], add[3]);
          if constexpr (is_affine(type)) to[(warp * 2 + 1) * kWarp] = make_float4(less[0], less[1], less[2], less[3]);
        }
        __syncthreads();
        if (of < tiles && mine == adds) {
          const float4* from = to + of * share * 2 * kWarp;
          const int count = min(args.chunks - c0, share);
#pragma unroll 4
          for (int k = 0; k < count; ++k) {
            const float4 add = from[k * 2 * kWarp];
            const float4 less = is_affine(type) ? from[(k * 2 + 1) * kWarp] : float4{};
            add_to<type>(y[0][0], add.x, less.x);
            add_to<type>(y[0][1], add.y, less.y);
            add_to<type>(y[0][2], add.z, less.z);
            add_to<type>(y[0][3], add.w, less.w);
          }
        }
        ++step;
      }
      if (of < tiles && mine == adds) store_tile<1>(fetcher.run.columns(args, part * tiles + of), slots, y);
      adds = adds + 1 == share ? 0 : adds + 1;
    }
  }
};

// `parts`: few_parts().
template <DType type, bool kShares>
__global__ void __launch_bounds__(kFewThreads, 2) few_rows(const __grid_constant__ UnitArgs args, const int parts) {
  extern __shared__ __align__(32) int4 shared_words[];  // copies are of 32 bytes
  __shared__ ActiveLists active;
  __shared__ TableSlot slots[few_rows_at_once(kShares)];
  __shared__ TileRun runs[kFewWarps];
  constexpr int kRows = few_rows_at_once(kShares);
  const int warp = threadIdx.x / kWarp;
  const int share = few_share(args.chunks);
  const int tiles = kShares ? few_tiles(args.chunks) : 1;  // of a part

  auto* const shared = reinterpret_cast<std::byte*>(shared_words);
  const std::byte* const ring = shared + warp * few_ring_bytes(type);
  std::byte* const rows_q = shared + kFewWarps * few_ring_bytes(type);
  auto* const scales = reinterpret_cast<float*>(rows_q + kRows * kFewRowStride);
  const StagedRows rows{rows_q, scales};

  // Blocks have equal runs of all (pass, part), one after another. A part of warps that share goes to all of them,
  // others to the warps in turn. The first weights of one matrix are fetched before anything is waited for.
  const bool one_matrix = args.table.begin == nullptr;
  const auto first_of = [&](unsigned block, int n_passes) {
    const unsigned items = static_cast<unsigned>(n_passes) * static_cast<unsigned>(parts);
    const unsigned each = items / gridDim.x;
    return static_cast<int>(each * block + min(block, items - each * gridDim.x));
  };
  Fetcher<type> fetcher(runs[warp], ring, kShares ? warp % share : 0, kShares ? share : 1, kShares ? tiles : kFewWarps);
  int step = 0;
  // Parts first .. end - 1 of a pass, then `more` of the next one.
  const auto set_run = [&](TileRun run, int first, int end, int more) {
    run.first = kShares ? 0 : first;
    run.split = kShares ? end * tiles : end - first;
    run.end = run.split + more;
    fetcher.set(run);
  };
  const auto fetch_first = [&](int first) {
    if (kShares) {
      fetcher.start(args, warp / share < tiles ? first * tiles + warp / share : fetcher.run.end);
    } else {
      fetcher.start(args, warp);
    }
  };
  if (one_matrix) {
    set_run({}, first_of(blockIdx.x, 1), first_of(blockIdx.x + 1, 1), 0);
    fetch_first(first_of(blockIdx.x, 1));
  }
  begin();
  const FewWork<type> work{args, fetcher, shared, rows, slots, reinterpret_cast<float4*>(scales + kFewScales), step};
#pragma unroll 1
  for (int first_list = 0, skip = 0; first_list < args.table.n_lists;) {
    if (!one_matrix) active.find(args.table, first_list, skip, kRows, args.most_rows);
    const int n_passes = one_matrix ? 1 : active.count;
    int item = first_of(blockIdx.x, n_passes);
    int end_item = first_of(blockIdx.x + 1, n_passes);
#pragma unroll 1
    while (item < end_item) {
      const int place = item / parts;
      const int list = one_matrix ? 0 : active.at(place);
      const int first = item - place * parts;
      const int end = min(parts, first + end_item - item);
      item += end - first;
      const RowRange range = one_matrix ? range_of(args.table, list) : active.rows(args.table, place, kRows);
      TileRun run{.list = {list, 0}, .begin = {range.begin, 0}, .left = range.end - range.begin};
      const auto is_mine = [&](int rows) { return rows > 0 && (args.most_rows == 0 || rows <= args.most_rows); };
      // Where this pass and the next have a tile of rows each, warps go from one to the other without waiting.
      RowRange next{0, 0};
      if (!kShares && item < end_item) {
        run.list[1] = active.at(place + 1);
        next = active.rows(args.table, place + 1, kRows);
      }
      if (!is_mine(run.left)) continue;
      run.expert[0] = expert_of(args.table, list);
      run.rows[0] = min(run.left, kRows);
      int more = 0;
      if (run.left <= kRowTile && next.end - next.begin <= kRowTile && is_mine(next.end - next.begin)) {
        more = min(parts, end_item - item);
        item += more;
        run.expert[1] = expert_of(args.table, run.list[1]);
        run.begin[1] = next.begin;
        run.rows[1] = next.end - next.begin;
      }
      run.fetched = one_matrix;
      run.part = item;
      run.end_part = end_item;
      set_run(run, first, end, more);
#pragma unroll 1
      do {
        const TileRun& of = fetcher.run;
        if (!of.fetched) fetch_first(first);
        __syncthreads();  // the rows before are done with
        if (threadIdx.x < kRows) {
          const int r = static_cast<int>(threadIdx.x);
          TableSlot slot{-1, -1};
          if (r < of.rows[0]) slot = slot_of(args.table, of.list[0], of.begin[0] + r);
          if (r >= kRowTile && r - kRowTile < of.rows[1]) {
            slot = slot_of(args.table, of.list[1], of.begin[1] + r - kRowTile);
          }
          slots[r] = slot;
        }
        __syncthreads();
        if constexpr (kShares) {
          work.multiply_shared(first, end);
        } else if (of.rows[0] > kRowTile) {
          work.template multiply_own<2>();
        } else {
          work.template multiply_own<1>();
        }
      } while (fetcher.go_on(kRows));
      item = fetcher.run.part;
      end_item = fetcher.run.end_part;
    }
    if (one_matrix) break;
    skip = active.has_more() ? active.skipped + kListed : 0;
    first_list = active.begin + (skip > 0 ? 0 : kListed);
    __syncthreads();
  }
  await_copies<0>();
}

template <DType type>
int launch_of(const UnitArgs& args, std::int64_t max_active, const Stream& stream) {
  const bool gate_up = args.up != nullptr;
  const LaunchPlan plan = few_rows_plan(type, max_active, args.n, args.chunks, gate_up);
  if (shares_tiles(max_active, args.n, gate_up)) {
    return launch(few_rows<type, true>, plan, stream, args, few_parts(args.n, args.chunks, gate_up, true));
  }
  return launch(few_rows<type, false>, plan, stream, args, few_parts(args.n, args.chunks, gate_up, false));
}

}  // namespace

int launch_few_rows(const UnitArgs& args, std::int64_t max_active, const Stream& stream) {
  if (args.type == DType::q4_k) return launch_of<DType::q4_k>(args, max_active, stream);
  if (args.type == DType::q5_k) return launch_of<DType::q5_k>(args, max_active, stream);
  return launch_of<DType::q6_k>(args, max_active, stream);
}

}  // namespace conclave::cuda
