#include "backends/cuda/cluster.cuh"
#include "backends/cuda/grouping.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/route_group_plan.h"
#include "backends/cuda/route_token.cuh"
#include "backends/cuda/row_bank.cuh"

namespace conclave::cuda {
namespace {

__device__ __forceinline__ void fill_rows(const RowBank& bank, int block, int blocks) {
  const auto warps = static_cast<int>(blockDim.x) / kWarp;
  for (std::int64_t i = block * warps + static_cast<int>(threadIdx.x) / kWarp; i < bank.n_rows * bank.chunks;
       i += blocks * warps) {
    fill_chunk(bank, i);
  }
}

// `blocks`: those that route, all of one cluster.
template <int kPer, bool kPlain>
__global__ void __launch_bounds__(kMostRouting* kWarp)
    route_group(const __grid_constant__ RouteGroupArgs args, const int blocks) {
  begin();
  if (static_cast<int>(blockIdx.x) >= blocks) {
    fill_rows(args.bank, static_cast<int>(blockIdx.x) - blocks, static_cast<int>(gridDim.x) - blocks);
    return;
  }
  extern __shared__ std::uint32_t route_words[];
  __shared__ std::int32_t unusable;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto threads = static_cast<int>(blockDim.x);
  const auto rank = static_cast<int>(blockIdx.x);
  const RouteRule how = known_rule<kPlain>(args.how);
  const std::int32_t n_experts = how.n_experts;
  const auto top_k = static_cast<std::int32_t>(how.rule.top_k);
  const auto n_tokens = static_cast<std::int32_t>(args.logits.dims[0]);
  std::uint32_t* bits = route_words;                                                        // [blocks][n_experts]
  auto* before = reinterpret_cast<std::int32_t*>(bits + std::int64_t{blocks} * n_experts);  // [n_experts]
  std::int32_t* offsets = before + n_experts;                                               // [n_experts + 1]
  auto* group_words = reinterpret_cast<std::uint32_t*>(offsets + n_experts + 1);            // [warps][n_experts]
  std::uint32_t* own = bits + std::int64_t{rank} * n_experts;

  // Asked for before the live count is known.
  const std::int32_t t = rank * (threads / kWarp) + warp;
  float logits[kPer];
  if (t < n_tokens) load_logits(kPlain ? DType::f32 : args.logits.type, row_of(args.logits, t), n_experts, logits);
  const bool routed = t < live_rows(args.live, n_tokens);
  if (blocks > 1) arrive_at_cluster();
  for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < n_experts; e += threads) own[e] = 0;
  if (threadIdx.x == 0) unusable = 0;
  __syncthreads();

  ChosenSlot slot{};
  if (routed) {
    slot = choose_slot(how, logits, group_words + warp * n_experts);
    if (lane < top_k) atomicOr(&own[slot.expert], 1U << warp);
    if (!slot.usable && lane == 0) atomicAdd(&unusable, 1);
  }
  __syncthreads();
  if (blocks > 1) {
    await_cluster();  // the others are there
    for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < n_experts; e += threads) {
      const std::uint32_t word = own[e];
      for (int r = 0; r < blocks; ++r) {
        if (r != rank) store_in_cluster(address_in_block(own + e, r), word);
      }
    }
    __syncwarp();
    arrive_at_cluster();
  }
  if (routed) {  // while the others arrive
    const float weight = slot_weight(how, slot);
    if (lane < top_k) {
      int_at(args.experts, t, lane) = slot.expert;
      float_at(args.weights, t, lane) = weight;
      count_chosen(args.counts, slot.expert);
    }
  }
  if (threadIdx.x == 0 && args.no_finite != nullptr && unusable > 0) count_unusable(args.no_finite, unusable);
  __syncwarp();
  if (blocks > 1) await_cluster();

  block_offsets(n_experts, offsets, [&](std::int32_t e) {
    std::int32_t earlier = 0;
    std::int32_t all = 0;
    for (int r = 0; r < blocks; ++r) {
      if (r == rank) earlier = all;
      all += __popc(bits[r * n_experts + e]);
    }
    before[e] = earlier;
    return all;
  });
  if (t < n_tokens && lane < top_k) {
    std::int32_t row = -1;
    if (routed) {
      row = offsets[slot.expert] + before[slot.expert] + __popc(own[slot.expert] & ((1U << warp) - 1U));
      args.row_pair[row] = t * top_k + lane;
    }
    int_at(args.pair_row, t, lane) = row;
  }
  if (rank != 0) return;
  for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e <= n_experts; e += threads) {
    args.offsets[e] = offsets[e];
  }
  for (std::int32_t r = offsets[n_experts] + static_cast<std::int32_t>(threadIdx.x); r < n_tokens * top_k;
       r += threads) {
    args.row_pair[r] = -1;
  }
}

}  // namespace

int launch_route_group(const RouteGroupArgs& args, bool clusters, const Stream& stream) {
  LaunchPlan plan = route_group_plan(args.logits.dims[0], args.how.n_experts, args.how.rule, clusters);
  const auto routing = static_cast<int>(plan.blocks);
  plan.blocks += filling_blocks(args.bank.q != nullptr ? args.bank.n_rows * args.bank.chunks : 0, plan);
  return by_experts_per_lane<32>(args.how.n_experts, [&](auto per) -> int {
    constexpr int kPer = decltype(per)::value;
    if constexpr (kPer <= kPlainPer) {
      if (is_plain(args.how, args.logits.type)) return launch(route_group<kPer, true>, plan, stream, args, routing);
    }
    return launch(route_group<kPer, false>, plan, stream, args, routing);
  });
}

}  // namespace conclave::cuda
