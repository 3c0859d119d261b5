#include "backends/cuda/few_boxes_plan.h"

#include "backends/cuda/bulk_copy.cuh"
#include "backends/cuda/few_passes.cuh"
#include "backends/cuda/few_work.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/read_once.cuh"

namespace conclave::cuda {
namespace {

#if __CUDA_ARCH__ >= 900
// A warp's boxes on their way to its ring.
template <DType type, int kSpan>
struct BoxFetcher : RunOwner {
  static constexpr int kSlots = box_slots(kSpan);
  static constexpr int kColumn = box_column(type, kSpan);
  static constexpr int kBytes = box_bytes(type, kSpan);
  const FewBoxes& boxes;
  std::uint64_t* arrived;  // [slots]
  unsigned ring;
  Ring<kSlots> next;  // to be read; then, to be filled
  int item = -1;      // of the run; -1: there is none
  int c = 0;
  int column = 0;  // of the item: its first, and its expert
  int expert = 0;

  __device__ __forceinline__ BoxFetcher(TileRun& own, const FewBoxes& of, std::uint64_t* barriers, const std::byte* to)
      : RunOwner{own}, boxes(of), arrived(barriers), ring(shared_address(to)) {
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int i = 0; i < kSlots; ++i) barrier_init(arrived + i, 1);
      end_barrier_init();
      if (threadIdx.x == 0) {
        fetch_map(&boxes.map[0]);
        fetch_map(&boxes.map[1]);
      }
    }
    __syncwarp();
  }
  __device__ __forceinline__ void find(const UnitArgs& args) {
    if (item < run.end) {
      const FewColumns at = run.columns(args, item);
      column = at.first;
      expert = at.expert;
    } else {
      item = -1;
    }
  }
  // Items first_item, first_item + kFewWarps, ... of the run.
  __device__ __forceinline__ void start(const UnitArgs& args, int first_item) {
    c = 0;
    item = first_item;
    find(args);
    fetch(args, next.place);
  }
  // The boxes after the first.
  __device__ __forceinline__ void fill(const UnitArgs& args) {
#pragma unroll
    for (int i = 1; i < kSlots; ++i) fetch(args, (next.place + i) % kSlots);
  }
  __device__ __forceinline__ void fetch(const UnitArgs& args, int slot) {
    if (item < 0) return;  // the same for a warp
    if (threadIdx.x % kWarp == 0) {
      const unsigned to = ring + slot * kBytes;
      expect_bytes(arrived + slot, kBytes);
      if constexpr (type == DType::q4_k) {
        const int x = c * (block_bytes(type) / 4);
        copy_box_once(to, &boxes.map[0], x, column, expert, arrived + slot);
        if (args.up != nullptr) {
          copy_box_once(to + kTile / 2 * kColumn, &boxes.map[1], x, column, expert, arrived + slot);
        }
      } else {
        copy_box_once(to, &boxes.map[0], 0, column, expert, arrived + slot);
        copy_box_once(to + kTile * kColumn, &boxes.map[1], kColumn / 4, column, expert, arrived + slot);
      }
    }
    c += kSpan;
    if (c >= args.chunks) {
      c = 0;
      item += kFewWarps;
      find(args);
    }
  }

  // As Fetcher is used.
  static __device__ __forceinline__ int span(const UnitArgs& /*args*/) {
    return kSpan;
  }
  __device__ __forceinline__ void await(const UnitArgs& /*args*/) {
    barrier_wait(arrived + next.place, next.parity);
  }
  __device__ __forceinline__ void release(const UnitArgs& args) {
    __syncwarp();  // all lanes have read it
    fetch(args, next.place);
    next.next();
  }
  struct Place {};
  __device__ __forceinline__ Place place(const FewColumns& /*columns*/) const {
    return {};
  }
  static __device__ __forceinline__ int first_column() {
    return threadIdx.x % kWarp / 4;
  }
  // Superblock i of the box.
  __device__ __forceinline__ LaneWeights<type> weights(const std::byte* rings, const Place& /*of*/, int /*c*/,
                                                       int i) const {
    const std::byte* box = rings + threadIdx.x / kWarp * box_ring_bytes(type, kSpan) + next.place * kBytes;
    if constexpr (type == DType::q4_k) {
      const std::byte* first = box + threadIdx.x % kWarp / 4 * kColumn + i * block_bytes(type);
      return LaneWeights<type>(first, first + kTile / 2 * kColumn);
    } else {
      return LaneWeights<type>(BoxQ6K<kSpan, kColumn, box_rest(type, kSpan)>{box}, i);
    }
  }
};
#endif

// `parts`: few_parts(). `rows_at_once`: box_rows().
template <DType type, int kSpan>
__global__ void __launch_bounds__(kFewThreads, 2)
    few_boxes(const __grid_constant__ UnitArgs args, const __grid_constant__ FewBoxes boxes, const int parts,
              const int rows_at_once) {
#if __CUDA_ARCH__ >= 900
  constexpr int kSegment = box_segment(kSpan);
  extern __shared__ __align__(128) int4 shared_words[];
  __shared__ ActiveLists active;
  __shared__ TableSlot slots[few_rows_at_once(false)];
  __shared__ TileRun runs[kFewWarps];
  __shared__ std::uint64_t arrived[kFewWarps][box_slots(kSpan)];
  const int warp = threadIdx.x / kWarp;
  auto* const shared = reinterpret_cast<std::byte*>(shared_words);
  const StagedRows<kSegment> rows(shared + kFewWarps * box_ring_bytes(type, kSpan), few_rows_at_once(false));
  BoxFetcher<type, kSpan> fetcher(runs[warp], boxes, arrived[warp], shared + warp * box_ring_bytes(type, kSpan));
  const FewWork<type, BoxFetcher<type, kSpan>, kSegment> work{args, fetcher, shared, rows, slots};
  go_through_lists<false>(args, parts, rows_at_once, active, slots, fetcher, [&](int, int) {
    if (fetcher.run.rows[0] > kRowTile) {
      work.template multiply_own<2>();
    } else {
      work.template multiply_own<1>();
    }
  });
#endif
}

}  // namespace

int launch_few_boxes(const UnitArgs& args, const FewBoxes& boxes, const Stream& stream) {
  const int parts = few_parts(args.n, args.chunks, args.up != nullptr, false);
  const int rows = box_rows(args.table.n_rows, args.table.n_lists);
  const LaunchPlan plan{
      .blocks = kFewBlocks, .threads = kFewThreads, .shared_bytes = few_boxes_shared(args.type, boxes.span)};
  const auto run = [&](auto* kernel) { return launch(kernel, plan, stream, args, boxes, parts, rows); };
  if (boxes.span != kWholeSpan) return run(few_boxes<DType::q4_k, 2>);
  if (args.type == DType::q4_k) return run(few_boxes<DType::q4_k, kWholeSpan>);
  return run(few_boxes<DType::q6_k, kWholeSpan>);
}

}  // namespace conclave::cuda
