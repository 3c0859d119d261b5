#include "backends/cuda/pair_lists_plan.h"

#include "backends/cuda/activation.cuh"
#include "backends/cuda/bulk_copy.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/pair_rows.cuh"
#include "backends/cuda/plain_dot.cuh"
#include "backends/cuda/read_once.cuh"
#include "backends/cuda/whole_unit.cuh"

namespace conclave::cuda {
namespace {

// A warp's strips on their way to its ring, as they are its turn. A slot has a tile, or one of gate and one of up, each
// with a barrier.
template <bool kGateUp>
struct StripCopies {
  static constexpr int kTiles = kGateUp ? 2 : 1;
  const OneRowArgs& args;
  const PairCut& cut;
  PairShared& shared;
  unsigned ring;
  unsigned arrived;
  int lead;         // the list whose strips come first
  int first_count;  // they are so many
  int end;          // of both
  int next = 0;     // to be asked for
  int next_slot = 0;
  int pending = 0;
  int slot = 0;  // to be read next
  unsigned parity = 0;

  // Who asks has the next strip that nobody has.
  __device__ __forceinline__ void take() {
    if (threadIdx.x % kWarp == 0) next = atomicAdd(&shared.next, 1);
  }
  // Tile i of the next strip; after the last of them it is another one's turn.
  template <int i>
  __device__ __forceinline__ void ask() {
#if __CUDA_ARCH__ >= 900
    if (i == 0) next = __shfl_sync(kAllLanes, next, 0);
    if (next >= end) return;
    if (threadIdx.x % kWarp == 0) {
      const bool second = next >= first_count;
      const ListPart& part = shared.parts[second ? 1 - lead : lead];
      const int at = (second ? next - first_count : next) * cut.tile_bytes;
      const unsigned barrier = arrived + 8 * (kTiles * next_slot + i);
      const int bytes = min(cut.tile_bytes, part.bytes - at);
      if (i == 0) shared.strip[threadIdx.x / kWarp][next_slot] = next;
      expect_bytes(barrier, bytes);
      copy_bulk_once(ring + (kTiles * next_slot + i) * cut.tile_bytes, (i == 0 ? part.w : part.up) + at, bytes,
                     barrier);
    }
    if constexpr (i == kTiles - 1) {
      if (++next_slot == cut.slots) next_slot = 0;
      ++pending;
      take();
    }
#endif
  }
  __device__ __forceinline__ void ask_strip() {
    ask<0>();
    if constexpr (kGateUp) ask<1>();
  }
  // Tile i of the slot that is read, once it is there.
  __device__ __forceinline__ unsigned await(int i) const {
#if __CUDA_ARCH__ >= 900
    barrier_wait_awake(arrived + 8 * (kTiles * slot + i), parity);
#endif
    return ring + (kTiles * slot + i) * cut.tile_bytes;
  }
  __device__ __forceinline__ void pass() {
    --pending;
    if (++slot == cut.slots) {
      slot = 0;
      parity ^= 1U;
    }
  }
};

// What a warp has multiplied and not yet added up: of some strips and rows what each superblock adds.
template <DType type, bool kGateUp>
struct WarpTerms {
  static constexpr int kLanes = kGateUp ? kWarp / 2 : kWarp;  // those of up are the upper lanes
  const OneRowArgs& args;
  const PairCut& cut;
  const PairShared& shared;
  using Term = std::conditional_t<is_affine(type), float2, float>;
  Term* at;    // [strip][tile][unit]
  int sum_of;  // the strip whose sum the lane makes: none past the last
  int column;  // and the column
  int tile;
  int count = 0;
  int mine = 0;  // what the lane's is: strip, part and row
  unsigned plain = 0;

