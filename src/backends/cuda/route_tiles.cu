#include "backends/cuda/grouping.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/route_tiles_plan.h"
#include "backends/cuda/route_token.cuh"

namespace conclave::cuda {
namespace {

constexpr int kHalf = kWarp / 2;

// What the first launch leaves to the second.
struct TileLists {
  RouteTiles cut;
  std::uint32_t* bits;    // [tiles][n_experts]
  std::uint32_t* counts;  // [tiles][count_words]
};

// `kPlain`: is_plain(), and no token has more than kHalf slots.
template <int kPer, bool kPlain>
__global__ void __launch_bounds__(kRouteTileWarps* kWarp, kPer <= 4 ? 3 : 1)
    route_tile(const __grid_constant__ RouteGroupArgs args, const TileLists lists) {
  begin();
  extern __shared__ std::uint32_t tile_words[];
  __shared__ std::int32_t unusable;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  constexpr int kThreads = kRouteTileWarps * kWarp;
  const RouteRule how = known_rule<kPlain>(args.how);
  const std::int32_t n_experts = how.n_experts;
  const auto top_k = static_cast<std::int32_t>(how.rule.top_k);
  const std::int32_t words = (n_experts + 3) / 4;
  const auto tile = static_cast<std::int32_t>(blockIdx.x);
  const auto n_tokens = static_cast<std::int32_t>(args.logits.dims[0]);
  std::uint32_t* own = tile_words;  // [n_experts], up to whole words of counts
  std::uint32_t* group_words = own + 4 * words + warp * n_experts;

  // A warp has one token or two; of both, the logits are asked for at once.
  const std::int32_t first = tile * lists.cut.tokens + warp;
  const std::int32_t end = min(first - warp + lists.cut.tokens, n_tokens);
  float logits[2][kPer];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int32_t t = first + i * kRouteTileWarps;
    if (t < end) load_logits(kPlain ? DType::f32 : args.logits.type, row_of(args.logits, t), n_experts, logits[i]);
  }
  const std::int32_t live_end = min(end, static_cast<std::int32_t>(live_rows(args.live, n_tokens)));
  for (std::int32_t e = thread; e < 4 * words; e += kThreads) own[e] = 0;
  if (thread == 0) unusable = 0;
  __syncthreads();

  const auto leave = [&](std::int32_t token, std::int32_t slot, std::int32_t expert, float weight) {
    const std::int32_t t = first + token * kRouteTileWarps;
    atomicOr(&own[expert], 1U << (warp + token * kRouteTileWarps));
    int_at(args.experts, t, slot) = expert;
    float_at(args.weights, t, slot) = weight;
    count_chosen(args.counts, expert);
  };
  ChosenSlot slot{};
  int chosen = 0;
#pragma unroll 1
  for (; chosen < 2 && first + chosen * kRouteTileWarps < live_end; ++chosen) {
    const ChosenSlot one = choose_slot(how, logits[0], group_words);
    if (!one.usable && lane == 0) atomicAdd(&unusable, 1);
    if constexpr (kPlain) {  // weighed together: half of the lanes have a slot of the one, half of the other
      const std::int32_t expert = __shfl_sync(kAllLanes, one.expert, lane % kHalf);
      const float logit = __shfl_sync(kAllLanes, one.logit, lane % kHalf);
      if (lane / kHalf == chosen) slot = {expert, logit, one.max, one.total, one.usable};
    } else {
      const float weight = slot_weight(how, one);
      if (lane < top_k) leave(chosen, lane, one.expert, weight);
    }
#pragma unroll
    for (int i = 0; i < kPer; ++i) logits[0][i] = logits[1][i];
  }
  if constexpr (kPlain) {
    const float weight = slot_weight<kHalf>(how, slot);
    if (lane / kHalf < chosen && lane % kHalf < top_k) leave(lane / kHalf, lane % kHalf, slot.expert, weight);
  }
  __syncthreads();
  if (thread == 0 && args.no_finite != nullptr && unusable > 0) count_unusable(args.no_finite, unusable);
  for (std::int32_t e = thread; e < n_experts; e += kThreads) lists.bits[tile * n_experts + e] = own[e];
  for (std::int32_t w = thread; w < words; w += kThreads) {
    unsigned four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) four |= static_cast<unsigned>(__popc(own[4 * w + i])) << (8 * i);
    lists.counts[tile * words + w] = four;
  }
}

// sums[slice][expert]: how many pairs the slice's tiles have. By the whole block.
__device__ __forceinline__ void add_up_slices(const TileLists& lists, std::int32_t words, std::int32_t* sums) {
  const std::int32_t all = lists.cut.slices * words;
#pragma unroll 2
  for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < all; i += kPlacingThreads) {
    const std::int32_t slice = i / words;
    const std::int32_t first = slice * lists.cut.per_slice;
    const std::int32_t end = min(first + lists.cut.per_slice, lists.cut.tiles);
    unsigned even = 0;  // 16 bits each
    unsigned odd = 0;
#pragma unroll 4
    for (std::int32_t tile = first; tile < end; ++tile) {
      const unsigned four = lists.counts[tile * words + i - slice * words];
      even += four & 0x00FF00FFU;
      odd += four >> 8 & 0x00FF00FFU;
    }
    reinterpret_cast<int4*>(sums)[i] = make_int4(static_cast<int>(even & 0xFFFFU), static_cast<int>(odd & 0xFFFFU),
                                                 static_cast<int>(even >> 16), static_cast<int>(odd >> 16));
  }
}

