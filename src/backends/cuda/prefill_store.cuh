// How outputs of prefill_rows get from registers to where they belong.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/prefill_copies.cuh"
#include "backends/cuda/prefill_levels.cuh"

namespace conclave::cuda {

#if CONCLAVE_HOPPER

// Four matrices of 8 x 8 bf16, or two, turned: of matrix m, lane l has column l / 4 of rows 2 (l % 4) and the next in
// word m, and lane 8 m + r says where row r goes, 16 bytes.
__device__ __forceinline__ void store_turned(unsigned to, const unsigned (&word)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word[0]),
               "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}
__device__ __forceinline__ void store_turned(unsigned to, const unsigned (&word)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(word[0]), "r"(word[1])
               : "memory");
}

// By a warpgroup, which has 64 columns of weights and their products with N rows; a warp 16 of the columns. Where rows
// of the output take whole 16-byte words, they are laid side by side in the warpgroup's shared memory, kOutRows of bf16
// at a time, and go on from there line by line. Others are stored by the warps, each for itself.
// kPlain: for weights of 16 bits. Sums are as they are, not kPrefillSmaller times that, and banks in plain order.
template <int kOutRows, bool kGateUp, bool kPlain = false>
class PrefillStore {
 public:
  // `out`: the warpgroup's shared memory. `warp`: of all that multiply.
  __device__ __forceinline__ PrefillStore(const PrefillArgs& args, const PrefillTile& tile, const TableSlot* slots,
                                          std::byte* out, int warp, int lane)
      : at_{args, args.side[tile.side], tile.expert, tile.first},
        slots_(slots),
        out_(out),
        warp_(warp),
        lane_(lane),
        count_(tile.count) {}

  template <int N>
  __device__ __forceinline__ void store(const float (&y)[N / 2]) const {
    const PrefillArgs& args = at_.args;
    const PrefillSide& side = at_.side;
    const bool bank = args.bank_out != nullptr;
    const int columns = columns_of(args.table, side.n);
    const int place = at_.place(warp_ / 4 * 64);  // the warpgroup's first
    const int size = bank || side.out_type != DType::f32 ? 2 : 4;
    const int needed = kPlain ? place + 32 : place / kChunk * kChunk + kChunk;  // by the places of a bank
    const int left = (bank ? needed <= columns ? 32 : 1 : columns - place) * size;
    const To to{bank ? reinterpret_cast<std::byte*>(args.bank_out + place) : side.out + std::int64_t{place} * size,
                bank ? 2 * args.bank_out_stride : side.out_stride, left < 64 * size ? left : 64 * size};
    const bool whole =
        ((reinterpret_cast<std::uintptr_t>(to.out) | static_cast<std::uint64_t>(to.stride)) & 15U) == 0 &&
        (left <= 0 || left % 16 == 0);
    if constexpr (kGateUp) {
      if (whole && bank && side.bias == nullptr && args.act == Activation::silu) return by_lines<Kind::silu, N>(y, to);
      if (whole && bank && side.bias == nullptr) return by_lines<Kind::gated, N>(y, to);
    } else if (whole && !bank) {
      if (side.out_type == DType::bf16 && side.bias == nullptr) return by_lines<Kind::bf16, N>(y, to);
      if (side.out_type == DType::f32) return by_lines<Kind::f32, N>(y, to);
    }
    apart<N>(y, columns);
  }

 private:
  static constexpr float kSmallerBy = kPlain ? 1.0F : kPrefillSmaller;
  static constexpr float kLargerBy = kPlain ? 1.0F : kPrefillLarger;
  static constexpr unsigned kLargerPair = 0x4D804D80U;  // 2^28, twice
  enum class Kind { silu, gated, bf16, f32 };           // bf16 has no bias
  struct To {
    std::byte* out;  // of row 0
    std::int64_t stride;
    int bytes;  // of a row; none if not positive
  };

