#include "backends/cuda/activation.cuh"
#include "backends/cuda/lone_ring.cuh"
#include "backends/cuda/route_token.cuh"

namespace conclave::cuda {
namespace {

#if CONCLAVE_HOPPER
// The warp that finds out which experts a token has: the last one, which has the least to do with the row.
inline constexpr unsigned kLoneRouter = kLoneWarps - 1;

// The token's experts of slots up to `last`, by one warp, as route_token() chooses them where the order of the logits
// decides. Lane l has the experts from kPer l on.
template <int kPer>
__device__ __forceinline__ void choose_experts(const LoneFfnArgs& args, int last, std::int32_t* experts) {
  const int n_experts = args.how.n_experts;
  const int first = kPer * (static_cast<int>(threadIdx.x) % kWarp);
  float logit[kPer];
  std::uint32_t key[kPer];
  // Not from the nearest cache: it may hold what was there before.
#pragma unroll
  for (int i = 0; i < kPer; ++i) logit[i] = first + i < n_experts ? __ldcg(args.logits + first + i) : 0;
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const std::uint32_t order = order_of(ordered(logit[i]));
    key[i] = first + i < n_experts ? order : 0;  // less than any
  }
#pragma unroll 1
  for (int slot = 0; slot <= last; ++slot) {
    std::uint32_t own = key[0];
#pragma unroll
    for (int i = 1; i < kPer; ++i) own = max(own, key[i]);
    const std::uint32_t best = __reduce_max_sync(kAllLanes, own);
    const unsigned with = __ballot_sync(kAllLanes, own == best);
    const bool wins = own == best && (with & lanes_before()) == 0;  // of equals the lower one is better
    bool taken = !wins;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const bool takes = !taken && key[i] == best;
      if (takes) {
        experts[slot] = first + i;
        key[i] = 0;
      }
      taken = taken || takes;
    }
  }
}

// Leaves the token's routing, its experts being known, as route_token() gives it. By one warp.
template <int kPer>
__device__ __noinline__ void leave_routing(const LoneFfnArgs& args, const std::int32_t* experts, bool live) {
  const RouteRule& how = args.how;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float l[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const int e = i * kWarp + lane;
    l[i] = e < how.n_experts ? __ldcg(args.logits + e) : lowest();
  }
  const bool has = lane < how.rule.top_k;
  const std::int32_t expert = has ? experts[lane] : 0;
  const float own = has ? __ldcg(args.logits + expert) : lowest();
  const LogitSurvey<kPer> row(how, l);
  const float weight = slot_weight(how, {expert, from_order(order_of(ordered(own))), row.max, row.total, row.usable});
  if (!live) return;
  if (has) {
    args.experts[lane] = expert;
    args.weights[lane] = weight;
    count_chosen(args.counts, expert);
  }
  if (!row.usable && lane == 0 && args.no_finite != nullptr) count_unusable(args.no_finite, 1);
}
#endif

