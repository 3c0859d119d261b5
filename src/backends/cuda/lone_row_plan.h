// Decoding one token: a row's products with superblock weights, in as few launches and as little code as can be. Bits as
// in product_plan.h. For Hopper.
//
// A launch is a block a multiprocessor, since blocks cost time to start. Its items are taken in rounds, in each of
// which a warp has one: a column; a column of gate and the same of up; or, of down, a column of each of the token's
// experts. The weights of a round come to shared memory by copies that are asked for ahead of time: for matrices that
// are known, before the kernel waits for the one before it, and for `down` while gate and up are still multiplied
// (experts are chosen again for that; it is cheap). The row is made int8 by every block, after an RMSNorm where it
// wants one. Four lanes share a superblock; what each adds to an output goes through shared memory and is added in
// order.
//
// Bound: instructions, most of which found out where things are: hence addresses of 32 bits, sizes that the compiler
// knows, and rare code that is elsewhere. H200, 2026-11-16, lost: for gate and up one copy for sixteen columns (11.7
// instead of 7.8 us: many copies bring more at a time) and copies of 16 bytes a lane (9.5); logits that the kernel
// after the router polls for (2% slower than to wait for its end).
//
//   lone_rows     up to three matrices side by side; the product may be added to a residual
//   lone_router   a norm, and the plain product of what it gives, in the canonical order
//   lone_gate_up  routing, gate, up and the activation
//   lone_down     down, the weighted sum over experts, the residual
#pragma once

#include "backends/cuda/moe_route_plan.h"
#include "backends/cuda/one_row_plan.h"
#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

inline constexpr int kLoneThreads = 512;
inline constexpr int kLoneWarps = kLoneThreads / kWarp;
inline constexpr int kLoneAhead = 3;         // rounds of items on their way, at most
inline constexpr int kLoneUnits = 64;        // superblocks of an item, at most
inline constexpr int kLoneMatrices = 3;      // side by side
inline constexpr int kLoneChunks = 16;       // of a row that is normed or meets whole matrices: a warp has one
inline constexpr int kLoneFewExperts = 128;  // a lane has four of them
inline constexpr int kLoneExperts = 256;     // at most
inline constexpr std::int64_t kLoneShared = 200 * 1024;  // of a block, at most

// What of a block's shared memory lies where, in bytes, and how items are taken.
struct LoneSpace {
  std::int32_t chunks = 0;      // of a column
  std::int32_t by_chunks = 0;   // u / chunks is u * by_chunks / 2^16, for u up to kLoneUnits
  std::int32_t item_units = 0;  // superblocks of an item
  std::int32_t column_bytes = 0;
  std::int32_t item_bytes = 0;
  std::int32_t per_block = 0;  // items, or one more
  std::int32_t longer = 0;     // the first so many blocks have one more
  std::int32_t ahead = 0;      // rounds that there is room for: in each a warp has an item
  std::int32_t held = 1;       // items whose terms a warp holds before it sums them up
  std::int32_t scales = 0;
  std::int32_t sums = 0;
  std::int32_t floats = 0;  // the row after its norm
  std::int32_t terms = 0;
  std::int32_t barriers = 0;
  std::int32_t ring = 0;
  std::int32_t bytes = 0;
  bool goes_round = false;  // there are more rounds than there is room for
};

struct LoneShape {
  std::int64_t row_units = 0;   // superblocks of all rows that meet weights
  std::int64_t row_floats = 0;  // of a normed row; 0: there is none
  std::int64_t chunks = 0;
  std::int64_t columns = 1;  // of an item
  std::int64_t column_bytes = 0;
  std::int64_t items = 0;
  std::int64_t blocks = 1;
};
constexpr LoneSpace lone_space(const LoneShape& shape) {
  const auto narrow = [](std::int64_t n) { return static_cast<std::int32_t>(n); };
  const std::int64_t units = shape.chunks * shape.columns;
  const std::int64_t per_warp = ceil_div(ceil_div(shape.items, shape.blocks), kLoneWarps);
  LoneSpace at;
  at.chunks = narrow(shape.chunks);
  at.by_chunks = narrow(65536 / shape.chunks + 1);
  at.item_units = narrow(units);
  at.column_bytes = narrow(shape.column_bytes);
  at.item_bytes = narrow(shape.column_bytes * shape.columns);
  at.per_block = narrow(shape.items / shape.blocks);
  at.longer = narrow(shape.items % shape.blocks);
  at.ahead = narrow(std::min<std::int64_t>(kLoneAhead, per_warp));
  at.goes_round = per_warp > kLoneAhead;
  at.held =
      narrow(std::max<std::int64_t>(1, std::min({per_warp, kLoneUnits / units, std::int64_t{kWarp} / shape.columns})));
  at.scales = narrow(ceil_div(shape.row_units, 2) * 2 * kChunk);
  at.sums = narrow(at.scales + ceil_div(shape.row_units, 4) * 16);
  at.floats = narrow(at.sums + shape.row_units * 16);
  at.terms = narrow(at.floats + ceil_div(shape.row_floats, 4) * 16);
  at.barriers = narrow(at.terms + std::int64_t{kLoneWarps} * at.held * units * 8);
  at.ring = narrow(at.barriers + std::int64_t{kLoneWarps} * kLoneAhead * 8);
  at.bytes = narrow(at.ring + std::int64_t{kLoneWarps} * at.ahead * at.item_bytes);
  return at;
}
// Whether it fits: then it works for any number of items.
constexpr bool lone_fits(const LoneShape& shape) {
  return shape.chunks >= 1 && shape.columns <= kWarp && shape.chunks * shape.columns <= kLoneUnits && shape.items > 0 &&
         shape.items < (std::int64_t{1} << 30) && lone_space(shape).bytes <= kLoneShared;
}
static_assert(lone_fits({8, 2048, 8, 1, 1680, 5120, 132}) && lone_fits({16, 4096, 16, 1, 3360, 100000, 132}));
static_assert(lone_fits({24, 0, 3, 8, 640, 2048, 132}) && !lone_fits({112, 0, 56, 2, 8064, 4096, 132}));
static_assert(lone_space({8, 0, 8, 2, 1152, 6144, 132}).ahead == 3);

