// How the kernels of lone_row_plan.h go through their items, and how weights come to shared memory. Addresses are those
// of shared memory.
#pragma once

#include "backends/cuda/lone_row.cuh"

namespace conclave::cuda {

#if CONCLAVE_HOPPER
// The items of a block in rounds: in each a warp has one.
struct LoneItems {
  const LoneBlock& block;
  unsigned warp;
  int first;  // of the block
  int last;   // past it
  int item;   // the warp's next
  unsigned terms;

  __device__ __forceinline__ explicit LoneItems(const LoneBlock& in) : block(in) {
    warp = threadIdx.x / kWarp;
    terms = block.terms(warp);
    const int b = static_cast<int>(blockIdx.x);
    first = b * block.at.per_block + min(b, block.at.longer);
    last = (b + 1) * block.at.per_block + min(b + 1, block.at.longer);
    item = first + static_cast<int>(warp);
  }
  // Goes through those of the warp's items that are before `end`: `multiply(weights, terms)` of each, the weights being
  // where the ring says, and `finish(item, count)` for `count` items at a time, kLoneWarps apart, with `start(item)`
  // before the first of them is multiplied.
  template <class Ring, class Start, class Multiply, class Finish>
  __device__ __forceinline__ void run(int end, Ring& ring, Start start, Multiply multiply, Finish finish) {
    int held = 0;
#pragma unroll 1
    for (; item < end; item += kLoneWarps) {
      if (held == 0) start(item);
      const unsigned weights = ring.await();
      multiply(weights, terms + held * block.at.item_units * 8);
      __syncwarp();
      ring.pass(*this);
      if (++held < block.at.held && item + kLoneWarps < end) continue;
      finish(item - (held - 1) * kLoneWarps, held);
      __syncwarp();
      held = 0;
    }
  }
};

// Some columns that follow one another, on their way to a slot of the ring.
struct LoneCopy {
  const std::byte* from = nullptr;
  int to = 0;     // bytes from the slot's beginning
  int bytes = 0;  // 0: nothing is to be copied
};

// A ring of the block, for weights that are known beforehand: a round's come to a slot together, in as few copies as
// can be. `copy_of(lane, item, count)` is what a lane copies of so many items from that one on. kGoesRound: there are
// more rounds than slots.
template <bool kGoesRound, class CopyOf>
struct LoneRing {
  const LoneBlock& block;
  CopyOf copy_of;
  int round = 0;
  int slot = 0;
  unsigned parity = 0;

  // The first rounds, each asked for by one of the last warps, which have the least to do with the row.
  __device__ __forceinline__ LoneRing(const LoneItems& items, CopyOf of) : block(items.block), copy_of(of) {
    const int own = kLoneWarps - 2 - static_cast<int>(items.warp);
    if (own < 0 || own >= block.at.ahead) return;
    if (threadIdx.x % kWarp == 0) {
      barrier_init(brought(own), 1);
      barrier_init(used(own), kLoneWarps);
      end_barrier_init();
    }
    __syncwarp();
    ask(items, own, own);
  }
  // A phase of the one ends when the slot's weights are there, of the other when nobody reads them any more.
  __device__ __forceinline__ unsigned brought(int of) const { return block.address + block.at.barriers + 16 * of; }
  __device__ __forceinline__ unsigned used(int of) const { return brought(of) + 8; }
  __device__ __forceinline__ unsigned address(int of) const {
    return block.address + block.at.ring + of * kLoneWarps * block.at.item_bytes;
  }
  __device__ __forceinline__ void ask(const LoneItems& items, int of_round, int to) const {
    const int from = items.first + of_round * kLoneWarps;
    const int count = min(items.last - from, kLoneWarps);
    LoneCopy copy;
    if (count > 0) copy = copy_of(static_cast<int>(threadIdx.x) % kWarp, from, count);
    const int bytes = __reduce_add_sync(kAllLanes, copy.bytes);
    if (threadIdx.x % kWarp == 0) expect_bytes(brought(to), bytes);
    __syncwarp();
    if (copy.bytes > 0) copy_bulk(address(to) + copy.to, copy.from, copy.bytes, brought(to));
  }
  __device__ __forceinline__ unsigned await() const {
    barrier_wait_awake(brought(slot), parity);
    return address(slot);
  }
  // The slot goes to a later round, which warps take turns to ask for.
  __device__ __forceinline__ void pass(const LoneItems& items) {
    const int next = round + block.at.ahead;
    if (kGoesRound && items.first + next * kLoneWarps < items.last) {
      if (threadIdx.x % kWarp == 0) barrier_arrive(used(slot));
      if (static_cast<unsigned>(round) % kLoneWarps == items.warp) {
        barrier_wait_awake(used(slot), parity);
        ask(items, next, slot);
      }
    }
    ++round;
    if (++slot == block.at.ahead && kGoesRound) {
      slot = 0;
      parity ^= 1U;
    }
  }
};
template <bool kGoesRound, class CopyOf>
__device__ __forceinline__ LoneRing<kGoesRound, CopyOf> lone_ring(const LoneItems& items, CopyOf copy_of) {
  return {items, copy_of};
}

// A ring of the warp, for weights that are not known beforehand: many copies bring them sooner than a few. An item is
// two columns; lane 2 i + c has column c of the ith of the first items. `source(item, c)`: where it lies.
template <bool kGoesRound, class Source>
struct LoneWarpRing {
  const LoneBlock& block;
  Source source;
  unsigned barriers;  // addresses
  unsigned first;
  int bytes;  // of a column
  int slot = 0;
  unsigned parity = 0;

