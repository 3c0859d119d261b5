// What few_rows brings to shared memory: tiles of weights, and rows as int8.
#pragma once

#include "backends/cuda/active_lists.cuh"
#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/lane_product.cuh"
#include "backends/cuda/quantize.cuh"
#include "backends/cuda/unit_output.cuh"

namespace conclave::cuda {

using FewColumns = UnitColumns<kTile / 2>;

// What warps have in turn: `split` tiles of a list from tile `first` on, then those of the next list, `end` in all.
// Kept in shared memory, where it takes no registers from the product.
struct TileRun {
  int list[2];
  int expert[2];
  int begin[2];  // the first of their rows
  int rows[2];   // and how many are multiplied at once
  int left;      // of all rows of the first list
  int first;
  int split;
  int end;
  int part;  // of all lists: the one after the run, and the one after the block's last
  int end_part;
  bool fetched;  // its first weights have been asked for already

  __device__ __forceinline__ bool is_next(int item) const { return item >= split; }
  __device__ __forceinline__ int tile(int item) const { return is_next(item) ? item - split : item + first; }
  __device__ __forceinline__ FewColumns columns(const UnitArgs& args, int item) const {
    return {args, expert[is_next(item) ? 1 : 0], tile(item) * few_columns(args.up != nullptr)};
  }
};

// The columns of a tile in memory, as a lane copies them: four lanes two columns, neighbouring words of 16 bytes at
// once. A block of an odd number of words begins or ends in the middle of 32 bytes. It lies in shared memory as it does
// in memory, 16 bytes from the start of its place or none: a copy that turned the halves of 32 bytes round would fetch
// them twice.
template <DType type>
struct TileSource {
  static constexpr int kWords = block_bytes(type) / 16;
  static_assert(kWords % 2 == 1 && kWords > 8 && kWords < 12 && 16 * (kWords + 1) <= column_stride(type));
  std::uintptr_t pair[2];  // where the lane's word and the one beside it are in a block from the start on

  // Superblock c of a tile.
  __device__ __forceinline__ void find(const FewColumns& at, int c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int place = threadIdx.x % kWarp / 4 + kTile / 2 * half;
      pair[half] = reinterpret_cast<std::uintptr_t>(at.address(tile_column(place))) + c * block_bytes(type) +
                   threadIdx.x % 4 / 2 * 32;
    }
  }
  __device__ __forceinline__ void copy(unsigned to, int /*c*/, int /*chunks*/) const {
    const unsigned t = threadIdx.x % 4;
    to += threadIdx.x % kWarp / 4 * column_stride(type) + 16 * t;
    // Which of the first and last words there are is a bit of the address.
    const unsigned starts = t == 0 ? 16 : 0;
    const unsigned inner = t < kWords - 8 ? 16 : 0;
    const unsigned ends = t <= kWords - 8 ? 16 : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* from = reinterpret_cast<const std::byte*>((pair[half] & ~std::uintptr_t{16}) | 16 * (t % 2));
      const auto low = static_cast<unsigned>(pair[half]);
      const unsigned place = to + kTile / 2 * column_stride(type) * half;
      if ((low & starts) == 0) copy_16(place, from);
      copy_16(place + 64, from + 64);
      if (((low | inner) & ends) != 0) copy_16(place + 128, from + 128);
    }
  }
  __device__ __forceinline__ void advance(int chunks) {
#pragma unroll
    for (int half = 0; half < 2; ++half) pair[half] += chunks * block_bytes(type);
  }
};

// Four lanes copy two columns here, too. Every other place begins in the middle of 32 bytes: where a column does not
// begin alike, its words go one further round, the last before the first.
template <>
struct TileSource<DType::q6_k> {
  const std::byte* column[2];

  __device__ __forceinline__ void find(const FewColumns& at, int /*c*/) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      column[half] = at.address(tile_column(threadIdx.x % kWarp / 4 + kTile / 2 * half));
    }
  }
  __device__ __forceinline__ void copy(unsigned to, int c, int chunks) const {
    constexpr int kStride = column_stride(DType::q6_k);
    const unsigned t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned of = threadIdx.x % kWarp / 4 + kTile / 2 * half;
      const unsigned place = to + of * kStride;
      const unsigned word = 16 * t - turned_q6_k(column[half], of);
      const std::byte* ql = column[half] + 128 * c;
      const std::byte* qh = column[half] + (128 * chunks + 64 * c);
      copy_16(place + 16 * t, ql + (word & 127));
      copy_16(place + 16 * t + 64, ql + (word + 64));
      copy_16(place + 16 * t + 128, qh + (word & 63));
      if (t < 2) {  // the scales, and the word with the factor
        copy_16(t == 0 ? place + 192 : to + kTile * kStride + 16 * of,
                column[half] + (t == 0 ? 192 * chunks + 16 * c : 208 * chunks + c / 8 * 16));
      }
    }
  }
  __device__ __forceinline__ void advance(int /*chunks*/) {}
};

