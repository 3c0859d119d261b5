// Heads and attention of one token in one launch: what head_rows_plan.h does and then what attention_mma_plan.h says, with
// the bits of both. Heads of 128 elements, up to eight for a KV head; pages of whole units; a context of up to 2,048
// positions.
//
// The blocks of a cluster have one KV head. Each makes the queries, and key and value, by itself, and has every 16th unit of
// the context, two at a time. What a unit comes to is sent to the blocks that merge it, each of which has half a row: no
// block reads what another has, and none waits for more than it merges. Some warps ask for keys and values that earlier
// steps left, and do not wait for the kernel before; the others have the heads, which it leaves.
#pragma once

#include "backends/cuda/attention_mma_plan.h"

namespace conclave::cuda {

inline constexpr int kLoneHeadWidth = 128;
inline constexpr int kLoneHeadPieces = kLoneHeadWidth / 8;  // of 16 bytes, of a row of f16
inline constexpr int kLoneGroup = 8;                        // heads of a KV head, at most
inline constexpr int kLoneCluster = 16;
inline constexpr int kLonePart = kLoneGroup * kLoneHeadWidth / kLoneCluster;  // elements that a block merges
inline constexpr int kLoneAtOnce = 2;                                         // units that a block computes together
inline constexpr int kLoneHeldUnits = 2;         // whose keys and values a block has room for, at most
inline constexpr int kLoneMaxUnits = 32;         // of a context: over longer ones long_heads_plan.h is faster
inline constexpr int kLoneOwnUnits = kWarp - 1;  // of a block, at most: a lane each, and the last for the token's own
inline constexpr int kLonePairs = kLoneHeadWidth / 2;
inline constexpr int kLoneHeadWarps = kLoneGroup / 2 + 1;  // have heads, two each: queries; key and value
inline constexpr int kLoneCopyWarps = kUnitWarps - kLoneHeadWarps;
static_assert(kLonePart * 2 == kLoneHeadWidth);

// Rows of the token, by head.
struct LoneHeadRows {
  std::byte* data = nullptr;
  std::int64_t step = 0;  // bytes

  LoneHeadRows() = default;
  explicit LoneHeadRows(const View& v) : data(v.data), step(v.strides[1]) {}
};
struct LoneHeadNorm {
  const std::byte* weight = nullptr;  // null: there is none
  DType type = DType::f32;
};
struct LoneHeadPool {
  std::byte* data = nullptr;
  std::int64_t page = 0;  // bytes from page to page, and so on
  std::int64_t slot = 0;
  std::int64_t head = 0;

  LoneHeadPool() = default;
  explicit LoneHeadPool(const View& v) : data(v.data), page(v.strides[0]), slot(v.strides[1]), head(v.strides[2]) {}
};

// A pool as copies of whole units see it (CUtensorMap).
struct alignas(128) LonePoolMap {
  std::byte bytes[128];
};

struct LoneHeadsArgs {
  LonePoolMap k_map;
  LonePoolMap v_map;
  LoneHeadRows q;  // f32, as products leave them; then normed and rotated
  LoneHeadRows k;
  LoneHeadRows v;
  LoneHeadRows out;  // f32
  LoneHeadNorm q_norm;
  LoneHeadNorm k_norm;
  LoneHeadPool k_pool;  // f16
  LoneHeadPool v_pool;
  KvPages kv;
  View lengths;
  const std::int32_t* seq = nullptr;
  const std::int32_t* position = nullptr;
  const std::int32_t* live = nullptr;
  std::int64_t context = 0;
  double magnitude = 1;
  double frequencies[kLonePairs] = {};
  float eps = 0;
  float scale = 1;
  std::int32_t group = 1;
  std::int32_t n_kv_heads = 1;
  std::int32_t max_units = 0;  // of the context
  bool early = false;          // what came before the op before this one is all that it reads beside q, k and v
};

// Units whose keys and values a block has room for.
constexpr int lone_held_units(std::int64_t max_units) {
  return static_cast<int>(ceil_div(max_units, kLoneCluster));
}
static_assert(lone_held_units(kLoneMaxUnits) <= kLoneHeldUnits);
// Bytes: queries; weights; maxima; what the context is; two numbers per unit of the block; one per row; barriers.
inline constexpr std::int64_t kLoneUnitsFixed =
    2 * kLoneGroup * 2 * kLoneHeadWidth +
    kLoneAtOnce * (kLoneGroup * kWeightPieces * 16 + kLoneGroup * kUnitWarps * 4) + 32 + kWarp * 8 + kLoneGroup * 4 +
    kLoneHeldUnits * 8;
// And ranges' sums, a barrier. Before it keys and values; after it, of each unit of the context, its part of the rows,
// and two numbers.
inline constexpr std::int64_t kLoneHeadsFixed = kLoneUnitsFixed + kLoneMaxUnits / kRangeUnits * 8 + 16;
inline constexpr std::int64_t kLoneUnitBytes = 2 * kUnit * 2 * kLoneHeadWidth;
constexpr std::int64_t lone_heads_shared(std::int64_t max_units) {
  return kLoneHeadsFixed + lone_held_units(max_units) * kLoneUnitBytes + max_units * (kLonePart * 4 + 8);
}
static_assert(lone_heads_shared(kLoneMaxUnits) + 93 * 1024 <= 226 * 1024);  // beside the products before it

constexpr LaunchPlan lone_heads_plan(const LoneHeadsArgs& args) {
  return {.blocks = std::int64_t{args.n_kv_heads} * kLoneCluster,
          .threads = kUnitWarps * kWarp,
          .shared_bytes = lone_heads_shared(args.max_units),
          .cluster = kLoneCluster};
}

// `map` of [n_pages, page_size, n_kv_heads, 128] numbers of f16. An error where the GPU or its driver has none.
int make_lone_pool_map(const View& pool, LonePoolMap& map);
// How many of its clusters run at once on the current GPU; 0: it has none.
int lone_heads_clusters(std::int64_t max_units);
int launch_lone_heads(const LoneHeadsArgs& args, const Stream& stream);

}  // namespace conclave::cuda
