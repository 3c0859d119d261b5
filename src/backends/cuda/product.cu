// Products of any weight format at any alignment: a warp takes one column of weights, unpacks it chunk by chunk, and
// meets a few rows at a time. Whatever has no kernel of its own comes here.
#include "backends/cuda/activation.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/levels.cuh"
#include "backends/cuda/plain_dot.cuh"
#include "backends/cuda/product_plan.h"
#include "backends/cuda/row_table.cuh"

namespace conclave::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kColumns = kThreads / kWarp;  // of a block
constexpr int kRows = 4;                    // at a time
constexpr std::int64_t kMaxGrid = 132 * 64;
constexpr std::int64_t kMaxSplits = 32;

__device__ __forceinline__ const std::byte* x_row(const RowBank& bank, std::int64_t row) {
  return bank.x.rank == 3 ? row_of(bank.x, row / bank.x.dims[1], row % bank.x.dims[1]) : row_of(bank.x, row);
}

// One element of the output, with the bias of its column.
__device__ __forceinline__ void store_output(const View& out, const View& bias, std::int64_t row, std::int64_t n,
                                             float y) {
  if (bias.data != nullptr) y += load_float(bias.type, bias.data, n);
  std::byte* at = out.rank == 3 ? row_of(out, row / out.dims[1], row % out.dims[1]) : row_of(out, row);
  store_float(out.type, at, n, y);
}

__device__ __forceinline__ bool has_int8(const RowBank& bank, std::int64_t row, int lane) {
  bool usable = true;
  for (std::int64_t c = lane; c < bank.chunks; c += kWarp) usable = usable && !isnan(bank.scale[row * bank.chunks + c]);
  return __all_sync(0xFFFFFFFFU, usable) != 0;
}

// y[r] += what chunk c of the column adds to row from[r]; rows of -1 are computed as row 0 and not used.
template <DType type>
__device__ __forceinline__ void add_chunk(const RowBank& bank, const std::int64_t* from, const std::byte* column,
                                          std::int64_t c, int lane, float* y) {
  using L = Layout<type>;
  const int block = lane / 4;
  const std::int64_t blocks_left = bank.k / 32 - 8 * c;
  LaneLevels w{};
  if (L::kSuper || block < blocks_left) w = unpack<type>(column + c * L::kChunkBytes, lane);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t row = from[r] < 0 ? 0 : from[r];
    const auto* q = reinterpret_cast<const int*>(bank.q + (row * bank.chunks + c) * kChunk);
    const int q0 = q[L::first(lane) / 4];
    const int q1 = q[L::second(lane) / 4];
    const float scale = bank.scale[row * bank.chunks + c];
    if constexpr (L::kSuper) {
      const int total =
          __reduce_add_sync(0xFFFFFFFFU, __dp4a(w.quad[0], q0, 0) * w.scale[0] + __dp4a(w.quad[1], q1, 0) * w.scale[1]);
      y[r] = y[r] + (scale * w.d) * static_cast<float>(total);
      if constexpr (L::kAffine) {
        const int low =
            __reduce_add_sync(0xFFFFFFFFU, __dp4a(0x01010101, q0, 0) * w.min[0] + __dp4a(0x01010101, q1, 0) * w.min[1]);
        y[r] = y[r] - (scale * w.m) * static_cast<float>(low);
      }
    } else {
      // The four lanes of a block have its sum; then block after block, in order.
      int sum = __dp4a(w.quad[1], q1, __dp4a(w.quad[0], q0, 0));
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFU, sum, 2);
      const float term = (scale * w.d) * static_cast<float>(sum);
      float low_term = 0.0F;
      if constexpr (L::kAffine) {
        int low = __dp4a(0x01010101, q1, __dp4a(0x01010101, q0, 0));
        low += __shfl_xor_sync(0xFFFFFFFFU, low, 1);
        low += __shfl_xor_sync(0xFFFFFFFFU, low, 2);
        low_term = (scale * w.m) * static_cast<float>(low);
      }
      for (int b = 0; b < 8; ++b) {
        const float next = __shfl_sync(0xFFFFFFFFU, term, 4 * b);
        const float next_low = L::kAffine ? __shfl_sync(0xFFFFFFFFU, low_term, 4 * b) : 0.0F;
        if (b >= blocks_left) continue;
        y[r] = y[r] + next;
        if constexpr (L::kAffine) y[r] = y[r] + next_low;
      }
    }
  }
}