__global__ void __launch_bounds__(kPlacingThreads)
    place_tiles(const __grid_constant__ RouteGroupArgs args, const TileLists lists) {
  begin();
  extern __shared__ std::int32_t place_words[];
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t n_experts = args.how.n_experts;
  const std::int32_t words = (n_experts + 3) / 4;
  const auto top_k = static_cast<std::int32_t>(args.how.rule.top_k);
  const auto n_tokens = static_cast<std::int32_t>(args.logits.dims[0]);
  const auto slice = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t first_tile = slice * lists.cut.per_slice;
  const std::int32_t tiles = min(lists.cut.per_slice, lists.cut.tiles - first_tile);
  std::int32_t* sums = place_words;                                                        // [slices][4 * words]
  auto* bits = reinterpret_cast<std::uint32_t*>(sums + lists.cut.slices * 4 * words);      // [tiles][n_experts]
  auto* before = reinterpret_cast<std::int32_t*>(bits + lists.cut.per_slice * n_experts);  // likewise
  std::int32_t* offsets = before + lists.cut.per_slice * n_experts;                        // [n_experts + 1]

  // The block's pairs. Of the first of them the experts are asked for at once.
  const std::int32_t first_token = first_tile * lists.cut.tokens;
  const std::int32_t tokens = min(tiles * lists.cut.tokens, n_tokens - first_token);
  const auto n_live = static_cast<std::int32_t>(live_rows(args.live, n_tokens)) - first_token;
  const auto expert_at = [&](std::int32_t pair) {
    const std::int32_t token = pair / top_k;
    return token < min(tokens, n_live) ? int_at(args.experts, first_token + token, pair - token * top_k) : -1;
  };
  std::int32_t expert = expert_at(thread);
  for (std::int32_t i = thread; i < tiles * n_experts; i += kPlacingThreads) {
    bits[i] = lists.bits[first_tile * n_experts + i];
  }
  add_up_slices(lists, words, sums);
  __syncthreads();
  block_offsets(n_experts, offsets, [&](std::int32_t e) {
    std::int32_t earlier = 0;
    std::int32_t all = 0;
#pragma unroll 8
    for (std::int32_t s = 0; s < lists.cut.slices; ++s) {
      if (s == slice) earlier = all;
      all += sums[s * 4 * words + e];
    }
    for (std::int32_t i = 0; i < tiles; ++i) {
      before[i * n_experts + e] = earlier;
      earlier += __popc(bits[i * n_experts + e]);
    }
    return all;
  });

  for (std::int32_t pair = thread; pair < tokens * top_k; pair += kPlacingThreads) {
    const std::int32_t token = pair / top_k;
    const std::int32_t slot = pair - token * top_k;
    std::int32_t row = -1;
    if (expert >= 0) {
      const std::int32_t tile = token / lists.cut.tokens;
      const std::int32_t at = tile * n_experts + expert;
      const std::uint32_t lower = (1U << (token - tile * lists.cut.tokens)) - 1U;
      row = offsets[expert] + before[at] + __popc(bits[at] & lower);
      args.row_pair[row] = first_token * top_k + pair;
    }
    int_at(args.pair_row, first_token + token, slot) = row;
    expert = expert_at(pair + kPlacingThreads);
  }
  if (slice == 0) {
    for (std::int32_t e = thread; e <= n_experts; e += kPlacingThreads) args.offsets[e] = offsets[e];
  }
  for (std::int32_t r = offsets[n_experts] + slice * kPlacingThreads + thread; r < n_tokens * top_k;
       r += lists.cut.slices * kPlacingThreads) {
    args.row_pair[r] = -1;
  }
}

}  // namespace

int launch_route_tiles(const RouteGroupArgs& args, std::byte* scratch, const Stream& stream) {
  const std::int64_t n_tokens = args.logits.dims[0];
  const std::int64_t n_experts = args.how.n_experts;
  TileLists lists{.cut = route_tiles(n_tokens), .bits = reinterpret_cast<std::uint32_t*>(scratch), .counts = nullptr};
  lists.counts = lists.bits + lists.cut.tiles * n_experts;
  const LaunchPlan plan = route_tiles_plan(n_tokens, n_experts, args.how.rule);
  const int error = by_experts_per_lane<16>(n_experts, [&](auto per) -> int {
    constexpr int kPer = decltype(per)::value;
    if constexpr (kPer <= kPlainPer) {
      if (is_plain(args.how, args.logits.type) && args.how.rule.top_k <= kHalf) {
        return launch(route_tile<kPer, true>, plan, stream, args, lists);
      }
    }
    return launch(route_tile<kPer, false>, plan, stream, args, lists);
  });
  return error == cudaSuccess ? launch(place_tiles, place_tiles_plan(n_tokens, n_experts), stream, args, lists) : error;
}

}  // namespace conclave::cuda