// kExperts: at most. kChunks: as in lone_row.cuh; where it is not 0 all items are on their way at once.
template <DType type, int kExperts, int kChunks>
__global__ void __launch_bounds__(kLoneThreads, 2)
    lone_gate_up(const __grid_constant__ LoneFfnArgs args, const __grid_constant__ LoneSpace space) {
#if CONCLAVE_HOPPER
  extern __shared__ __align__(16) std::byte lone_bytes[];
  __shared__ std::int32_t experts[kWarp];
  const LoneBlock block(lone_bytes, space);
  const unsigned lane = threadIdx.x % kWarp;
  LoneItems items(block);
  const int column_bytes = kChunks > 0 ? static_cast<int>(lone_column_bytes(type, kChunks)) : space.column_bytes;
  const auto slot_of = [&](int of) {
    return static_cast<int>(static_cast<unsigned>(of) / static_cast<unsigned>(args.d_ff));
  };
  const auto offset_of = [&](int of, int slot) { return (of - slot * args.d_ff) * column_bytes; };
  const auto column_at = [&](int slot, int offset, int up) {
    const std::int64_t expert = experts[slot];
    return (up == 0 ? args.gate + expert * args.gate_expert : args.up + expert * args.up_expert) + offset;
  };
  auto ring = lone_warp_ring<kChunks == 0>(
      items, column_bytes, [&](int of, int up) { return column_at(slot_of(of), offset_of(of, slot_of(of)), up); });
  LoneRun<kChunks> run({.k = args.d_model});
  // What can be found out before the experts are known: divisions take time.
  const auto last_slot = static_cast<int>(kept(blockIdx.x == 0 ? args.how.rule.top_k - 1 : slot_of(items.last - 1)));
  const auto own_slot = static_cast<int>(kept(slot_of(ring.first_item(items))));
  const auto own_offset = static_cast<int>(kept(offset_of(ring.first_item(items), own_slot)));
  const bool routes = items.warp == kLoneRouter;
  wait_for_earlier();
  run.load(args.x);
  if (routes) choose_experts<kExperts / kWarp>(args, last_slot, experts);
  __syncthreads();
  let_next_start();  // no sooner: its copies should come after these
  if (ring.has_first(items)) ring.ask(ring.nth(), column_at(own_slot, own_offset, static_cast<int>(lane % 2)));
  const bool live = live_count(args.live) > 0;
  bool unusual = false;
  if (run.has) unusual = put_superblock(block, items.warp, quantize_lane(run.v));
  const bool plain = __syncthreads_or(unusual) != 0;
  if (blockIdx.x == 0 && routes) leave_routing<kExperts / kWarp>(args, experts, live);

  const LonePass<type, kChunks> pass(block);
  const auto multiply = [&](unsigned weights, unsigned terms) {
#pragma unroll
    for (int up = 0; up < 2; ++up) {
      pass.multiply_column(weights + up * column_bytes, terms + up * 8 * pass.chunks());
    }
  };
  const auto finish = [&](int item, int count) {
    // Lane 2 i has gate of item i, the next one up.
    const int of = item + static_cast<int>(lane / 2) * kLoneWarps;
    const int slot = slot_of(of);
    const int column = of - slot * args.d_ff;
    const bool mine = static_cast<int>(lane) < 2 * count;
    float y = 0;
    if (mine && plain) [[unlikely]] {
      y = plain_column(args.x, column_at(slot, offset_of(of, slot), static_cast<int>(lane % 2)), type, args.d_model);
    } else if (mine) {
      y = column_total<type, kChunks>(items.terms + lane * 8 * pass.chunks(), space.chunks);
    }
    const float up = __shfl_down_sync(kAllLanes, y, 1);
    if (lane % 2 == 0 && mine && live) args.hidden[slot * args.hidden_stride + column] = gated(args.act, y, up);
  };
  items.run(
      items.last, ring, [](int) {}, multiply, finish);
#endif
}

// kTopK: the token's experts, where kChunks is not 0.
template <DType type, int kExperts, int kChunks, int kTopK>
__global__ void __launch_bounds__(kLoneThreads, 2)
    lone_down(const __grid_constant__ LoneFfnArgs args, const __grid_constant__ LoneSpace space) {
#if CONCLAVE_HOPPER
  extern __shared__ __align__(16) std::byte lone_bytes[];
  __shared__ std::int32_t experts[kWarp];
  __shared__ float weights_of[kWarp];
  const LoneBlock block(lone_bytes, space);
  const unsigned lane = threadIdx.x % kWarp;
  const int top_k = kTopK > 0 ? kTopK : static_cast<int>(args.how.rule.top_k);
  const int chunks = kChunks > 0 ? kChunks : space.chunks;
  const int units = top_k * chunks;
  const int column_bytes = kChunks > 0 ? static_cast<int>(lone_column_bytes(type, kChunks)) : space.column_bytes;
  LoneItems items(block);
  // lone_gate_up, which comes before this kernel, lets it start when the logits are there.
  if (items.warp == kLoneRouter) choose_experts<kExperts / kWarp>(args, top_k - 1, experts);
  __syncthreads();
  // A lane copies the columns of an expert.
  const auto copy_of = [&](int slot, int column, int count) {
    LoneCopy copy;
    if (slot < top_k) {
      copy = {args.down + experts[slot] * args.down_expert + column * args.down_column,
              slot * kLoneWarps * column_bytes, count * column_bytes};
    }
    return copy;
  };
  auto ring = lone_ring<kChunks == 0>(items, copy_of);
  begin();
  if (items.warp == kLoneRouter && static_cast<int>(lane) < top_k) weights_of[lane] = __ldcg(args.weights + lane);
  const bool live = live_count(args.live) > 0;
  bool unusual = false;
  // Rows of two superblocks are on their way together.
#pragma unroll(kChunks > 0 ? 2 : 1)
  for (int first = static_cast<int>(items.warp); first < units; first += 2 * kLoneWarps) {
    Run v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int u = min(first + i * kLoneWarps, units - 1);
      const int s = u * space.by_chunks >> 16;
      load_run<true>(DType::f32, reinterpret_cast<const std::byte*>(args.hidden + s * args.hidden_stride),
                     kChunk * (u - s * chunks) + kRunLength * lane, 0, v[i]);
    }
    const QuantizedLane q[2] = {quantize_lane(v[0]), quantize_lane(v[1])};
    unusual = put_superblock(block, first, q[0]) || unusual;
    if (first + kLoneWarps < units) unusual = put_superblock(block, first + kLoneWarps, q[1]) || unusual;
  }
  const bool plain = __syncthreads_or(unusual) != 0;

  float before = 0;  // of the residual and the shared expert, of item `lane` of those that are summed up together
  float shared = 0;
  const auto start = [&](int item) {
    const int column = item + static_cast<int>(lane) * kLoneWarps;
    if (static_cast<int>(lane) >= space.held || column >= items.last) return;
    before = args.residual[column];
    if (args.shared != nullptr) shared = args.shared[column];
  };
  const LonePass<type, kChunks> pass(block);
  const auto multiply = [&](unsigned weights, unsigned terms) {
#pragma unroll(kChunks > 0 ? kLoneUnits / kPassUnits : 1)
    for (int first = 0; first < units; first += kPassUnits) {
      const int mine = first + static_cast<int>(pass.lane / 4);
      const int u = kTopK * kChunks % kPassUnits == 0 && kChunks > 0 ? mine : min(mine, units - 1);
      const int s = kChunks > 0 ? u / kChunks : u * space.by_chunks >> 16;
      pass.multiply(weights + (s * kLoneWarps + static_cast<int>(items.warp)) * column_bytes, chunks, u, u - s * chunks,
                    mine == u, terms);
    }
  };
  const auto finish = [&](int item, int count) {
    // Lane top_k i + s has what expert s gives of item i.
    float y = 0;
    if (static_cast<int>(lane) < top_k * count) {
      y = column_total<type, kChunks>(items.terms + lane * chunks * 8, chunks);
      if (plain) [[unlikely]] {
        const int i = static_cast<int>(lane) / top_k;
        const int s = static_cast<int>(lane) - i * top_k;
        bool its_row = false;
        for (int c = 0; c < chunks; ++c) its_row = its_row || isnan(block.scales()[s * chunks + c]);
        if (its_row) {
          y = plain_column(args.hidden + s * args.hidden_stride,
                           args.down + experts[s] * args.down_expert + (item + i * kLoneWarps) * args.down_column, type,
                           args.d_ff);
        }
      }
    }
    float sum = 0;
#pragma unroll(kTopK > 0 ? kTopK : 4)
    for (int s = 0; s < top_k; ++s) {
      sum = fmaf(weights_of[s], __shfl_sync(kAllLanes, y, static_cast<int>(lane) * top_k + s), sum);
    }
    if (static_cast<int>(lane) >= count || !live) return;
    if (args.shared != nullptr) sum += shared;
    args.residual[item + static_cast<int>(lane) * kLoneWarps] = before + sum;
  };
  items.run(items.last, ring, start, multiply, finish);