// Plain weights: sixteen loads of each are under way at a time.
template <DType type>
__device__ __forceinline__ float float_dot(DType x_type, const std::byte* x, const std::byte* w, std::int64_t k,
                                           int lane) {
  float chain = 0.0F;
  std::int64_t at = lane;
  for (; at + 15 * kWarp < k; at += 16 * kWarp) {
    float xs[16];
    float ws[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      xs[i] = load_float(x_type, x, at + i * kWarp);
      ws[i] = load_float(type, w, at + i * kWarp);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) chain = fmaf(xs[i], ws[i], chain);
  }
  for (; at < k; at += kWarp) chain = fmaf(load_float(x_type, x, at), load_float(type, w, at), chain);
  return fold_lanes(chain);
}

// Work is dealt out as (list, columns, part of the list's rows).
template <DType type>
__global__ void __launch_bounds__(kThreads) product(const __grid_constant__ ProductArgs args, std::int64_t splits) {
  begin();
  const int lane = threadIdx.x % kWarp;
  const RowTable& table = args.table;
  const RowBank& bank = args.rows;
  const std::int64_t all = args.w.dims[args.w.rank - 2];
  const std::int64_t columns = columns_of(table, static_cast<int>(all));
  const std::int64_t groups = ceil_div(all, kColumns);
  for (std::int64_t item = blockIdx.x; item < table.n_lists * groups * splits; item += gridDim.x) {
    const std::int64_t split = item % splits;
    const std::int64_t n = item / splits % groups * kColumns + threadIdx.x / kWarp;
    const auto list = static_cast<int>(item / splits / groups);
    const std::int64_t expert = expert_of(table, list);
    if (n >= columns || expert < 0) continue;
    const std::byte* column = args.w.rank == 3 ? row_of(args.w, expert, n) : row_of(args.w, n);
    const RowRange range = range_of(table, list);
    for (std::int64_t i = range.begin + split * kRows; i < range.end; i += splits * kRows) {
      TableSlot slot[kRows];
      std::int64_t from[kRows];
      bool any_plain = false;
      for (int r = 0; r < kRows; ++r) {
        slot[r] = i + r < range.end ? slot_of(table, list, static_cast<int>(i + r)) : TableSlot{-1, -1};
        from[r] = slot[r].from;
        if constexpr (is_block(type)) any_plain = any_plain || (from[r] >= 0 && !has_int8(bank, from[r], lane));
      }
      float y[kRows] = {};
      if constexpr (is_block(type)) {
        for (std::int64_t c = 0; c < bank.chunks; ++c) add_chunk<type>(bank, from, column, c, lane, y);
      }
      for (int r = 0; r < kRows; ++r) {
        if (from[r] < 0) continue;
        const std::byte* x = x_row(bank, from[r]);
        if (!is_block(type)) {
          y[r] = float_dot<type>(bank.x.type, x, column, bank.k, lane);
        } else if (any_plain && !has_int8(bank, from[r], lane)) {
          if (lane == 0) y[r] = plain_dot({x, bank.x.type, column, type, false, bank.k});
        }
        if (lane == 0) store_output(args.out, args.bias, slot[r].to, n, y[r]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) gate(const __grid_constant__ GateArgs args) {
  begin();
  const std::int64_t n = args.out.dims[1];
  for (int list = static_cast<int>(blockIdx.x); list < args.table.n_lists; list += static_cast<int>(gridDim.x)) {
    const RowRange range = range_of(args.table, list);
    const std::int64_t count = range.end > range.begin ? range.end - range.begin : 0;
    for (std::int64_t i = threadIdx.x; i < count * n; i += kThreads) {
      const TableSlot slot = slot_of(args.table, list, range.begin + static_cast<int>(i / n));
      if (slot.from < 0) continue;
      const float g = load_float(DType::f32, row_of(args.gate, slot.to), i % n);
      const float u = load_float(DType::f32, row_of(args.up, slot.to), i % n);
      store_float(args.out.type, row_of(args.out, slot.to), i % n, gated(static_cast<Activation>(args.act), g, u));
    }
  }
}

__global__ void __launch_bounds__(kThreads) share(const __grid_constant__ ShareArgs args) {
  begin();
  const std::int64_t d_model = args.out.dims[1];
  const std::int64_t n_tokens = live_rows(args.live, args.out.dims[0]);
  __shared__ float shared_share;
  for (std::int64_t t = blockIdx.x; t < n_tokens; t += gridDim.x) {
    if (threadIdx.x < kWarp) {
      float chain = 0.0F;
      if (args.gate_inp.data != nullptr) {
        for (std::int64_t k = threadIdx.x; k < args.x.dims[1]; k += kWarp) {
          chain = fmaf(load_float(args.x.type, row_of(args.x, t), k),
                       load_float(args.gate_inp.type, args.gate_inp.data, k), chain);
        }
        chain = fold_lanes(chain);
      }
      if (threadIdx.x == 0) shared_share = args.gate_inp.data != nullptr ? sigmoid_of(chain) : 1.0F;
    }
    __syncthreads();
    const float by = shared_share;
    for (std::int64_t d = threadIdx.x; d < d_model; d += kThreads) {
      store_float(args.out.type, row_of(args.out, t), d, load_float(DType::f32, row_of(args.y, t), d) * by);
    }
    __syncthreads();
  }
}

template <DType type>
int launch_type(const ProductArgs& args, const Stream& stream) {
  const std::int64_t groups = ceil_div(args.w.dims[args.w.rank - 2], kColumns);
  const std::int64_t wanted = ceil_div(args.max_slots, 16 * kRows);
  const std::int64_t splits = wanted < 1 ? 1 : (wanted < kMaxSplits ? wanted : kMaxSplits);
  const std::int64_t items = args.table.n_lists * groups * splits;
  return launch(product<type>, {.blocks = items < kMaxGrid ? items : kMaxGrid, .threads = kThreads}, stream, args,
                splits);
}

}  // namespace

int launch_product(const ProductArgs& args, const Stream& stream) {
  switch (args.w.type) {
    case DType::f32:
      return launch_type<DType::f32>(args, stream);
    case DType::f16:
      return launch_type<DType::f16>(args, stream);
    case DType::bf16:
      return launch_type<DType::bf16>(args, stream);
    case DType::q4_0:
      return launch_type<DType::q4_0>(args, stream);
    case DType::q4_1:
      return launch_type<DType::q4_1>(args, stream);
    case DType::q5_0:
      return launch_type<DType::q5_0>(args, stream);
    case DType::q5_1:
      return launch_type<DType::q5_1>(args, stream);
    case DType::q8_0:
      return launch_type<DType::q8_0>(args, stream);
    case DType::q2_k:
      return launch_type<DType::q2_k>(args, stream);
    case DType::q3_k:
      return launch_type<DType::q3_k>(args, stream);
    case DType::q4_k:
      return launch_type<DType::q4_k>(args, stream);
    case DType::q5_k:
      return launch_type<DType::q5_k>(args, stream);
    case DType::q6_k:
      return launch_type<DType::q6_k>(args, stream);
    case DType::iq4_nl:
      return launch_type<DType::iq4_nl>(args, stream);
    case DType::iq4_xs:
      return launch_type<DType::iq4_xs>(args, stream);
    case DType::mxfp4:
      return launch_type<DType::mxfp4>(args, stream);
    default:
      return cudaErrorInvalidValue;  // validate() lets no other type through
  }
}

int launch_gate(const GateArgs& args, const Stream& stream) {
  return launch(gate, {.blocks = args.table.n_lists < kMaxGrid ? args.table.n_lists : kMaxGrid, .threads = kThreads},
                stream, args);
}

int launch_share(const ShareArgs& args, const Stream& stream) {
  const std::int64_t n = args.out.dims[0];
  return launch(share, {.blocks = n < kMaxGrid ? n : kMaxGrid, .threads = kThreads}, stream, args);
}

}  // namespace conclave::cuda