// A warp and its run.
struct RunOwner {
  TileRun& run;  // the warp's own, in shared memory

  __device__ __forceinline__ void set(const TileRun& to) {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) run = to;
    __syncwarp();
  }
  // The next rows of the first list, if there are any; then there is no other list.
  __device__ __forceinline__ bool go_on(int rows) {
    const int left = run.left - rows;
    if (left <= 0) return false;
    const int begin = run.begin[0] + rows;
    __syncwarp();
    if (threadIdx.x % kWarp == 0) {
      run.left = left;
      run.fetched = false;
      run.begin[0] = begin;
      run.rows[0] = min(left, rows);
    }
    __syncwarp();
    return true;
  }
};

// A warp's tiles on their way to its ring, a superblock at a time.
template <DType type>
struct Fetcher : RunOwner {
  TileSource<type> source;
  int c0;  // the first superblock of a tile, and from one to the next
  int c_step;
  int c;
  int item;  // of the run; -1: there is none
  int item_step;
  unsigned ring;
  unsigned at = 0;  // the tile to fill next, in bytes: at a step's end, the one that it has multiplied

  __device__ __forceinline__ Fetcher(TileRun& own, const std::byte* to, int first_chunk, int chunk_step, int step)
      : RunOwner{own}, c0(first_chunk), c_step(chunk_step), item_step(step), ring(shared_address(to)) {}

  __device__ __forceinline__ void find(const UnitArgs& args) {
    if (item < run.end) {
      source.find(run.columns(args, item), c);
    } else {
      item = -1;
    }
  }
  // Items first_item, first_item + item_step, ... of the run.
  __device__ __forceinline__ void start(const UnitArgs& args, int first_item) {
    c = c0;
    item = first_item;
    advance();  // others may still read that one
    find(args);
#pragma unroll
    for (int i = 0; i < tiles_ahead(type); ++i) fetch(args);
  }
  // The next superblock of the next tile. Every step has its group of copies, be it empty.
  __device__ __forceinline__ void fetch(const UnitArgs& args) {
    if (item >= 0) {  // the same for a warp
      source.copy(ring + at, c, args.chunks);
      c += c_step;
      source.advance(c_step);
      if (c >= args.chunks) {
        c = c0;
        item += item_step;
        find(args);
      }
    }
    end_copies();
    advance();
  }
  __device__ __forceinline__ void advance() {
    at = at + tile_bytes(type) == few_ring_bytes(type) ? 0 : at + tile_bytes(type);
  }

  __device__ __forceinline__ void fill(const UnitArgs& /*args*/) {}  // all is on its way

  // How it is used: await() a span of superblocks, read them, release() them.
  static __device__ __forceinline__ int span(const UnitArgs& /*args*/) {
    return 1;
  }
  __device__ __forceinline__ void await(const UnitArgs& args) {
    await_copies<tiles_ahead(type) - 1>();
    __syncwarp();  // all lanes' copies for this step have arrived, and all lanes have read the step before
    fetch(args);
  }
  __device__ __forceinline__ void release(const UnitArgs& /*args*/) {}

  // Where a lane's columns of a tile are: the first superblocks, from the start of all rings on, of q6_k how far they
  // are turned.
  struct Place {
    unsigned block[2];
  };
  __device__ __forceinline__ Place place(const FewColumns& columns) const {
    const int lane = threadIdx.x % kWarp;
    Place at;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (is_affine(type)) {
        const int of = lane / 4 + kTile / 2 * half;
        at.block[half] =
            threadIdx.x / kWarp * few_ring_bytes(type) + of * column_stride(type) +
            (static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(columns.address(tile_column(of)))) & 16);
      } else {
        const int of = lane % 8 + kTile / 2 * half;
        at.block[half] = turned_q6_k(columns.address(tile_column(of)), of);
      }
    }
    return at;
  }
  static __device__ __forceinline__ int first_column() {
    return tile_column(threadIdx.x % kWarp / 4);
  }
  // Superblock `chunk`, which has been waited for.
  __device__ __forceinline__ LaneWeights<type> weights(const std::byte* rings, const Place& of, int chunk,
                                                       int /*i*/) const {
    if constexpr (is_affine(type)) {
      static_assert(block_bytes(type) % 32 == 16);
      const unsigned turned = chunk % 2 * 16;
      return LaneWeights<type>(rings + ((of.block[0] ^ turned) + at), rings + ((of.block[1] ^ turned) + at));
    } else {
      return LaneWeights<type>(rings + (threadIdx.x / kWarp * few_ring_bytes(type) + at), chunk, of.block[0],
                               of.block[1]);
    }
  }
};

