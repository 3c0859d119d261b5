#include "backends/cuda/bulk_copy.cuh"
#include "backends/cuda/dense_plain.cuh"
#include "backends/cuda/dense_tall_plan.h"
#include "backends/cuda/fetch_ahead.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/tall_digits.cuh"
#include "backends/cuda/wgmma_digits.cuh"

namespace conclave::cuda {
namespace {

constexpr int kTallThreads = kTallWarps * kWarp;

#if CONCLAVE_HOPPER

struct TallBarriers {
  unsigned at;

  __device__ __forceinline__ unsigned weights() const { return at; }
  __device__ __forceinline__ unsigned full(int stage) const { return at + 8 + 16 * stage; }
  __device__ __forceinline__ unsigned empty(int stage) const { return at + 16 + 16 * stage; }
};

// Where a ring of some places stands.
struct TallStage {
  int place = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void next(int places) {
    if (++place == places) {
      place = 0;
      parity ^= 1U;
    }
  }
};

// Rows, superblock after superblock, by one thread.
__device__ __forceinline__ void copy_rows(const DenseArgs& args, const CUtensorMap& rows, unsigned ring,
                                          const TallBarriers& barriers) {
  TallStage stage;
#pragma unroll 1
  for (int c = 0; c < args.chunks; ++c) {
    barrier_wait_awake(barriers.empty(stage.place), stage.parity ^ 1U);
    const unsigned full = barriers.full(stage.place);
    expect_bytes(full, kTallStage);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      copy_box(ring + stage.place * kTallStage + half * (kTallStage / 2), &rows, c * kChunk + half * (kChunk / 2), 0,
               full);
    }
    stage.next(args.tall.stages);
  }
}

// A lane's two rows, as far as there are any.
struct TallRows {
  const std::uint16_t* sums[2];
  const float* scale[2];

  __device__ __forceinline__ explicit TallRows(const DenseArgs& args) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t at = std::int64_t{min(row(i), args.rows - 1)} * args.chunks;
      sums[i] = args.sums + at * 16 + threadIdx.x % 4 * 4;
      scale[i] = args.scale + at;
    }
  }
  static __device__ __forceinline__ int row(int i) {
    return static_cast<int>(threadIdx.x / kWarp * 16 + threadIdx.x % kWarp / 4) + 8 * i;
  }
};
// What a lane wants of them beside their levels, of a superblock.
struct TallBeside {
  unsigned sums[4];  // as mma_f16_k16 takes rows
  float scale[2];

  __device__ __forceinline__ void load(const TallRows& rows, int c) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint2 two = *reinterpret_cast<const uint2*>(rows.sums[i] + 16 * c);
      sums[i] = two.x;
      sums[i + 2] = two.y;
      scale[i] = rows.scale[i][c];
    }
  }
};

// What a warpgroup goes through superblock by superblock.
template <int kColumns>
struct TallSums {
  static constexpr int kTiles = kColumns / 8;
  std::uint64_t digits;
  unsigned mins;
  unsigned factors;
  int shift;    // of the higher digit
  bool affine;  // there are minimums
  float y[kColumns / 2] = {};

  __device__ __forceinline__ TallSums(const TallPlaces& at, DType type)
      : digits(rows_descriptor(at.digits)),
        mins(at.mins + threadIdx.x % kWarp / 4 * 32 + threadIdx.x % 4 * 8),
        factors(at.factors + threadIdx.x % 4 * 16),
        shift(type == DType::q4_k ? 3 : 6),
        affine(type == DType::q4_k) {}