  // Lets the first items be waited for. They must be asked for.
  __device__ __forceinline__ LoneWarpRing(const LoneItems& items, int column_bytes, Source of)
      : block(items.block), source(of), bytes(column_bytes) {
    const LoneSpace& at = block.at;
    barriers = block.address + at.barriers + items.warp * kLoneAhead * 8;
    first = block.address + at.ring + items.warp * at.ahead * at.item_bytes;
    if (threadIdx.x % kWarp == 0) {
      for (int i = 0; i < kLoneAhead; ++i) barrier_init(barriers + 8 * i, 1);
      end_barrier_init();
    }
    __syncwarp();
    if (has_first(items) && threadIdx.x % 2 == 0) expect_bytes(barriers + 8 * nth(), 2 * bytes);
    __syncwarp();
  }
  static __device__ __forceinline__ int nth() { return static_cast<int>(threadIdx.x) % kWarp / 2; }
  static __device__ __forceinline__ int first_item(const LoneItems& items) { return items.item + nth() * kLoneWarps; }
  __device__ __forceinline__ bool has_first(const LoneItems& items) const {
    return nth() < block.at.ahead && first_item(items) < items.last;
  }
  __device__ __forceinline__ void ask(int to, const std::byte* from) const {
    const int column = static_cast<int>(threadIdx.x) % 2;
    copy_bulk(first + to * block.at.item_bytes + column * bytes, from, bytes, barriers + 8 * to);
  }
  __device__ __forceinline__ unsigned await() const {
    barrier_wait_awake(barriers + 8 * slot, parity);
    return first + slot * block.at.item_bytes;
  }
  __device__ __forceinline__ void pass(const LoneItems& items) {
    const int next = items.item + block.at.ahead * kLoneWarps;
    if (kGoesRound && next < items.last) {
      if (threadIdx.x % kWarp == 0) expect_bytes(barriers + 8 * slot, 2 * bytes);
      __syncwarp();
      if (threadIdx.x % kWarp < 2) ask(slot, source(next, static_cast<int>(threadIdx.x) % 2));
    }
    if (++slot == block.at.ahead && kGoesRound) {
      slot = 0;
      parity ^= 1U;
    }
  }
};
template <bool kGoesRound, class Source>
__device__ __forceinline__ LoneWarpRing<kGoesRound, Source> lone_warp_ring(const LoneItems& items, int column_bytes,
                                                                           Source source) {
  return {items, column_bytes, source};
}
#endif

}  // namespace conclave::cuda