// Rows in shared memory: those of superblock `slot` of a segment.
template <int kSegment>
struct StagedRows {
  static constexpr int kStride = few_row_stride(kSegment);
  std::byte* q;
  float* scale;  // [slot][row]

  explicit __device__ __forceinline__ StagedRows(std::byte* at, int rows)
      : q(at), scale(reinterpret_cast<float*>(at + rows * kStride)) {}
  __device__ __forceinline__ std::byte* chunk(int row, int slot) const { return q + row * kStride + slot * kChunk; }
  // Two sums of 16 values each, 2 i and 2 i + 1.
  __device__ __forceinline__ std::byte* sums(int row, int slot, int i) const {
    return q + row * kStride + few_sums(kSegment, slot) + i / 2 * 16 + i % 2 * 4;
  }
};
struct RowPlace {
  int r;
  int slot;
  int c;
};

// Superblock c of a row from the bank, by a warp; it is there when its copies are.
template <DType type, class Rows>
__device__ __forceinline__ void copy_row(const UnitArgs& args, int from, const RowPlace& at, const Rows& to) {
  const int lane = threadIdx.x % kWarp;
  const int place = at.slot * 2 * kRowTile + at.r;
  const std::int64_t taken = std::int64_t{max(from, 0)} * args.chunks + at.c;
  LaneWeights<type>::copy(to.chunk(at.r, at.slot), lane, args.q + taken * kChunk + 8 * lane);
  if (is_affine(type) && lane < 8) copy_4(to.sums(at.r, at.slot, lane), args.sums + taken * 16 + 2 * lane);
  if (lane == kWarp - 1) copy_4(to.scale + place, args.scale + taken);
}
// The same, made here of the eight values that each lane has of it.
template <DType type, class Rows>
__device__ __forceinline__ void put_row(const float* v, const RowPlace& at, const Rows& to) {
  const int lane = threadIdx.x % kWarp;
  const int place = at.slot * 2 * kRowTile + at.r;
  const QuantizedLane made = quantize_lane(v);
  LaneWeights<type>::put(to.chunk(at.r, at.slot), lane, made.low, made.high);
  if constexpr (is_affine(type)) {
    const int sum = sum_of_two(made);
    if (lane % 2 == 0) {
      reinterpret_cast<std::uint16_t*>(to.sums(at.r, at.slot, lane / 4))[lane / 2 % 2] =
          __half_as_ushort(__int2half_rn(sum));
    }
  }
  if (lane == 0) to.scale[place] = made.scale;
}
// `n` of them, the i-th as `where(i)` says. `then()`: what is asked for behind them.
template <DType type, class Rows, class Where, class Then>
__device__ __forceinline__ void stage_rows(const UnitArgs& args, const TableSlot* slots, int n, const Rows& to,
                                           Where&& where, Then&& then) {
  if (args.q != nullptr) {
#pragma unroll 1
    for (int i = 0; i < n; ++i) copy_row<type>(args, slots[where(i).r].from, where(i), to);
    end_copies();
    then();
    await_copies<0>();
    return;
  }
  then();
  constexpr int kAhead = 3;  // on their way while one is made
  float v[kAhead][8] = {};
#pragma unroll 1
  for (int i = -kAhead; i < n; ++i) {
    if (i >= 0) put_row<type>(v[0], where(i), to);
#pragma unroll
    for (int j = 0; j < 8 * (kAhead - 1); ++j) v[j / 8][j % 8] = v[j / 8 + 1][j % 8];
    if (i + kAhead < n) {
      const RowPlace at = where(i + kAhead);
      load_chunk(args.x_type, args.x + max(slots[at.r].from, 0) * args.x_stride, at.c,
                 std::int64_t{args.chunks} * kChunk, threadIdx.x % kWarp, v[kAhead - 1]);
    }
  }
}

}  // namespace conclave::cuda