  // A barrier for each kRows rows: those of the next lie where two ago were.
  template <Kind kind, int N>
  __device__ __forceinline__ void by_lines(const float (&y)[N / 2], const To& to) const {
    constexpr int kRows = kind == Kind::f32 ? kOutRows / 2 : kOutRows;
    constexpr int kBytes = kind == Kind::f32 ? 256 : kind == Kind::bf16 ? 128 : 64;
    constexpr int kStride = kBytes + 16;
    static_assert(kRows * kStride <= kOutRows * kPrefillOutStride);
    if (to.bytes <= 0) return;
    float bias[2] = {};
    if constexpr (kind == Kind::f32) {
      bias[0] = bias_of(lane_ / 4);
      bias[1] = bias_of(lane_ / 4 + 8);
    }
    const int thread = warp_ % 4 * kWarp + lane_;
    const int part = thread % (kBytes / 16) * 16;
#pragma unroll
    for (int first = 0; first < N; first += kRows) {
      if (first >= count_) break;
      const unsigned lines = shared_address(out_) + first / kRows % 2 * (kOutRows * kPrefillOutStride);
#pragma unroll
      for (int n = first / 8; n < (first + kRows) / 8 && n < N / 8; n += kind == Kind::f32 ? 1 : 2) {
        put<kind>(lines + (8 * n - first) * kStride, kStride, y, n, bias);
      }
      group_barrier(1 + warp_ / 4);
#pragma unroll
      for (int row = 0; row < kRows; row += 128 / (kBytes / 16)) {
        const int mine = row + thread / (kBytes / 16);
        if (mine >= kRows || first + mine >= count_ || part >= to.bytes) continue;
        const TableSlot slot = slots_[first + mine];
        if (slot.from < 0) continue;
        *reinterpret_cast<uint4*>(to.out + slot.to * to.stride + part) = words_at(lines + mine * kStride + part);
      }
    }
    group_barrier(1 + warp_ / 4);
  }
  // Rows 8 n to 8 n + 7 of the warp's columns, to `rows` on; of bf16 16 rows.
  template <Kind kind, int n_sums>
  __device__ __forceinline__ void put(unsigned rows, int stride, const float (&y)[n_sums], int n,
                                      const float (&bias)[2]) const {
    if constexpr (kind == Kind::silu || kind == Kind::gated) {
      const unsigned word[2] = {gated_pair<kind>(y, n), gated_pair<kind>(y, n + 1)};
      store_turned(rows + lane_ % 16 * stride + warp_ % 4 * 16, word);
    } else if constexpr (kind == Kind::bf16) {
      unsigned word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        word[i] = bf16_pair(y[4 * n + 2 * i], y[4 * n + 2 * i + 1]);
        // Rounded first: a power of two changes nothing about that.
        if constexpr (!kPlain) word[i] = bf16_pair_fma(word[i], kLargerPair, 0x80008000U);
      }
      store_turned(rows + (lane_ / 16 * 8 + lane_ % 8) * stride + warp_ % 4 * 32 + lane_ / 8 % 2 * 16, word);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = warp_ % 4 * 16 + lane_ / 4 + i / 2 * 8;
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(rows + (lane_ % 4 * 2 + i % 2) * stride + column * 4),
                     "f"(plus(y[4 * n + i], bias[i / 2]))
                     : "memory");
      }
    }
  }
  static __device__ __forceinline__ uint4 words_at(unsigned shared) {
    uint4 y;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w) : "r"(shared));
    return y;
  }

  // Of column c of the warp's.
  __device__ __forceinline__ float bias_of(int c) const {
    const PrefillSide& side = at_.side;
    const int column = at_.place(16 * warp_ + c);
    return side.bias != nullptr && column < side.n ? load_float(side.bias_type, side.bias, column) : 0.0F;
  }
  __device__ __forceinline__ float plus(float y, float bias) const {
    y *= kLargerBy;
    return at_.side.bias != nullptr ? y + bias : y;
  }
  // gated_roughly() with silu, its steps on numbers that are not yet larger: powers of two change no digit.
  static __device__ __forceinline__ float silu_roughly(float gate, float up) {
    const float root = power_of_two(-1.44269504F * 0.5F * kLargerBy * fabsf(gate));
    const float part = gate < 0.0F ? root * kLargerBy : kLargerBy;
    const float over = fmaxf(gate, -1000.0F * kSmallerBy) * part;
    return over * reciprocal(fmaf(root, root, 1.0F)) * (up * part);
  }
  // Two rows of a column of gate and of up.
  template <Kind kind, int n_sums>
  __device__ __forceinline__ unsigned gated_pair(const float (&y)[n_sums], int n) const {
    float both[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float gate = y[4 * n + i];
      const float up = y[4 * n + 2 + i];
      both[i] =
          kind == Kind::silu ? silu_roughly(gate, up) : gated_roughly(at_.args.act, gate * kLargerBy, up * kLargerBy);
    }
    return bf16_pair(both[0], both[1]);
  }

  // 16 rows at a time through shared memory of the warp's own. There, four columns of a row are one word, in an order
  // that spreads over the banks.
  template <int N>
  __device__ __forceinline__ void apart(const float (&y)[N / 2], int columns) const {
    auto* out = reinterpret_cast<float*>(out_) + warp_ % 4 * (16 * 16);
    const int word = kGateUp ? lane_ % 2 : lane_ % 4;
    const int place = at_.place(16 * warp_) + 4 * word;
    const PrefillArgs& args = at_.args;
    const PrefillSide& side = at_.side;
    const auto places = reinterpret_cast<std::uintptr_t>(side.out) | static_cast<std::uint64_t>(side.out_stride);
    const bool fours = args.bank_out == nullptr && (places & 15U) == 0 && place + 4 <= columns;
#pragma unroll 1
    for (int first = 0; first < count_; first += 16) {
      __syncwarp();
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        if (n / 2 * 16 != first) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = 8 * (n % 2) + 2 * (lane_ % 4) + i % 2;
          const int column = lane_ / 4 + 8 * (i / 2);
          out[word_of(row, column / 4) + column % 4] = y[4 * n + i] * kLargerBy;
        }
      }
      __syncwarp();
