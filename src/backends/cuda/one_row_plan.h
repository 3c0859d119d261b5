// Products of one row at a time with superblock weights, or blocks of 32 in planes: what decoding a few sequences
// needs. Bound by the bytes of the weights, which go straight from memory to registers; as little code around them as
// can be, since a kernel of microseconds waits for its own instructions. Bits as in product_plan.h. Runs on every GPU
// from sm_80 on.
//
// Four lanes share a superblock of one column; a warp has eight of them at a time, which is a column of 2048, two of
// 768, or half of one of 4096: a pass. The weights of the next pass are on their way while it multiplies one; of experts
// on Hopper, those of all its passes are asked for at once, by bulk copies to shared memory. The row is int8 in
// registers, from a bank or made by the block. What each superblock adds to an output goes through shared memory and is
// added in their order. Of blocks of 32, eight stand for a superblock, and each adds its own.
//
// A row is a pair of a token with one of its experts, whose weights it meets, or a row of x with the one matrix.
#pragma once

#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

struct OneRowArgs {
  const std::byte* w = nullptr;   // gate, where `up` is given
  const std::byte* up = nullptr;  // then out = act(gate) * up
  std::int64_t w_expert = 0;      // bytes from expert to expert
  std::int64_t up_expert = 0;
  std::int64_t w_column = 0;  // bytes from column to column
  std::int64_t up_column = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;       // floats
  const std::int8_t* q = nullptr;  // RowBank's; null: blocks make their row int8
  const float* scale = nullptr;
  const float* bias = nullptr;  // of one matrix
  float* out = nullptr;
  std::int64_t out_stride = 0;            // floats
  const std::int32_t* experts = nullptr;  // [pairs], one that is none is skipped; null: one matrix
  const std::int32_t* live = nullptr;     // tokens, or rows of one matrix; null: all
  std::int32_t top_k = 1;
  std::int32_t x_step = 1;  // rows of the output for each row of x
  std::int32_t n_experts = 1;
  std::int32_t rows = 0;  // of the output
  std::int32_t n = 0;     // columns
  std::int32_t k = 0;
  std::int32_t chunks = 0;
  DType type = DType::q4_k;
  Activation act = Activation::silu;
  bool hopper = false;
};

inline constexpr int kOneThreads = 128;
inline constexpr int kOneWarps = kOneThreads / kWarp;
inline constexpr int kPassUnits = 8;  // superblocks of a pass
inline constexpr int kOneChunks = 2 * kPassUnits;
inline constexpr int kOnePasses = 8;  // of a warp, at most
// What goes through shared memory, in pairs: of a superblock what it adds and takes away, of eight blocks what each
// adds.
constexpr int unit_terms(DType type) {
  return is_block_32(type) ? 4 : 1;
}
inline constexpr std::int64_t kOneWanted = 132 * 8;   // warps that a large GPU is glad of
inline constexpr std::int64_t kOnePairs = 128;        // beyond them weights are worth sharing
inline constexpr std::int64_t kOnePairsOrBoxes = 96;  // the same where boxes take them (few_boxes_plan.h)
inline constexpr std::int64_t kOneRows = 4;

// How a row's columns are dealt out.
struct OneRowCut {
  std::int32_t pass_shift = 0;  // columns of a pass: 1, 2, 4 or 8, as a power of two
  std::int32_t by_chunks = 0;   // of up to a pass: u / chunks is u * by_chunks / 256, for u below 8
  std::int32_t passes = 1;      // of a warp; of gate and up, of each
  std::int32_t columns = 1;     // of the output, of a warp
  std::int32_t parts = 1;       // blocks
};
// As many passes a warp as leave enough warps.
constexpr OneRowCut one_row_cut(std::int64_t rows, std::int64_t n, std::int64_t chunks, bool gate_up) {
  OneRowCut cut;
  const int halves = chunks <= kPassUnits ? 1 : 2;
  cut.pass_shift = chunks == 1 ? 3 : chunks == 2 ? 2 : chunks <= 4 ? 1 : 0;
  cut.by_chunks = static_cast<std::int32_t>(ceil_div(256, chunks));
  for (int passes = halves; passes <= (gate_up ? kOnePasses / 2 : kOnePasses); passes *= 2) {
    const int columns = (passes << cut.pass_shift) / halves;
    const std::int64_t warps = rows * ceil_div(n, columns);
    if (columns > kWarp || (passes > halves && warps < kOneWanted)) break;
    cut.passes = passes;
    cut.columns = columns;
    cut.parts = static_cast<std::int32_t>(ceil_div(ceil_div(n, columns), kOneWarps));
  }
  return cut;
}
// Whether a warp's weights are all brought to shared memory at once, and how many bytes they are. Columns lie one after
// another: a copy for gate, one for up.
constexpr bool is_held(const OneRowArgs& args) {
  return args.hopper && args.experts != nullptr && args.chunks <= kPassUnits &&
         (args.up == nullptr || args.up_column == args.w_column);
}
constexpr std::int64_t held_bytes(const OneRowArgs& args, const OneRowCut& cut) {
  return (args.up != nullptr ? 2 : 1) * cut.columns * args.w_column;
}
static_assert(one_row_cut(8, 768, 8, true).columns == 4 && one_row_cut(8, 768, 8, true).parts == 48);
static_assert(one_row_cut(8, 2048, 3, false).columns == 8 && one_row_cut(8, 2048, 3, false).passes == 4);
static_assert(one_row_cut(1, 2048, 16, false).passes == 2 && one_row_cut(1, 2048, 16, false).columns == 1);

// Three products of the same rows: queries, keys and values. Each q4_k or q6_k, and no longer than a pass.
inline constexpr int kSideBySide = 3;
struct OneRowsArgs {
  OneRowArgs of[kSideBySide];
};
constexpr bool goes_side_by_side(const OneRowArgs& args) {
  return args.chunks <= kPassUnits && (args.type == DType::q4_k || args.type == DType::q6_k);
}

int launch_one_rows(const OneRowsArgs& args, const Stream& stream);
int launch_one_row(const OneRowArgs& args, const Stream& stream);

}  // namespace conclave::cuda
