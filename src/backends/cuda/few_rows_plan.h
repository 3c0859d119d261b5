// Products of few rows with superblock weights, on the int8 tensor cores: bound by the bytes of the weights, which are
// read once for all rows of an expert. Bits as in product_plan.h. Runs on every GPU from sm_80 on.
//
// A warp multiplies a tile of 16 columns (of gate_up: 8 of gate and the same 8 of up), superblock by superblock, with
// one or two tiles of eight rows of int8. Weights are copied to its own shared memory ahead of time; rows are staged
// once for all warps of a block, eight superblocks of them at most. Where there are enough tiles, a warp has all
// superblocks of its tile and keeps the outputs: nothing is waited for and nothing exchanged. Where there are few, the
// warps of a block share a tile, a superblock each: what each adds to an output goes to shared memory and is added in
// the order of the superblocks. Lists are gone through in passes of as many rows as are multiplied at once, and blocks
// have equal runs of all (pass, tiles). Two passes of one tile of rows each that follow one another are staged together,
// and their tiles dealt out to the warps as those of one. On Hopper most experts' weights are fetched in another way
// (few_boxes_plan.h).
#pragma once

#include "backends/cuda/product_plan.h"
#include "ops/activation.h"

namespace conclave::cuda {

// As little as can be: a kernel that runs for microseconds waits for its arguments, too. Rows of x and out lie evenly.
struct UnitArgs {
  RowTable table;
  const std::byte* w = nullptr;   // gate, where `up` is given
  const std::byte* up = nullptr;  // then out = act(gate) * up
  std::int64_t w_expert = 0;      // bytes from expert to expert
  std::int64_t up_expert = 0;
  std::int64_t w_column = 0;  // bytes from column to column
  std::int64_t up_column = 0;
  const std::byte* x = nullptr;
  std::int64_t x_stride = 0;
  std::byte* out = nullptr;
  std::int64_t out_stride = 0;
  const std::int8_t* q = nullptr;  // RowBank's; null: each block quantises the rows it needs
  const float* scale = nullptr;
  const std::uint16_t* sums = nullptr;
  const std::byte* bias = nullptr;
  std::int32_t n = 0;  // columns
  std::int32_t k = 0;
  std::int32_t chunks = 0;
  std::int32_t most_rows = 0;  // lists with more rows are left to the other kernel; 0: none are
  DType type = DType::q4_k;    // of the weights: q4_k or q5_k as stored, others in planes
  DType x_type = DType::f32;
  DType out_type = DType::f32;
  DType bias_type = DType::f32;
  Activation act = Activation::silu;
  bool early = false;  // of what it reads the op before writes x alone (launch.cuh)
};

inline constexpr int kRowTile = 8;
inline constexpr int kTile = 16;  // columns of weights, of a warp
inline constexpr int kFewThreads = 256;
inline constexpr int kFewWarps = kFewThreads / kWarp;
inline constexpr int kMaxSegment = 8;                // superblocks of rows that are staged at once
inline constexpr std::int64_t kFewBlocks = 132 * 2;  // as many as a large GPU holds at once
// Tiles from which each warp has its own: half of the warps of a large GPU are busy then, with more to ask for each.
inline constexpr std::int64_t kOwnFrom = kFewBlocks * kFewWarps / 2;

// q4_k and q5_k, used as stored; others are in planes.
constexpr bool is_affine(DType type) {
  return type == DType::q4_k || type == DType::q5_k;
}
constexpr int block_bytes(DType type) {
  return type == DType::q4_k ? 144 : 176;
}

// Rows of a pass.
constexpr int few_rows_at_once(bool shares) {
  return shares ? kRowTile : 2 * kRowTile;
}

// Where tiles are shared: warps of a tile, and tiles that a block has at once.
constexpr int few_share(std::int64_t chunks) {
  return static_cast<int>(chunks < kMaxSegment ? chunks : kMaxSegment);
}
constexpr int few_tiles(std::int64_t chunks) {
  return kFewWarps / few_share(chunks);
}
static_assert(few_tiles(1) == 8 && few_tiles(3) == 2 && few_tiles(8) == 1 && few_tiles(56) == 1);

// In shared memory, of a warp: tiles as they are fetched, some of them ahead of the one in work, and, where tiles are
// shared, what it adds to the outputs, for this step and the next. Of a block: rows as int8 with their sums behind
// them, and their scales. Strides keep accesses in different banks, and places of q4_k and q5_k whole pieces of 32
// bytes.
constexpr int column_stride(DType type) {
  return type == DType::q4_k ? 160 : type == DType::q5_k ? 224 : 208;
}
constexpr int tile_bytes(DType type) {
  return kTile * (column_stride(type) + (is_affine(type) ? 0 : 16));
}
constexpr int tiles_ahead(DType type) {
  return type == DType::q4_k ? 2 : 1;
}
constexpr int few_ring_bytes(DType type) {
  return (tiles_ahead(type) + 1) * tile_bytes(type);
}
// Rows of `segment` superblocks.
constexpr int few_row_stride(int segment) {
  return segment * (kChunk + 32) + 64;
}
// Where the sums of a superblock of a row are: 8 bytes each for four lanes, 16 bytes from lane to lane.
constexpr int few_sums(int segment, int slot) {
  return segment * kChunk + slot / 2 * 64 + slot % 2 * 8;
}
constexpr int few_rows_bytes(int segment, bool shares) {
  return few_rows_at_once(shares) * few_row_stride(segment) + segment * 2 * kRowTile * 4;
}
inline constexpr int kTermBytes = kWarp * 32;
constexpr std::int64_t few_shared_bytes(DType type, bool shares) {
  return kFewWarps * few_ring_bytes(type) + few_rows_bytes(kMaxSegment, shares) +
         (shares ? 2 * kFewWarps * kTermBytes : 0);
}
inline constexpr std::int64_t kFewStatic = 1536;  // and less than this beside it
static_assert(column_stride(DType::q4_k) % 32 == 0 && column_stride(DType::q5_k) % 32 == 0);
static_assert(160 / 8 % 16 == 4 && 224 / 8 % 16 == 12 && 208 / 4 % 8 == 4 &&
              few_row_stride(kMaxSegment) / 4 % 32 == 16);
static_assert(2 * (few_shared_bytes(DType::q4_k, false) + kFewStatic + 1024) <= 227 * 1024,
              "two blocks on a multiprocessor");

// Which column of a tile lies in place i: even ones before odd ones, in each of the tile's halves. Of neighbouring
// columns one may begin 16 bytes further in its place than the other; four places that are read at once are alike.
constexpr int tile_column(int place) {
  return place / 8 * 8 + place % 4 * 2 + place / 4 % 2;
}
static_assert(tile_column(3) == 6 && tile_column(4) == 1 && tile_column(15) == 15);
// Columns of the output that a tile has.
constexpr int few_columns(bool gate_up) {
  return gate_up ? kTile / 2 : kTile;
}
// What a list is cut into: tiles, or as many as a block has at once.
constexpr int few_parts(std::int64_t n, std::int64_t chunks, bool gate_up, bool shares) {
  return static_cast<int>(ceil_div(n, std::int64_t{few_columns(gate_up)} * (shares ? few_tiles(chunks) : 1)));
}
// `max_active`: lists that can have a row at all.
constexpr bool shares_tiles(std::int64_t max_active, std::int64_t n, bool gate_up) {
  return max_active * ceil_div(n, few_columns(gate_up)) < kOwnFrom;
}
constexpr LaunchPlan few_rows_plan(DType type, std::int64_t max_active, std::int64_t n, std::int64_t chunks,
                                   bool gate_up) {
  const bool shares = shares_tiles(max_active, n, gate_up);
  const std::int64_t blocks = shares ? max_active * few_parts(n, chunks, gate_up, true) : kFewBlocks;
  return {.blocks = blocks < kFewBlocks ? blocks : kFewBlocks,
          .threads = kFewThreads,
          .shared_bytes = few_shared_bytes(type, shares)};
}
static_assert(few_parts(100, 3, true, false) == 13 && few_parts(100, 3, true, true) == 7);
static_assert(few_rows_plan(DType::q4_k, 1, 4096, 8, false).blocks == 256);
static_assert(few_rows_plan(DType::q4_k, 128, 768, 8, true).blocks == kFewBlocks && !shares_tiles(128, 768, true));

// Whether these kernels can take such weights: their format, layout and alignment.
bool units_fit(const View& w);
// Whether those for blocks of 32 can (one_row_plan.h, block_rows_plan.h).
bool blocks_fit(const View& w);
// `max_active`: lists that can have a row at all.
int launch_few_rows(const UnitArgs& args, std::int64_t max_active, const Stream& stream);

}  // namespace conclave::cuda
