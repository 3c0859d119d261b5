// Products of few rows with superblock weights, on the int8 tensor cores: bound by the bytes of the weights, which are
// read once for all rows of an expert. Bits as in product_plan.h. Runs on every GPU from sm_80 on.
//
// A block has 32 columns of one list (of gate_up: 16 of gate and the same 16 of up). It copies their superblocks to shared
// memory, eight at a time, and meanwhile eight rows as int8. Each warp takes a superblock; what it adds to an output is
// kept, and added in the order of the superblocks.
#pragma once

#include "backends/cuda/product_plan.h"
#include "ops/activation.h"

namespace conclave::cuda {

// As little as can be: a kernel that runs for microseconds waits for its arguments, too. Rows of x and out lie evenly.
struct UnitArgs {
  RowTable table;
  const std::byte* w = nullptr;   // gate, where `up` is given
  const std::byte* up = nullptr;  // then out = act(gate) * up
  std::int64_t w_expert = 0;      // bytes from expert to expert
  std::int64_t up_expert = 0;
  std::int64_t w_column = 0;  // bytes from column to column
  std::int64_t up_column = 0;
  const std::byte* x = nullptr;
  std::int64_t x_stride = 0;
  std::byte* out = nullptr;
  std::int64_t out_stride = 0;
  const std::int8_t* q = nullptr;  // RowBank's; null: each block quantises the rows it needs
  const float* scale = nullptr;
  const std::uint16_t* sums = nullptr;
  const std::byte* bias = nullptr;
  std::int32_t n = 0;  // columns
  std::int32_t chunks = 0;
  std::int32_t most_rows = 0;  // lists with more rows are left to the other kernel; 0: none are
  DType type = DType::q4_k;    // of the weights: q4_k or q5_k as stored, or q6_k in planes
  DType x_type = DType::f32;
  DType out_type = DType::f32;
  DType bias_type = DType::f32;
  Activation act = Activation::silu;
};

inline constexpr int kFewThreads = 256;
inline constexpr int kFewRows = 8;      // of a pass
inline constexpr int kFewColumns = 32;  // of weights, of a block
inline constexpr int kSegment = 8;      // superblocks at a time, one a warp
static_assert(kFewThreads == kFewColumns * kFewRows && kFewThreads == kSegment * kWarp);

// q4_k and q5_k, used as stored; else it is q6_k, in planes.
constexpr bool is_affine(DType type) {
  return type == DType::q4_k || type == DType::q5_k;
}
constexpr int block_bytes(DType type) {
  return type == DType::q4_k ? 144 : 176;
}

constexpr int segment_of(std::int64_t chunks) {
  return static_cast<int>(chunks < kSegment ? chunks : kSegment);
}
// From column to column in shared memory: words of eight columns lie in different banks.
constexpr int few_column_stride(DType type, std::int64_t chunks) {
  const int bytes = is_affine(type) ? block_bytes(type) * segment_of(chunks) : 208 * segment_of(chunks) + 16;
  return bytes % 32 == 16 ? bytes : (bytes + 31) / 32 * 32 + 16;
}
static_assert(few_column_stride(DType::q4_k, 8) == 1168 && few_column_stride(DType::q4_k, 3) == 432);
static_assert(few_column_stride(DType::q6_k, 8) == 1680 && few_column_stride(DType::q6_k, 3) == 656);
constexpr int few_row_stride(std::int64_t chunks) {
  return segment_of(chunks) * kChunk + 16;
}
constexpr int few_sum_stride(std::int64_t chunks) {
  return segment_of(chunks) * 32 + 16;
}
// What a superblock adds to the outputs of a row: two numbers each.
inline constexpr int kTermStride = kFewColumns + 1;
constexpr std::int64_t few_shared_bytes(DType type, std::int64_t chunks) {
  return kFewColumns * few_column_stride(type, chunks) + kFewRows * (few_row_stride(chunks) + few_sum_stride(chunks)) +
         kFewRows * kSegment * 4 + segment_of(chunks) * kFewRows * kTermStride * 8;
}
static_assert(3 * (few_shared_bytes(DType::q4_k, 100) + 1536) <= 227 * 1024, "three blocks on a multiprocessor");

constexpr LaunchPlan few_rows_plan(DType type, std::int64_t max_active, std::int64_t n, std::int64_t chunks,
                                   bool gate_up) {
  return {.blocks = max_active * ceil_div(n, gate_up ? kFewColumns / 2 : kFewColumns),
          .threads = kFewThreads,
          .shared_bytes = few_shared_bytes(type, chunks)};
}
static_assert(few_rows_plan(DType::q4_k, 8, 768, 8, true).blocks == 8 * 48);

// Whether these kernels can take such weights: their format, layout and alignment.
bool units_fit(const View& w);
// `max_active`: lists that can have a row at all.
int launch_few_rows(const UnitArgs& args, std::int64_t max_active, const Stream& stream);

}  // namespace conclave::cuda