// Bytes of a column of so many superblocks, as they lie in memory.
constexpr std::int64_t lone_column_bytes(DType type, std::int64_t chunks) {
  return type == DType::q6_k ? PlanesQ6K{chunks}.row_bytes() : chunks * block_bytes(type);
}

// The row, of whole chunks, aligned to 16 bytes.
struct LoneRow {
  const float* x = nullptr;
  const float* norm_weight = nullptr;  // null: no norm
  float* normed = nullptr;             // block 0 leaves it there
  float eps = 0;
  std::int32_t k = 0;
};

struct LoneMatrix {
  const std::byte* w = nullptr;
  std::int64_t column = 0;  // bytes from column to column
  float* out = nullptr;
  const float* bias = nullptr;
  std::int32_t n = 0;
  std::int32_t bytes = 0;  // of a column
  DType type = DType::q4_k;
};
struct LoneRowsArgs {
  LoneRow row;
  LoneMatrix of[kLoneMatrices];
  float* residual = nullptr;  // of one matrix: the product is added to it, too
  const std::int32_t* live = nullptr;
  std::int64_t least_shared = 0;  // bytes of shared memory that a block asks for at least
  std::int32_t count = 1;
  std::int32_t blocks = 1;
};
constexpr LoneShape lone_rows_shape(const LoneRowsArgs& args) {
  LoneShape shape{.row_units = args.row.k / kChunk,
                  .row_floats = args.row.norm_weight != nullptr ? args.row.k : 0,
                  .chunks = args.row.k / kChunk,
                  .blocks = args.blocks};
  for (int i = 0; i < args.count; ++i) {
    shape.items += args.of[i].n;
    shape.column_bytes = std::max<std::int64_t>(shape.column_bytes, args.of[i].bytes);
  }
  return shape;
}
int launch_lone_rows(const LoneRowsArgs& args, const Stream& stream);

struct LoneRouterArgs {
  LoneRow row;
  const float* w = nullptr;
  std::int64_t column = 0;  // floats
  const float* bias = nullptr;
  float* out = nullptr;
  const std::int32_t* live = nullptr;
  std::int32_t n = 0;
  std::int32_t blocks = 1;
};
// Columns of a block: a warp each.
constexpr std::int64_t lone_router_columns(std::int64_t n, std::int64_t blocks) {
  return ceil_div(n, blocks);
}
constexpr std::int64_t lone_router_shared(std::int64_t n, std::int64_t k, std::int64_t blocks) {
  return (1 + lone_router_columns(n, blocks)) * k * 4 + kLoneWarps * 8;
}
int launch_lone_router(const LoneRouterArgs& args, const Stream& stream);

// Of lone_gate_up and lone_down, which follow one another on the stream.
struct LoneFfnArgs {
  RouteRule how;
  const float* logits = nullptr;
  std::int32_t* experts = nullptr;
  float* weights = nullptr;
  std::int32_t* no_finite = nullptr;
  std::int32_t* counts = nullptr;  // [n_experts], or none
  const std::int32_t* live = nullptr;
  const float* x = nullptr;  // d_model
  const std::byte* gate = nullptr;
  const std::byte* up = nullptr;
  const std::byte* down = nullptr;
  std::int64_t gate_expert = 0;  // bytes from expert to expert
  std::int64_t up_expert = 0;
  std::int64_t down_expert = 0;
  std::int64_t gate_column = 0;  // bytes from column to column
  std::int64_t up_column = 0;
  std::int64_t down_column = 0;
  float* hidden = nullptr;  // [top_k, d_ff]
  std::int64_t hidden_stride = 0;
  const float* shared = nullptr;  // [d_model], or none: what the shared expert gives
  float* residual = nullptr;      // [d_model]
  std::int32_t d_model = 0;
  std::int32_t d_ff = 0;
  std::int32_t blocks = 1;
  DType type = DType::q4_k;  // of gate and up
  DType down_type = DType::q4_k;
  Activation act = Activation::silu;
};
constexpr LoneShape lone_gate_up_shape(const LoneFfnArgs& args) {
  const std::int64_t chunks = args.d_model / kChunk;
  return {.row_units = chunks,
          .chunks = chunks,
          .columns = 2,
          .column_bytes = lone_column_bytes(args.type, chunks),
          .items = std::int64_t{args.how.rule.top_k} * args.d_ff,
          .blocks = args.blocks};
}
constexpr LoneShape lone_down_shape(const LoneFfnArgs& args) {
  const std::int64_t chunks = args.d_ff / kChunk;
  const std::int64_t top_k = args.how.rule.top_k;
  return {.row_units = top_k * chunks,
          .chunks = chunks,
          .columns = top_k,
          .column_bytes = lone_column_bytes(args.down_type, chunks),
          .items = args.d_model,
          .blocks = args.blocks};
}
int launch_lone_gate_up(const LoneFfnArgs& args, const Stream& stream);
int launch_lone_down(const LoneFfnArgs& args, const Stream& stream);

}  // namespace conclave::cuda
