// Attention of prompts: how units of K and V get to shared memory.
#pragma once

#include "backends/cuda/attention_prefill.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {

// 32 rows of a unit by a warp: lane l has found row l at `at`, if it is `there`. As many lanes as a row has pieces copy
// as many rows, one after another; `first_copied` is a lane's first.
template <int d>
inline constexpr int kUnitRowPieces = d / 8;
template <int d>
__device__ __forceinline__ int first_copied() {
  return static_cast<int>(threadIdx.x) % kPrefillGroup / kUnitRowPieces<d> * kUnitRowPieces<d>;
}
template <int d>
__device__ __forceinline__ void copy_unit_rows(std::byte* tile, const std::byte* pool, long long at, unsigned there) {
  const int piece = static_cast<int>(threadIdx.x) % kUnitRowPieces<d>;
  std::byte* to = tile + turned_piece<kPrefillUnit>(first_copied<d>(), piece);
  const auto own = reinterpret_cast<unsigned long long>(pool + (at < 0 ? 0 : at));
  const auto copy = [&](const auto& one) {
#pragma unroll
    for (int i = 0; i < kUnitRowPieces<d>; ++i) {
      const unsigned long long row = __shfl_sync(kAllLanes, own, i, kUnitRowPieces<d>);
      // The first row is one that eight divides, and so is the tile's address.
      auto* const turned = reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(to) ^ i % 8 * 16);
      one(turned + i * 128, reinterpret_cast<const std::byte*>(row) + piece * 16, i);
    }
  };
  if (there == 0xFFFFFFFFU) {
    copy([](std::byte* turned, const std::byte* from, int) { copy_16(turned, from); });
  } else {
    const unsigned bits = there >> first_copied<d>() % kWarp;
    copy([&](std::byte* turned, const std::byte* from, int i) {
      copy_16_or_zeros(turned, from, (bits >> i & 1U) != 0);
    });
  }
}

// Makes zeros of what is no number in the pieces that the thread has copied, from row `from` on. Whether there was any.
template <int d>
__device__ __forceinline__ bool replace_values(std::byte* tile, int from) {
  bool any = false;
#pragma unroll 1
  for (int i = 0; i < kUnitRowPieces<d>; ++i) {
    const int row = first_copied<d>() + i;
    if (row < from) continue;
    auto* words = reinterpret_cast<unsigned*>(
        tile + turned_piece<kPrefillUnit>(row, static_cast<int>(threadIdx.x) % kUnitRowPieces<d>));
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      unsigned word = words[w];
      if ((word & 0x7C00U) == 0x7C00U) word &= 0xFFFF0000U;
      if ((word & 0x7C000000U) == 0x7C000000U) word &= 0xFFFFU;
      if (word == words[w]) continue;
      words[w] = word;
      any = true;
    }
  }
  return any;
}

// A unit on its way: where its rows lie, of which the lane has one, and which of the warp's are there.
struct FoundRows {
  RowPlace at;
  unsigned there;
};

// By the warpgroup that copies.
template <int d>
class Copying {
 public:
  using Stage = StageCount<prefill_stages(d)>;

  __device__ __forceinline__ Copying(const AttentionArgs& args, const PrefillRun& run, PrefillShared<d>& shared)
      : args_(args), run_(run), shared_(shared) {}

  // All units of a run. Keys of the next one go before the values of this: they are wanted first.
  __device__ __forceinline__ void copy(Stage& stage) const {
    const int n_units = run_.n_units();
    int unit = run_.first_unit();
    if (unit >= n_units) return;
    FoundRows found = copy_keys(stage, unit);
#pragma unroll 1
    for (int next = run_.unit_after(unit); next < n_units; next = run_.unit_after(unit)) {
      const FoundRows next_found = copy_keys(Stage{stage.n + 1}, next);
      copy_values(stage, unit, found);
      found = next_found;
      unit = next;
      ++stage.n;
    }
    copy_values(stage, unit, found);
    ++stage.n;
  }

 private:
  __device__ static int thread() {
    return static_cast<int>(threadIdx.x) % kPrefillGroup;
  }
  __device__ __forceinline__ FoundRows copy_keys(Stage stage, int unit) const {
    FoundRows found;
    const std::int64_t position = static_cast<std::int64_t>(unit) * kPrefillUnit + thread();
    found.at = locate(args_, run_.rows.seq, run_.rows.kv_head, position, run_.most);
    found.there = __ballot_sync(kAllLanes, found.at.k >= 0);
    const unsigned place = stage.place();
    barrier_wait(&shared_.no_keys[place], stage.parity() ^ 1U);
    begin_if(args_.early);
    if (thread() % kWarp == 0) {
      reinterpret_cast<unsigned*>(&shared_.there[place])[thread() / kWarp] = found.there;
      barrier_arrive(&shared_.has_keys[place]);
    }
    copy_unit_rows<d>(shared_.keys[place], args_.k.data, found.at.k, found.there);
    barrier_arrive_with_copies(&shared_.has_keys[place]);
    return found;
  }
  __device__ __forceinline__ void copy_values(Stage stage, int unit, const FoundRows& found) const {
    const unsigned place = stage.place();
    barrier_wait(&shared_.no_values[place], stage.parity() ^ 1U);
    copy_unit_rows<d>(shared_.values[place], args_.v.data, found.at.v, found.there);
    if (run_.all_see(unit)) {
      barrier_arrive_with_copies(&shared_.has_values[place]);
      return;
    }
    end_copies();
    await_copies<0>();
    const unsigned begin = static_cast<unsigned>(unit) * kPrefillUnit;
    const int from = run_.least > begin ? static_cast<int>(run_.least - begin) : 0;
    const bool changed = __any_sync(kAllLanes, replace_values<d>(shared_.values[place], from)) != 0;
    if (thread() % kWarp == 0) {
      reinterpret_cast<unsigned*>(&shared_.changed[place])[thread() / kWarp] = changed ? 1 : 0;
    }
    shared_for_wgmma();
    barrier_arrive(&shared_.has_values[place]);
  }

  const AttentionArgs& args_;
  const PrefillRun& run_;
  PrefillShared<d>& shared_;
};

}  // namespace conclave::cuda