  __device__ __forceinline__ WarpTerms(const OneRowArgs& of, const PairCut& by, const PairShared& in, std::byte* to)
      : args(of), cut(by), shared(in), at(reinterpret_cast<Term*>(to)) {
    const int lane = threadIdx.x % kWarp;
    tile = lane / kLanes;
    sum_of = lane % kLanes / cut.columns;
    column = lane % kLanes - sum_of * cut.columns;
  }
  __device__ __forceinline__ void put(int of_tile, Term term) const {
    at[(count * (kGateUp ? 2 : 1) + of_tile) * kWarp + threadIdx.x % kWarp] = term;
  }
  // The strip has been put.
  __device__ __forceinline__ void end_strip(int strip, int part, int row, bool is_plain) {
    if (sum_of == count) mine = (strip * kBlockLists + part) * kListRows + row;
    if (is_plain) plain |= 1U << count;
    if (++count == cut.together) add_up();
  }
  static __device__ __forceinline__ float with(float y, float2 term) { return (y + term.x) - term.y; }
  static __device__ __forceinline__ float with(float y, float term) { return y + term; }
  __device__ __forceinline__ void add_up() {
    __syncwarp();
    const Term* terms = at + (min(sum_of, count - 1) * (kGateUp ? 2 : 1) + tile) * kWarp + column * args.chunks;
    constexpr int kTermsAtOnce = 4;
    float y = 0.0F;
#pragma unroll 1
    for (int from = 0; from < args.chunks; from += kTermsAtOnce) {
#pragma unroll
      for (int c = 0; c < kTermsAtOnce; ++c) {
        const Term term = terms[from + c];  // past the last chunk: whatever lies there
        y = from + c < args.chunks ? with(y, term) : y;
      }
    }
    const ListPart& part = shared.parts[mine / kListRows % kBlockLists];
    const int of_column = mine / (kBlockLists * kListRows) * cut.columns + column;
    const bool there = sum_of < count && of_column < args.n;
    const std::int64_t pair = part.pair[mine % kListRows];
    if (there && (plain >> sum_of & 1U) != 0) {
      const std::byte* w = tile == 1 ? args.up + part.expert * args.up_expert : args.w + part.expert * args.w_expert;
      y = plain_dot<false>({reinterpret_cast<const std::byte*>(args.x + pair / args.x_step * args.x_stride), DType::f32,
                            w + of_column * args.w_column, type, !is_affine(type), args.k});
    }
    if constexpr (kGateUp) y = gated(args.act, y, __shfl_down_sync(kAllLanes, y, kLanes));
    if (there && tile == 0) args.out[pair * args.out_stride + of_column] = y;
    count = 0;
    plain = 0;
    __syncwarp();  // all have been read
  }
};

template <DType type, bool kGateUp>
__global__ void __launch_bounds__(kPairThreads, 2)
    pair_lists(const __grid_constant__ OneRowArgs args, const __grid_constant__ PairCut cut) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) int4 shared_words[];
  __shared__ PairShared shared;
  const int lane = threadIdx.x % kWarp;
  const int warp = threadIdx.x / kWarp;
  const int chunks = args.chunks;
  auto* const rings = reinterpret_cast<std::byte*>(shared_words);
  auto* const after_rings = rings + kPairWarps * cut.ring_bytes;
  auto* const masks = reinterpret_cast<uint4*>(after_rings);
  for (int i = threadIdx.x; i < args.n_experts; i += kPairThreads) masks[i] = make_uint4(0, 0, 0, 0);
  if (lane < 2 * kPairSlots) barrier_init(&shared.arrived[warp][lane], 1);
  if (threadIdx.x == 0) shared.next = kPairWarps;
  end_barrier_init();
  __syncthreads();
  // `down` comes after a kernel that has seen the experts.
  begin_unless(!kGateUp);
  find_parts(args, cut, masks, shared);
  // Strips with more rows first: what is left at the end is short.
  const int lead = shared.parts[1].count > 0 && shared.parts[1].rows > shared.parts[0].rows ? 1 : 0;
  const int first_count = shared.parts[lead].count;
  StripCopies<kGateUp> copies{args,
                              cut,
                              shared,
                              kept_address(rings + warp * cut.ring_bytes),
                              kept_address(shared.arrived[warp]),
                              lead,
                              first_count,
                              first_count + shared.parts[1 - lead].count,
                              warp};
  ChunksOnTheWay<type, kGateUp> chunks_asked(args, cut, shared);
  if (kGateUp) chunks_asked.ask();  // before weights, behind which they would have to wait
#pragma unroll 1
  for (int i = 0; i < cut.slots; ++i) copies.ask_strip();
  begin_if(!kGateUp);
  const BlockRows<type> rows(after_rings, chunks);
  if (!kGateUp) chunks_asked.ask();
  chunks_asked.put(rows);
  __syncthreads();

  const int unit = min(lane, cut.columns * chunks - 1);
  const int my_column = unit / chunks;
  const int my_chunk = unit - my_column * chunks;
  const UnitPlace<type> place(my_column * static_cast<unsigned>(args.w_column), my_chunk, chunks);
  WarpTerms<type, kGateUp> terms(args, cut, shared, after_rings + cut.rows_bytes + warp * cut.terms_bytes);
  UnitRow<type> row;
  int held = -1;
  bool plain = false;
#pragma unroll 1
  while (copies.pending > 0) {
    unsigned tile = copies.await(0);
    const int strip = shared.strip[warp][copies.slot];
    const int list = strip < first_count ? lead : 1 - lead;
    const ListPart& part = shared.parts[list];
    const int n_rows = part.rows;
#pragma unroll 1
    for (int r = 0; r < n_rows; ++r) {
      if (held != list * kListRows + r) {
        held = list * kListRows + r;
        const int chunk = held * chunks + my_chunk;
        row.load(shared_address(rows.at + chunk * row_chunk_bytes(type)), rows.scales[chunk]);
        plain = __any_sync(kAllLanes, isnan(row.scale));
      }
      terms.put(0, unit_product<type>(tile, place, row));
      if (r == n_rows - 1) {
        __syncwarp();
        copies.template ask<0>();
      }
      if constexpr (kGateUp) {
        terms.put(1, unit_product<type>(copies.await(1), place, row));
        if (r == n_rows - 1) {
          __syncwarp();
          copies.template ask<1>();
        }
      }
      terms.end_strip(part.first + (strip < first_count ? strip : strip - first_count), list, r, plain);
    }
    copies.pass();
  }
  if (terms.count > 0) terms.add_up();
#endif
}

template <DType type, bool kGateUp>
int launch_pairs(const OneRowArgs& args, const Stream& stream) {
  const PairCut cut = pair_cut(args);
  return launch(pair_lists<type, kGateUp>,
                {.blocks = kPairBlocks, .threads = kPairThreads, .shared_bytes = pair_shared_bytes(cut)}, stream, args,
                cut);
}

}  // namespace

int launch_pair_lists(const OneRowArgs& args, const Stream& stream) {
  if (args.up != nullptr) return launch_pairs<DType::q4_k, true>(args, stream);
  switch (args.type) {
    case DType::q4_k:
      return launch_pairs<DType::q4_k, false>(args, stream);
    case DType::q5_k:
      return launch_pairs<DType::q5_k, false>(args, stream);
    default:
      return launch_pairs<DType::q6_k, false>(args, stream);
  }
}

}  // namespace conclave::cuda
