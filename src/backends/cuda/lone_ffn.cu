#include "backends/cuda/activation.cuh"
#include "backends/cuda/lone_row.cuh"
#include "backends/cuda/route_token.cuh"

namespace conclave::cuda {
namespace {

#if CONCLAVE_HOPPER
// The token's experts, by kLoneThreads threads: an expert's slot is how many are better. As route_token() chooses them,
// where the order of the logits decides. kExperts: at most; several threads share one.
template <int kExperts>
struct Ranks {
  std::uint32_t key[kExperts];

  // Can be chosen from after a barrier.
  __device__ __forceinline__ void load(const float* logits, int n_experts) {
    const auto e = static_cast<int>(threadIdx.x);
    // Not from the nearest cache: it may hold what was there before.
    if (e < kExperts) key[e] = e < n_experts ? order_of(ordered(__ldcg(logits + e))) : 0;  // less than any
  }
  // The slots can be read after another one.
  __device__ __forceinline__ void choose(int n_experts, int top_k, std::int32_t* slots) const {
    constexpr unsigned kSharers = kLoneThreads / kExperts;
    const unsigned e = threadIdx.x / kSharers;
    const std::uint32_t mine = key[e];
    int better = 0;
#pragma unroll
    for (unsigned from = 0; from < kExperts; from += 4 * kSharers) {
      const unsigned first = from + threadIdx.x % kSharers * 4;
      const uint4 four = *reinterpret_cast<const uint4*>(key + first);
#pragma unroll
      for (unsigned j = 0; j < 4; ++j) {
        const auto other = static_cast<std::uint32_t>(word_of(four, static_cast<int>(j)));
        if (other > mine - (first + j < e ? 1 : 0)) ++better;  // of equals the lower one is better
      }
    }
#pragma unroll
    for (unsigned half = 1; half < kSharers; half *= 2) better += __shfl_xor_sync(kAllLanes, better, half);
    if (threadIdx.x % kSharers == 0 && static_cast<int>(e) < n_experts && better < top_k) {
      slots[better] = static_cast<std::int32_t>(e);
    }
  }
};

#endif

template <DType type, int kExperts, int kHalves>
__global__ void __launch_bounds__(kLoneThreads, 2)
    lone_gate_up(const __grid_constant__ LoneFfnArgs args, const __grid_constant__ LoneSpace space) {
#if CONCLAVE_HOPPER
  extern __shared__ __align__(16) std::byte lone_bytes[];
  __shared__ __align__(16) Ranks<kExperts> ranks;
  __shared__ std::int32_t experts[kWarp];
  const LoneBlock block{lone_bytes, space};
  const unsigned lane = threadIdx.x % kWarp;
  const auto top_k = static_cast<int>(args.how.rule.top_k);
  const LoneItems items(block);
  LoneRun run({.k = args.d_model});
  begin();  // from here on logits can be read: what comes next does that before it waits for this kernel
  run.load(args.x);
  ranks.load(args.logits, args.how.n_experts);
  const bool live = live_count(args.live) > 0;
  __syncthreads();
  ranks.choose(args.how.n_experts, top_k, experts);
  __syncthreads();

  // The expert that an item is a column of; the column in its place.
  const auto slot_of = [&](int& item) {
    const int slot = static_cast<int>(static_cast<unsigned>(item) / static_cast<unsigned>(args.d_ff));
    item -= slot * args.d_ff;
    return slot;
  };
  const auto bytes = [&](int) { return space.column_bytes; };
  const auto source = [&](int item, int up) {
    const std::int64_t expert = experts[slot_of(item)];
    return up == 0 ? args.gate + expert * args.gate_expert + item * args.gate_column
                   : args.up + expert * args.up_expert + item * args.up_column;
  };
  items.begin_copies(2, bytes, source);
  bool unusual = false;
  if (run.has) unusual = put_superblock(block, items.warp, run.v);
  const bool plain = __syncthreads_or(unusual) != 0;

  const auto multiply = [&](int, const std::byte* weights, float2* terms) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const unsigned mine = half * kPassUnits + lane / 4;
      const unsigned c = min(mine, static_cast<unsigned>(space.chunks) - 1);
      const typename QuarterUnit<type>::Place place(c, lane % 4, space.chunks);
      LoneQuarter<type> row;
      row.load(block, c, lane % 4);
#pragma unroll 1
      for (int up = 0; up < 2; ++up) {
        multiply_units<type>(weights + up * space.column_bytes, place, mine == c, row, terms + up * space.chunks + c);
      }
    }
  };
  const auto finish = [&](int item, const float2* terms, int count) {
    // Lane 2 i has gate of item i, the next one up.
    int column = item + static_cast<int>(lane / 2) * kLoneWarps;
    const int slot = slot_of(column);
    const bool mine = static_cast<int>(lane) < 2 * count;
    float y = 0;
    if (mine && plain) {
      const std::int64_t expert = experts[slot];
      const std::byte* w = lane % 2 == 0 ? args.gate + expert * args.gate_expert + column * args.gate_column
                                         : args.up + expert * args.up_expert + column * args.up_column;
      y = plain_dot({reinterpret_cast<const std::byte*>(args.x), DType::f32, w, type, !is_affine(type), args.d_model});
    } else if (mine) {
      y = column_total<type>(terms + lane * space.chunks, space.chunks);
    }
    const float up = __shfl_down_sync(kAllLanes, y, 1);
    if (lane % 2 == 0 && mine && live) args.hidden[slot * args.hidden_stride + column] = gated(args.act, y, up);
  };
  items.run(
      2, bytes, source, [](int) {}, multiply, finish);
#endif
}