#pragma unroll 1
      for (int row = kGateUp ? lane_ / 2 : lane_ / 4; row < 16; row += kGateUp ? 16 : 8) {
        const TableSlot slot = slots_[first + row];  // none past the last
        if (slot.from < 0) continue;
        if (fours) {
          put_4(out, row, word, place, slot.to);
        } else {
          put_each(out, row, word, place, columns, slot.to);
        }
      }
    }
    group_barrier(1 + warp_ / 4);
  }
  static __device__ __forceinline__ int word_of(int row, int word) {
    return row * 16 + ((word ^ row >> 1) & 3) * 4;
  }
  // Four outputs of a row, at once.
  __device__ __forceinline__ void put_4(const float* from, int row, int word, int place, std::int64_t to) const {
    const PrefillArgs& args = at_.args;
    const PrefillSide& side = at_.side;
    float y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      y[i] = from[word_of(row, word) + i];
      if constexpr (kGateUp) y[i] = gated_roughly(args.act, y[i], from[word_of(row, word + 2) + i]);
      if (side.bias != nullptr) y[i] += load_float(side.bias_type, side.bias, place + i);
    }
    const int size = side.out_type == DType::f32 ? 4 : 2;
    store_4(side.out_type, side.out + to * side.out_stride + std::int64_t{place} * size, y);
  }
  // The same, one by one.
  __device__ __forceinline__ void put_each(const float* from, int row, int word, int place, int columns,
                                           std::int64_t to) const {
    const PrefillArgs& args = at_.args;
    const PrefillSide& side = at_.side;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const int column = kPlain ? place + i : at_.column(place + i);
      float y = from[word_of(row, word) + i];
      if constexpr (kGateUp) y = gated_roughly(args.act, y, from[word_of(row, word + 2) + i]);
      if (side.bias != nullptr && column < columns) y += load_float(side.bias_type, side.bias, column);
      if (args.bank_out != nullptr) {
        // What is past the last column is zero, up to the bank's end.
        if (place + i >= (side.n + kChunk - 1) / kChunk * kChunk) return;
        auto* out = reinterpret_cast<std::byte*>(args.bank_out + to * args.bank_out_stride);
        store_float(DType::bf16, out, place + i, column < columns ? y : 0.0F);
      } else if (column < columns) {
        store_float(side.out_type, side.out + to * side.out_stride, column, y);
      }
    }
  }

  PrefillColumnsOf at_;
  const TableSlot* slots_;
  std::byte* out_;
  int warp_;
  int lane_;
  int count_;
};

#endif

}  // namespace conclave::cuda