#endif
}

template <int kExperts, int kChunks>
auto gate_up_for(DType type) {
  return type == DType::q4_k   ? lone_gate_up<DType::q4_k, kExperts, kChunks>
         : type == DType::q6_k ? lone_gate_up<DType::q6_k, kExperts, kChunks>
                               : lone_gate_up<DType::q5_k, kExperts, kChunks>;
}
template <int kExperts, int kChunks, int kTopK>
auto down_for(DType type) {
  return type == DType::q4_k   ? lone_down<DType::q4_k, kExperts, kChunks, kTopK>
         : type == DType::q6_k ? lone_down<DType::q6_k, kExperts, kChunks, kTopK>
                               : lone_down<DType::q5_k, kExperts, kChunks, kTopK>;
}

}  // namespace

int launch_lone_gate_up(const LoneFfnArgs& args, const Stream& stream) {
  const LoneSpace space = lone_space(lone_gate_up_shape(args));
  const bool few = args.how.n_experts <= kLoneFewExperts;
  const auto kernel = few && space.chunks == 8 && !space.goes_round ? gate_up_for<kLoneFewExperts, 8>(args.type)
                      : few                                         ? gate_up_for<kLoneFewExperts, 0>(args.type)
                                                                    : gate_up_for<kLoneExperts, 0>(args.type);
  return launch(kernel, {.blocks = args.blocks, .threads = kLoneThreads, .shared_bytes = space.bytes}, stream, args,
                space);
}

int launch_lone_down(const LoneFfnArgs& args, const Stream& stream) {
  const LoneSpace space = lone_space(lone_down_shape(args));
  const bool few = args.how.n_experts <= kLoneFewExperts;
  const auto kernel = few && space.chunks == 3 && args.how.rule.top_k == 8 && !space.goes_round
                          ? down_for<kLoneFewExperts, 3, 8>(args.down_type)
                      : few ? down_for<kLoneFewExperts, 0, 0>(args.down_type)
                            : down_for<kLoneExperts, 0, 0>(args.down_type);
  return launch(kernel, {.blocks = args.blocks, .threads = kLoneThreads, .shared_bytes = space.bytes}, stream, args,
                space);
}

}  // namespace conclave::cuda