template <DType type, int kExperts>
__global__ void __launch_bounds__(kLoneThreads, 2)
    lone_down(const __grid_constant__ LoneFfnArgs args, const __grid_constant__ LoneSpace space) {
#if CONCLAVE_HOPPER
  extern __shared__ __align__(16) std::byte lone_bytes[];
  __shared__ __align__(16) Ranks<kExperts> ranks;
  __shared__ std::int32_t experts[kWarp];
  __shared__ float weights_of[kWarp];
  const LoneBlock block{lone_bytes, space};
  const unsigned lane = threadIdx.x % kWarp;
  const auto top_k = static_cast<int>(args.how.rule.top_k);
  const LoneItems items(block);
  // lone_gate_up, which comes before this kernel, lets it start when the logits are there.
  ranks.load(args.logits, args.how.n_experts);
  __syncthreads();
  ranks.choose(args.how.n_experts, top_k, experts);
  __syncthreads();
  const auto bytes = [&](int) { return space.column_bytes; };
  const auto source = [&](int column, int slot) {
    return args.down + experts[slot] * args.down_expert + column * args.down_column;
  };
  items.begin_copies(top_k, bytes, source);
  RoutedSlot slot{};  // what the experts' outputs are multiplied with: there is time for it
  if (items.warp == 0) {
    constexpr int kPer = kExperts / kWarp;
    float logits[kPer];
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const int e = i * kWarp + static_cast<int>(lane);
      logits[i] = e < args.how.n_experts ? __ldcg(args.logits + e) : lowest();
    }
    slot = route_token(args.how, logits, nullptr);
    weights_of[lane] = slot.weight;
  }
  begin();
  const bool live = live_count(args.live) > 0;
  bool unusual = false;
  // Rows of two superblocks are on their way together.
  for (int first = static_cast<int>(items.warp); first < space.item_units; first += 2 * kLoneWarps) {
    Run v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int u = min(first + i * kLoneWarps, space.item_units - 1);
      const int s = u * space.by_chunks >> 16;
      load_run<true>(DType::f32, reinterpret_cast<const std::byte*>(args.hidden + s * args.hidden_stride),
                     kChunk * (u - s * space.chunks) + kRunLength * lane, 0, v[i]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int u = first + i * kLoneWarps;
      if (u < space.item_units) unusual = put_superblock(block, u, v[i]) || unusual;
    }
  }
  if (blockIdx.x == 0 && items.warp == 0 && live) {
    if (static_cast<int>(lane) < top_k) {
      args.experts[lane] = slot.expert;
      args.weights[lane] = slot.weight;
      count_chosen(args.counts, slot.expert);
    }
    if (!slot.usable && lane == 0 && args.no_finite != nullptr) count_unusable(args.no_finite, 1);
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
  const auto multiply = [&](int, const std::byte* weights, float2* terms) {
#pragma unroll 1
    for (int first = 0; first < space.item_units; first += kPassUnits) {
      const int mine = first + static_cast<int>(lane / 4);
      const int u = min(mine, space.item_units - 1);
      const int s = u * space.by_chunks >> 16;
      LoneQuarter<type> row;
      row.load(block, u, lane % 4);
      const typename QuarterUnit<type>::Place place(u - s * space.chunks, lane % 4, space.chunks);
      multiply_units<type>(weights + s * space.column_bytes, place, mine == u, row, terms + u);
    }
  };
  const auto finish = [&](int item, const float2* terms, int count) {
    // Lane top_k i + s has what expert s gives of item i.
    float y = 0;
    if (static_cast<int>(lane) < top_k * count) {
      y = column_total<type>(terms + lane * space.chunks, space.chunks);
      if (plain) {
        const int i = static_cast<int>(lane) / top_k;
        const int s = static_cast<int>(lane) - i * top_k;
        bool its_row = false;
        for (int c = 0; c < space.chunks; ++c) its_row = its_row || isnan(block.scales()[s * space.chunks + c]);
        if (its_row) {
          y = plain_dot({reinterpret_cast<const std::byte*>(args.hidden + s * args.hidden_stride), DType::f32,
                         args.down + experts[s] * args.down_expert + (item + i * kLoneWarps) * args.down_column, type,
                         !is_affine(type), args.d_ff});
        }
      }
    }
    float sum = 0;
#pragma unroll 4
    for (int s = 0; s < top_k; ++s) {
      sum = fmaf(weights_of[s], __shfl_sync(kAllLanes, y, static_cast<int>(lane) * top_k + s), sum);
    }
    if (static_cast<int>(lane) >= count || !live) return;
    if (args.shared != nullptr) sum += shared;
    args.residual[item + static_cast<int>(lane) * kLoneWarps] = before + sum;
  };
  items.run(top_k, bytes, source, start, multiply, finish);
#endif
}

