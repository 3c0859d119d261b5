// What attention's kernels share: what a token sees, where it lies, which rows a block has.
#pragma once

#include "backends/cuda/attention_plan.h"
#include "backends/cuda/kv_place.cuh"

namespace conclave::cuda {

// Token t sees the cached positions before this one.
__device__ __forceinline__ std::int64_t visible_end(const AttentionArgs& args, std::int64_t t) {
  const std::int64_t seq = int_at(args.seqs, t);
  if (seq < 0 || seq >= args.lengths.dims[0]) return 0;
  const std::int64_t own = static_cast<std::int64_t>(int_at(args.positions, t)) + 1;
  const std::int64_t length = int_at(args.lengths, seq);
  const std::int64_t end = min(min(own, length), args.context);
  return end < 0 ? 0 : end;
}

// Where the rows of a unit lie: bytes from the start of the pools; k is -1 where a position is not there.
struct RowPlace {
  long long k = -1;
  long long v = -1;
};

// `at.page` is none, or one of the pools.
__device__ __forceinline__ RowPlace rows_at(const AttentionArgs& args, std::int64_t kv_head, const DevicePlace& at) {
  if (at.page < 0) return {};
  return {at.page * args.k.strides[0] + at.slot * args.k.strides[1] + kv_head * args.k.strides[2],
          at.page * args.v.strides[0] + at.slot * args.v.strides[1] + kv_head * args.v.strides[2]};
}

__device__ __forceinline__ RowPlace locate(const AttentionArgs& args, std::int64_t seq, std::int64_t kv_head,
                                           std::int64_t position, std::int64_t end) {
  if (position >= end) return {};
  return rows_at(args, kv_head, place_of(args.kv, seq, position));
}

// How many positions of a unit that starts at `begin` lie before `end`.
__device__ __forceinline__ int seen_of(long long end, long long begin) {
  return static_cast<int>(min(max(end - begin, 0LL), static_cast<long long>(kUnit)));
}

// The rows of a block.
struct Rows {
  std::int64_t first_token = 0;
  std::int64_t first_head = 0;
  int n_heads = 1;
  int n = 0;  // 0: there is nothing to do
  std::int32_t seq = 0;
  std::int32_t kv_head = 0;
  std::int32_t slice = 0;  // of d_v
  std::int32_t worker = 0;

  __device__ std::int64_t token(int row) const { return first_token + row / n_heads; }
  __device__ std::int64_t head(int row) const { return first_head + row % n_heads; }
};

// Whether live tokens `first` .. `first` + n - 1 are of one sequence. By whole warps, each for itself.
__device__ __forceinline__ bool of_one_sequence(const AttentionArgs& args, std::int64_t first, std::int64_t n,
                                                std::int64_t n_live) {
  const std::int32_t seq = int_at(args.seqs, first);
  bool same = true;
  // Tokens that are not live are read, too: none waits for the live count.
  for (std::int64_t i = threadIdx.x % kWarp; i < n && first + i < args.q.dims[0]; i += kWarp) {
    const std::int32_t other = int_at(args.seqs, first + i);
    same = same && (other == seq || first + i >= n_live);
  }
  return __all_sync(kAllLanes, same) != 0;
}

// First workers come first: where contexts are short the others have nothing to do. Then later tokens, which see more.
// Every thread of the block comes here.
__device__ __forceinline__ Rows rows_of(const AttentionArgs& args, const AttentionCut& cut, std::int64_t item,
                                        std::int64_t n_live) {
  Rows rows;
  // A group has fewer than 2^32: each has elements of the output.
  const auto slices = static_cast<std::uint32_t>(cut.slices);
  const auto parts = static_cast<std::uint32_t>(cut.head_parts);
  const std::uint32_t per_group = static_cast<std::uint32_t>(args.k.dims[2]) * parts * slices;
  if (cut.workers > 1) {
    rows.worker = static_cast<std::int32_t>(item / (cut.n_groups * per_group));
    item %= cut.n_groups * per_group;
  }
  const std::int64_t group = cut.n_groups - 1 - item / per_group;
  auto rest = static_cast<std::uint32_t>(item % per_group);
  rows.slice = static_cast<std::int32_t>(rest % slices);
  rest /= slices;
  const std::int64_t part = rest % parts;
  rows.kv_head = static_cast<std::int32_t>(rest / parts);
  rows.first_token = group * cut.n_tokens;
  rows.seq = int_at(args.seqs, rows.first_token);  // asked for before the live count is needed
  if (rows.first_token >= n_live) return rows;
  if (cut.run > 0) {
    if (of_one_sequence(args, rows.first_token / cut.run * cut.run, cut.run, n_live)) return rows;
  } else if (cut.n_tokens > 1) {
    if (!of_one_sequence(args, rows.first_token, cut.n_tokens, n_live)) return rows;
  }
  const std::int64_t n_tokens = min(cut.n_tokens, n_live - rows.first_token);
  rows.n_heads = static_cast<int>(min(static_cast<std::int64_t>(cut.n_heads), args.group - part * cut.n_heads));
  rows.n = static_cast<int>(n_tokens) * rows.n_heads;
  rows.first_head = static_cast<std::int64_t>(rows.kv_head) * args.group + part * cut.n_heads;
  return rows;
}

}  // namespace conclave::cuda
