// What host and kernels say to each other: the argument structs of every kernel, and which buffer is bound where.
//
// Both compilers include this file. Structs hold 64-bit numbers first, then 32-bit ones, so that their layout is the same
// everywhere; the host asserts their sizes. Buffers are named by the enum inside each struct: entry i is [[buffer(i + 1)]].
#pragma once

#if defined(__METAL_VERSION__) || defined(CONCLAVE_METAL_SHIM)
typedef long MetalInt64;
#else
#include <cstdint>
namespace conclave::metal {
using MetalInt64 = std::int64_t;
#endif

// The values of DType; the host asserts it.
enum ElementType {
  kF32,
  kF16,
  kBF16,
  kI32,
  kU32,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,  // clang-format off
  kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K, kIQ4_NL, kIQ4_XS, kMXFP4,  // clang-format on
};

enum : int {
  kMaxBuffers = 14,  // of one kernel
  kSimdWidth = 32,   // threads of a simdgroup
  kUnit = 16,        // weights that are decoded at a time; every block format holds a multiple of it
  kFewColumns = 4,   // columns of a simdgroup in products of few rows; with gate and up, half as many of each
  kFewSimds = 4,     // simdgroups of their threadgroups
  kFewRows = 4,      // rows that meet a decoded weight
  kTileRows = 32,    // rows, weight rows and depth of a tile in products of many rows
  kTileWeights = 64,
  kTileDepth = 32,
  kTileThreads = 128,
  kTileSharedBytes = (64 + 32) * 32 * 4,
  kAttentionRows = 32,     // of attention_tiles: rows (a token's head each), positions and slice of a tile
  kAttentionValues = 128,  // the widest value that it takes
  kAttentionThreads = 128,
  kAttentionSharedBytes = (3 * 32 * 32 + 32 * 128 + 6 * 32 + 32) * 4,
};

// A tensor: bytes from the bound address, dimensions outermost first, strides in bytes. rank 0: it was not given.
struct View {
  MetalInt64 offset;
  MetalInt64 dims[4];
  MetalInt64 strides[4];
  int type;
  int rank;
};

struct AddArgs {
  enum { kA, kB, kLive, kOut };
  View a, b, live, out;
  int in_place;  // 1: a is out itself, 2: b is; it is not bound a second time
  int reserved;
};

struct SiluMulArgs {
  enum { kGate, kUp, kLive, kOut };
  View gate, up, live, out;
  int in_place;  // 1: gate is out, 2: up is
  int reserved;
};

struct EmbedArgs {
  enum { kIds, kTable, kLive, kOut };
  View ids, table, live, out;
};

struct NormArgs {
  enum { kX, kWeight, kLive, kOut };
  View x, weight, live, out;
  float eps;
  int in_place;
};

struct SoftmaxArgs {
  enum { kX, kLive, kOut };
  View x, live, out;
  float scale;
  int in_place;
};

struct ArgmaxArgs {
  enum { kX, kLive, kIds };
  View x, live, ids;
};

struct TopKArgs {
  enum { kX, kLive, kIds, kValues };
  View x, live, ids, values;
};

struct RopeArgs {
  enum { kX, kPositions, kFrequencies, kFactors, kLive, kOut };
  View x, positions, factors, live, out;
  MetalInt64 frequencies;  // offset of f32 [n_rot / 2]: without the model's own factors
  int n_rot;
  int interleaved;
  float magnitude;
  int in_place;
};

struct KvWriteArgs {
  enum { kK, kV, kSeqs, kPositions, kLive, kKPool, kVPool, kPages };
  View k, v, seqs, positions, live, k_pool, v_pool, pages;
};

struct AttentionArgs {
  enum { kQ, kKPool, kVPool, kPages, kLengths, kSeqs, kPositions, kLive, kOut };
  View q, k_pool, v_pool, pages, lengths, seqs, positions, live, out;
  float scale;
  int tile_tokens;  // of attention_tiles: tokens of a threadgroup
};

// moe_route. Scores are numbered as conclave::Score.
struct RouteArgs {
  enum { kLogits, kBias, kScale, kLive, kExperts, kWeights, kNoFinite, kGroupsIn, kTimesChosen };
  View logits, bias, expert_scale, live, experts, weights, no_finite, counts;
  MetalInt64 groups_in;  // offset of i32 [n_tokens, n_groups]: which groups stay
  int top_k;
  int score;
  int renormalize;
  float scale;
  int n_groups;
  int top_groups;
  int sum_of_two;
  int by_logit;  // the order of the logits decides alone
};

// All grouping ops. A list that was not asked for has rank 0.
struct GroupArgs {
  enum {
    kExperts,
    kLive,
    kCounts,
    kOffsets,
    kRowPair,
    kPairRow,
    kIds,
    kTpe,
    kMaxRows,
    kGrids,
    kSorted,
    kBlockExpert,
    kPadded,
    kTiles
  };
  View experts, live;
  View offsets, row_pair, pair_row;  // row_pair: with by_token, tokens
  View ids, tpe, max_rows, grid_gate_up;
  View grid_down;  // bound as kTiles: an op that has it has no tiles
  View sorted_ids, block_expert, n_padded;
  MetalInt64 counts;    // offset of i32 [3 * n_experts]: scratch
  MetalInt64 tiles;     // offset of i32 [4 * max_tiles]
  MetalInt64 finished;  // offset of i32 [n_tokens], behind the tiles
  MetalInt64 grids;     // offset of u32 [2][3] in kGrids: product grids of the tiles
  int n_experts;
  int by_token;
  int packed_ids;
  int block_size;
  int nr0;
  int nr1;
  int d_ff;
  int d_model;
  int tile_rows;  // 0: no tiles
  int max_tiles;
  int gate_groups;  // threadgroups over the columns, of the two products
  int down_groups;
};

// Both in one dispatch. Buffers 0 .. 8 are those of RouteArgs.
struct RouteGroupArgs {
  enum { kScratch = 9, kRowPair, kPairRow };
  RouteArgs route;
  GroupArgs group;
};

// Which rows meet which weights, for products: tiles of at most some rows of one expert.
//
// tile t is i32 [4]: expert, first slot, slots, columns to compute. A slot names a row of x and a row of the output.
struct RowTable {
  MetalInt64 tiles;  // offset of the tiles
  MetalInt64 from;   // offset of i32 [n_slots]: rows of x, times from_step
  MetalInt64 to;     // offset of i32 [n_slots]: rows of the output
  int form;          // kDenseRows: one tile after another of the rows themselves
  int from_step;     // 0: slot i is row i of x
  int has_to;        // 0: slot i is row i of the output
  int rows;          // dense: how many
};
enum RowForm { kDenseRows, kTiledRows };

struct ProductArgs {
  enum { kX, kW, kUp, kBias, kLive, kTiles, kFrom, kTo, kOut, kShared };
  View x, w, up, bias, live, out;
  RowTable table;
  int act;  // of gate and up: conclave::Activation
  int reserved;
};

// The down product of a fused layer: the threadgroup that ends a token's last row combines it.
struct FinishArgs {
  enum { kX, kW, kTiles, kFrom, kExpertOut, kFinished, kPairRow, kWeights, kShared, kResidual, kNormWeight, kNormed };
  View x, w, pair_row, weights, shared, residual, norm_weight, normed;
  RowTable table;
  MetalInt64 expert_out;  // offset of f32 [n_pairs, d_model], read and written as atomics
  MetalInt64 finished;    // offset of i32 [n_tokens]: parts of rows that are there
  MetalInt64 row_pair;    // offset of i32 [n_pairs] in kFrom
  int top_k;
  float eps;
};

struct CanonicalArgs {
  enum { kX, kW, kBias, kLive, kOut };
  View x, w, bias, live, out;
};

struct CombineArgs {
  enum { kRows, kWeights, kPairRow, kExperts, kShared, kLive, kOut, kResidual, kNormWeight, kNormed };
  View rows, weights, pair_row, experts, shared, live, out, residual, norm_weight, normed;
  int n_experts;
  float eps;
};

struct ShareArgs {
  enum { kX, kGateInp, kY, kLive, kOut };
  View x, gate_inp, y, live, out;
};

// Lists of any form made into a RowTable. Nothing in them is trusted.
struct TableArgs {
  enum { kOffsets, kRowPair, kIds, kTpe, kGrid, kSorted, kBlockExpert, kPadded, kScratch, kOwner };
  View offsets, row_pair, ids, tpe, grid, sorted_ids, block_expert, n_padded;
  MetalInt64 owner;  // offsets in scratch: i32 [2 * n_outputs]
  MetalInt64 lists;  // i32 [2 * n_lists + 2]
  MetalInt64 tiles;
  MetalInt64 from;
  MetalInt64 to;
  MetalInt64 grids;    // u32 [3]: the product's
  MetalInt64 n_slots;  // of all lists, as they stand
  int form;            // TableForm
  int n_lists;
  int n_experts;
  int n_outputs;
  int n_from;
  int top_k;
  int per_pair;
  int packed_ids;
  int block_size;
  int nr0;
  int nr1;
  int columns;
  int tile_rows;
  int max_tiles;
  int column_groups;
  int columns_of_group;
};
enum TableForm { kGroupedPairs, kListedPairs, kBlockPairs, kPackedTokens, kPackedRows };

struct FillArgs {
  enum { kOut };
  View out;
  int first;
  int value;
};

#if !defined(__METAL_VERSION__) && !defined(CONCLAVE_METAL_SHIM)
}  // namespace conclave::metal
#endif