  // `read`: called once nothing is read from `rows` any more.
  template <class Read>
  __device__ __forceinline__ void add(unsigned rows, const TallBeside& beside, const Read& read) {
    const std::uint64_t levels = rows_descriptor(rows);
    int sum[kColumns];
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int half = i / 4;
      const std::uint64_t from = descriptor_at(levels, half * (kTallStage / 2) + 32 * (i % 4));
      const std::uint64_t with = descriptor_at(digits, half * (2 * kColumns * 128) + 32 * (i % 4));
      if (i == 0) wgmma_digits<2 * kColumns, false>(sum, from, with);
      if (i > 0) wgmma_digits<2 * kColumns, true>(sum, from, with);
    }
    wgmma_commit();
    // What is to be taken away, while they multiply.
    float low[kColumns / 2] = {};
    if (affine) {
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        const float2 m = load_shared_8(mins + j * 8 * 32);
        mma_f16_k16(low + 4 * j, beside.sums, __float_as_uint(m.x), __float_as_uint(m.y));
      }
    }
    float by[kColumns / 2];
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const uint4 f = load_shared_16(factors + j * 8 * 8);  // d and dmin of two columns
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        by[4 * j + i] = beside.scale[i / 2] * __uint_as_float(i % 2 == 0 ? f.x : f.z);
        low[4 * j + i] = (beside.scale[i / 2] * __uint_as_float(i % 2 == 0 ? f.y : f.w)) * low[4 * j + i];
      }
    }
    wgmma_wait<0>();
    read();
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const int total = (sum[i] << shift) + sum[kColumns / 2 + i];
      y[i] = y[i] + by[i] * static_cast<float>(total);
      y[i] = y[i] - low[i];
    }
    digits = descriptor_at(digits, 2 * kColumns * kChunk);
    mins += kColumns * 32;
    factors += kColumns * 8;
  }
};

// All superblocks.
template <int kColumns>
__device__ __forceinline__ void multiply_all(const DenseArgs& args, const TallBarriers& barriers, unsigned ring,
                                             TallSums<kColumns>& sums) {
  constexpr int kAhead = 2;  // what lies beside rows comes from memory, and long before it is wanted
  const TallRows rows(args);
  TallBeside beside[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    if (i < args.chunks) beside[i].load(rows, i);
  }
  TallStage stage;
#pragma unroll 1
  for (int first = 0; first < args.chunks; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= args.chunks) break;
      barrier_wait_awake(barriers.full(stage.place), stage.parity);
      sums.add(ring + stage.place * kTallStage, beside[i], [&] {
        if (threadIdx.x % kWarp == 0) barrier_arrive(barriers.empty(stage.place));
      });
      if (first + i + kAhead < args.chunks) beside[i].load(rows, first + i + kAhead);
      stage.next(args.tall.stages);
    }
  }
}

// Outputs of a block's columns, from column `first` of the matrix on to `end`.
struct TallOut {
  int first;
  int end;
  int n_rows;
};

