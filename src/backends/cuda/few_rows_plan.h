// Products of few rows with superblock weights, on the int8 tensor cores: bound by the bytes of the weights, which are
// read once for all rows of an expert. Bits as in product_plan.h. Runs on every GPU from sm_80 on.
//
// A warp takes a superblock of a tile of 16 columns (of gate_up: 8 of gate and the same 8 of up), copied to its own shared
// memory ahead of time, and up to eight rows of int8. A block has all superblocks of a few tiles, or eight at a time: what
// each adds to an output goes to shared memory and is added in the order of the superblocks. Blocks have equal runs of all
// (list, tiles).
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
};

inline constexpr int kFewRows = 8;  // of a pass
inline constexpr int kTile = 16;    // columns of weights, of a warp
inline constexpr int kFewMaxThreads = 256;
inline constexpr int kMaxSegment = 8;
inline constexpr std::int64_t kFewBlocks = 132 * 2;  // as many as a large GPU holds at once

// q4_k and q5_k, used as stored; others are in planes.
constexpr bool is_affine(DType type) {
  return type == DType::q4_k || type == DType::q5_k;
}
constexpr int block_bytes(DType type) {
  return type == DType::q4_k ? 144 : 176;
}

// Superblocks of a column that a block has at once, and tiles of columns: a warp each.
constexpr int few_segment(std::int64_t chunks) {
  return static_cast<int>(chunks < kMaxSegment ? chunks : kMaxSegment);
}
constexpr int few_tiles(std::int64_t chunks) {
  return kMaxSegment / few_segment(chunks);
}
constexpr int few_warps(std::int64_t chunks) {
  return few_segment(chunks) * few_tiles(chunks);
}
static_assert(few_warps(1) == 8 && few_warps(3) == 6 && few_warps(8) == 8 && few_warps(56) == 8);
static_assert(kMaxSegment * kWarp == kFewMaxThreads);

// In shared memory, of a warp: tiles as they are fetched, some of them ahead of the one in work; its rows as int8; and
// twice, for this pass and the next, what its superblock adds to the outputs and the rows' scales. Strides keep accesses in
// different banks.
constexpr int tile_bytes(DType type) {
  return kTile * (is_affine(type) ? block_bytes(type) : 208 + 16);
}
constexpr int tiles_ahead(DType type) {
  return type == DType::q4_k ? 2 : 1;
}
inline constexpr int kLaneRowStride = 320;  // at most
inline constexpr int kTermStride = kTile + 2;
inline constexpr int kWarpTerms = kFewRows * kTermStride;
constexpr std::int64_t few_shared_bytes(DType type, std::int64_t chunks) {
  return few_warps(chunks) * std::int64_t{(tiles_ahead(type) + 1) * tile_bytes(type) + kFewRows * kLaneRowStride +
                                          2 * (kWarpTerms * 8 + kFewRows * 4)};
}
static_assert(2 * (few_shared_bytes(DType::q4_k, 8) + 6144) <= 227 * 1024, "two blocks on a multiprocessor");
static_assert(2 * (few_shared_bytes(DType::q6_k, 8) + 6144) <= 227 * 1024, "two blocks on a multiprocessor");

// Columns of the output that a block has at a time.
constexpr int few_columns(std::int64_t chunks, bool gate_up) {
  return few_tiles(chunks) * (gate_up ? kTile / 2 : kTile);
}
constexpr LaunchPlan few_rows_plan(DType type, std::int64_t max_active, std::int64_t n, std::int64_t chunks,
                                   bool gate_up) {
  const std::int64_t items = max_active * ceil_div(n, few_columns(chunks, gate_up));
  return {.blocks = items < kFewBlocks ? items : kFewBlocks,
          .threads = few_warps(chunks) * kWarp,
          .shared_bytes = few_shared_bytes(type, chunks)};
}
static_assert(few_rows_plan(DType::q4_k, 1, 4096, 8, false).blocks == 256);

// Whether these kernels can take such weights: their format, layout and alignment.
bool units_fit(const View& w);
// Whether those for blocks of 32 can (one_row_plan.h, block_rows_plan.h).
bool blocks_fit(const View& w);
// `max_active`: lists that can have a row at all.
int launch_few_rows(const UnitArgs& args, std::int64_t max_active, const Stream& stream);

}  // namespace conclave::cuda
