#include <cfloat>

#include "backends/cuda/row_ops.cuh"
#include "backends/cuda/row_segments.cuh"
#include "backends/cuda/top_k_plan.h"

namespace conclave::cuda {
namespace {

// Keys are those of ops/top_k.h: larger for a better rank, all different, 0 for what is never among the best.
using Key = unsigned long long;

__device__ __forceinline__ Key key_of(float x, std::int64_t index) {
  if (!(x > -INFINITY)) return 0;
  const unsigned bits = __float_as_uint(fminf(x, FLT_MAX) + 0.0F);
  const unsigned ascending = bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
  return Key{ascending} << 32 | ~static_cast<unsigned>(index);
}
__device__ __forceinline__ std::int32_t index_of(Key key) {
  return key == 0 ? -1 : static_cast<std::int32_t>(~static_cast<unsigned>(key));
}
__device__ __forceinline__ float value_of(Key key) {
  const auto ascending = static_cast<unsigned>(key >> 32);
  if (key == 0) return -INFINITY;
  return __uint_as_float(ascending >> 31 != 0 ? ascending ^ 0x80000000U : ~ascending);
}

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;

struct Shared {
  unsigned count[kDigits];  // keys with this digit, of those that have the digits before it
  Key least;                // the digits of the last key that is wanted, as far as they are known
  int wanted;               // keys that are still to be taken from those that begin with them
  int found;                // of them there are so many
  int n_kept;
  Key kept[kTopKMost];
};

// The digit that the last of the wanted keys has, by one warp: the largest of which there are enough keys.
__device__ __forceinline__ void choose_digit(Shared& shared, int shift) {
  constexpr int kOwn = kDigits / kWarp;
  const int first = static_cast<int>(kDigits - 1 - threadIdx.x * kOwn);  // lanes go down from the largest digit
  int own = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own += static_cast<int>(shared.count[first - i]);
  int before = own;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFU, before, step);
    if (static_cast<int>(threadIdx.x) >= step) before += other;
  }
  before -= own;
  const int wanted = shared.wanted;
  __syncwarp();
  for (int i = 0; i < kOwn; ++i) {
    const int here = static_cast<int>(shared.count[first - i]);
    if (before < wanted && before + here >= wanted) {
      shared.least |= Key(first - i) << shift;
      shared.wanted = wanted - before;
      shared.found = here;
    }
    before += here;
  }
  if (threadIdx.x == kWarp - 1 && before < wanted) {  // there are fewer keys than places: all of them
    shared.least = 1;
    shared.wanted = shared.found = 0;
  }
}

// The k best of the keys that each() gives, all threads' together: put(place, key) for each place, 0 where there is none
// left. Digit by digit, from the first, until as many keys begin with the digits so far as are wanted.
template <class Each, class Put>
__device__ void find_best(int k, Shared& shared, const Each& each, const Put& put) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // whoever used it before is done
  if (thread == 0) {
    shared.least = 0;
    shared.wanted = k;
    shared.found = 0;
    shared.n_kept = 0;
  }
  for (int shift = 64 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int i = thread; i < kDigits; i += static_cast<int>(blockDim.x)) shared.count[i] = 0;
    __syncthreads();
    const Key least = shared.least;
    const Key known = shift == 64 - kDigitBits ? 0 : ~Key{0} << (shift + kDigitBits);
    each([&](Key key) {
      if (key != 0 && (key & known) == least) atomicAdd(&shared.count[key >> shift & (kDigits - 1)], 1U);
    });
    __syncthreads();
    if (thread < kWarp) choose_digit(shared, shift);
    __syncthreads();
    if (shared.found == shared.wanted) break;
  }
  const Key least = shared.least;
  each([&](Key key) {
    if (key != 0 && key >= least) shared.kept[atomicAdd(&shared.n_kept, 1)] = key;
  });
  __syncthreads();
  if (thread >= k) return;
  const int n = shared.n_kept;
  if (thread >= n) return put(thread, Key{0});
  const Key own = shared.kept[thread];
  int better = 0;
  for (int i = 0; i < n; ++i) better += shared.kept[i] > own ? 1 : 0;
  put(better, own);
}

struct PutResult {
  const TopKArgs& args;
  std::int64_t row;
  __device__ __forceinline__ void operator()(int place, Key key) const {
    int_at(args.ids, row, place) = index_of(key);
    float_at(args.values, row, place) = value_of(key);
  }
};

// One block per segment of a row. `of_segment` is null where a row has but one: that one's best are the row's.
template <bool kVector>
__global__ void __launch_bounds__(kSegmentThreads)
    top_k_segments_kernel(const __grid_constant__ TopKArgs args, std::int64_t segments, Key* of_segment) {
  begin();
  __shared__ Shared shared;
  const std::int64_t d = args.x.dims[1];
  const int k = static_cast<int>(args.ids.dims[1]);
  const std::int64_t n_segments = live_rows(args.live, args.x.dims[0]) * segments;
  for (std::int64_t at = blockIdx.x; at < n_segments; at += gridDim.x) {
    const Divided segment = divide(at, segments);
    const std::int64_t first = segment.rest * kRowSegment + kRunLength * threadIdx.x;
    Run run;
    clear_run(run);
    if (first < d) load_run<kVector>(args.x.type, row_of(args.x, segment.quotient), first, d, run);
    Key keys[kRunLength];
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) keys[j] = first + j < d ? key_of(run[j], first + j) : 0;
    const auto each = [&](const auto& visit) {
#pragma unroll
      for (int j = 0; j < kRunLength; ++j) visit(keys[j]);
    };
    if (of_segment == nullptr) {
      find_best(k, shared, each, PutResult{args, segment.quotient});
    } else {
      find_best(k, shared, each, [&](int place, Key key) { of_segment[at * k + place] = key; });
    }
  }
}

// One block per row.
__global__ void __launch_bounds__(kTopKRowThreads)
    top_k_rows_kernel(const __grid_constant__ TopKArgs args, std::int64_t segments, const Key* of_segment) {
  begin();
  __shared__ Shared shared;
  const int k = static_cast<int>(args.ids.dims[1]);
  const std::int64_t n_rows = live_rows(args.live, args.x.dims[0]);
  for (std::int64_t r = blockIdx.x; r < n_rows; r += gridDim.x) {
    const Key* keys = of_segment + r * segments * k;
    const auto each = [&](const auto& visit) {
      for (std::int64_t i = threadIdx.x; i < segments * k; i += kTopKRowThreads) visit(keys[i]);
    };
    find_best(k, shared, each, PutResult{args, r});
  }
}

}  // namespace

int launch_top_k(const TopKArgs& args, std::byte* scratch, const Stream& stream) {
  return launch_segments<TopKArgs, Key>(top_k_segments_kernel<true>, top_k_segments_kernel<false>, top_k_rows_kernel,
                                        top_k_rows_plan(args.x.dims[0], args.x.dims[1]), args, scratch, stream);
}

}  // namespace conclave::cuda