template <int kExperts, int kHalves>
auto gate_up_for(DType type) {
  return type == DType::q4_k   ? lone_gate_up<DType::q4_k, kExperts, kHalves>
         : type == DType::q6_k ? lone_gate_up<DType::q6_k, kExperts, kHalves>
                               : lone_gate_up<DType::q5_k, kExperts, kHalves>;
}
template <int kExperts>
auto down_for(DType type) {
  return type == DType::q4_k   ? lone_down<DType::q4_k, kExperts>
         : type == DType::q6_k ? lone_down<DType::q6_k, kExperts>
                               : lone_down<DType::q5_k, kExperts>;
}

}  // namespace

int launch_lone_gate_up(const LoneFfnArgs& args, const Stream& stream) {
  const LoneSpace space = lone_space(lone_gate_up_shape(args));
  const bool few = args.how.n_experts <= kLoneFewExperts;
  const bool whole = space.chunks <= kPassUnits;
  const auto kernel =
      few ? (whole ? gate_up_for<kLoneFewExperts, 1>(args.type) : gate_up_for<kLoneFewExperts, 2>(args.type))
          : (whole ? gate_up_for<kLoneExperts, 1>(args.type) : gate_up_for<kLoneExperts, 2>(args.type));
  return launch(kernel, {.blocks = args.blocks, .threads = kLoneThreads, .shared_bytes = space.bytes}, stream, args,
                space);
}

int launch_lone_down(const LoneFfnArgs& args, const Stream& stream) {
  const LoneSpace space = lone_space(lone_down_shape(args));
  const auto kernel = args.how.n_experts <= kLoneFewExperts ? down_for<kLoneFewExperts>(args.down_type)
                                                            : down_for<kLoneExperts>(args.down_type);
  return launch(kernel, {.blocks = args.blocks, .threads = kLoneThreads, .shared_bytes = space.bytes}, stream, args,
                space);
}

}  // namespace conclave::cuda