template <int kColumns>
__device__ __forceinline__ void store_all(const DenseArgs& args, const DenseMatrix& of, const TallOut& to,
                                          const float (&y)[kColumns / 2]) {
  const int first = to.first + 2 * static_cast<int>(threadIdx.x % 4);
  bool plain = of.out_type == DType::f32 && of.bias == nullptr && (to.end - to.first) % 2 == 0 &&
               (reinterpret_cast<std::uintptr_t>(of.out) | static_cast<std::uintptr_t>(of.out_stride)) % 8 == 0;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) plain = plain && !(isnan(y[i]) && first + i / 4 * 8 < to.end);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = TallRows::row(half);
    if (row >= to.n_rows) break;
    std::byte* const out = of.out + row * of.out_stride;
    if (plain) {
      auto* const pairs = reinterpret_cast<float2*>(out + 4 * std::int64_t{first});
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        if (first + 8 * j < to.end) pairs[4 * j] = {y[4 * j + 2 * half], y[4 * j + 2 * half + 1]};
      }
      continue;
    }
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      const int column = first + i / 2 * 8 + i % 2;
      if (column >= to.end) continue;
      float value = y[i / 2 * 4 + 2 * half + i % 2];
      if (isnan(value)) value = checked(args, of, of.w + column * of.w_column, row, value);
      if (of.bias != nullptr) value += load_float(of.bias_type, of.bias, column);
      store_float(of.out_type, out, column, value);
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void tall_block(const DenseArgs& args, const CUtensorMap& rows, const DenseMatrix& of,
                                           int block, unsigned shared) {
  const auto tid = static_cast<int>(threadIdx.x);
  const int lane = tid % kWarp;
  const int warp = tid / kWarp;
  const int chunks = args.chunks;
  const int columns = tall_columns(of.type, kColumns);
  const int first = block * columns;
  const TallLayout layout{kColumns, chunks};
  const TallPlaces at{.digits = shared,
                      .factors = shared + layout.factors(),
                      .mins = shared + layout.mins(),
                      .raw = shared + layout.raw(of.type)};
  const TallBarriers barriers{shared + layout.barriers()};
  const int bytes = tall_raw_bytes(of.type, chunks);
  if (tid < args.tall.stages) {
    barrier_init(barriers.full(tid), 1);
    barrier_init(barriers.empty(tid), kTallMultiplying);
    if (tid == 0) barrier_init(barriers.weights(), 1);
    end_barrier_init();
    if (tid == 0) expect_bytes(barriers.weights(), columns * bytes);
  }
  __syncthreads();
  if (const int column = warp + kTallWarps * lane; column < columns) {
    // Past the last column it is the last again: computed and not used.
    copy_bulk(at.raw + column * tall_raw_stride(of.type, chunks), of.w + min(first + column, of.n - 1) * of.w_column,
              bytes, barriers.weights());
  }
  barrier_wait_awake(barriers.weights(), 0);
  if (of.type == DType::q4_k) {
    decode_columns<DType::q4_k, kColumns>(at, columns, chunks);
  } else {
    decode_columns<DType::q6_k, kColumns>(at, columns, chunks);
  }
  shared_for_wgmma();
  __syncthreads();
  begin();

  const unsigned ring = shared + layout.rows();
  if (warp < kTallMultiplying) {
    const TallOut to{first, min(first + columns, of.n), static_cast<int>(live_rows(args.live, args.rows))};
    TallSums<kColumns> sums(at, of.type);
    multiply_all(args, barriers, ring, sums);
    store_all<kColumns>(args, of, to, sums.y);
  } else if (tid == kTallMultiplying * kWarp) {
    copy_rows(args, rows, ring, barriers);
  } else if (warp == kTallMultiplying + 1) {
    fetch_ahead(args.ahead);
  }
}

#endif

template <int kColumns>
__global__ void __launch_bounds__(kTallThreads, 1)
    dense_tall(const __grid_constant__ DenseArgs args, const __grid_constant__ CUtensorMap rows) {
#if CONCLAVE_HOPPER
  extern __shared__ std::byte tall_memory[];
  const unsigned shared = (shared_address(tall_memory) + kTallAlignment - 1) / kTallAlignment * kTallAlignment;
  if (threadIdx.x == 0) fetch_map(&rows);
  int i = 0;
  // Values come last and may be of q6_k, which takes longer: their blocks begin first.
  int block = static_cast<int>(gridDim.x - 1 - blockIdx.x);
  while (block >= args.tall.blocks[i]) block -= args.tall.blocks[i++];
  tall_block<kColumns>(args, rows, args.of[i], block, shared);
#endif
}

}  // namespace

int launch_dense_tall(const DenseArgs& args, const CUtensorMap& rows, const Stream& stream) {
  const LaunchPlan plan{.blocks = dense_tall_blocks(args.tall),
                        .threads = kTallThreads,
                        .shared_bytes = dense_tall_shared(args.tall, args.chunks)};
  return args.tall.columns == kTallWide ? launch(dense_tall<kTallWide>, plan, stream, args, rows)
                                        : launch(dense_tall<kTallNarrow>, plan, stream, args, rows);
}

}  // namespace conclave::cuda
