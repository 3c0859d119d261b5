// Launch: how a Dispatch is written down. Binding a tensor gives the View that goes into the kernel's arguments.
//
//   Launch<NormArgs> launch("rms_norm_rows");
//   launch.args.x = launch.in(NormArgs::kX, op.x);
//   launch.args.out = launch.out(NormArgs::kOut, op.out);
//   return launch.over({rows}, row_threads(d));
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "backends/metal/metal_op.h"
#include "base/fail.h"
#include "ops/scratch.h"

namespace conclave::metal {

// Threadgroup memory that sums over a threadgroup go through: a number for each simdgroup.
inline constexpr std::int64_t kReduceBytes = 32 * 4;

inline constexpr std::int64_t kBindAlignment = 256;  // of the address that a kernel gets
static_assert(static_cast<int>(DType::mxfp4) == kMXFP4 && static_cast<int>(DType::q4_k) == kQ4_K &&
              static_cast<int>(DType::q8_0) == kQ8_0 && static_cast<int>(DType::bf16) == kBF16);
static_assert(sizeof(View) == 80);

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// A part of the program's scratch, or of the op's constants.
struct ScratchPart {
  std::int64_t begin = 0;
  std::int64_t bytes = 0;
};
inline ScratchPart scratch_part(ScratchLayout& layout, std::int64_t count, std::int64_t bytes) {
  return {layout.add(count, bytes), count * bytes};
}

// Grids and counts are 32-bit in Metal, indices in kernels are ints.
inline std::int32_t narrow(std::int64_t n) {
  if (n > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorCode::unsupported, "{} rows, columns or groups are more than this backend counts", n);
  }
  return static_cast<std::int32_t>(n);
}
inline std::uint32_t groups_of(std::int64_t n) {
  return static_cast<std::uint32_t>(narrow(n));
}

// Threads for a row of d elements: some elements each.
inline std::uint32_t row_threads(std::int64_t d) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(ceil_div(d, 4 * kSimdWidth), 1, 8) * kSimdWidth);
}

// The threads of one threadgroup that does a whole op: a simdgroup for each of `lists`, up to all that fit.
inline std::uint32_t list_threads(std::int64_t lists) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(lists, 1, 32) * kSimdWidth);
}

// An op of one dispatch, or of none where its grid is empty.
inline MetalOp op_of(Dispatch dispatch) {
  MetalOp op;
  const Grid& groups = dispatch.groups;
  if (groups.x != 0 && groups.y != 0 && groups.z != 0) op.steps.push_back(std::move(dispatch));
  return op;
}

template <class Args>
class Launch {
 public:
  explicit Launch(std::string kernel) { dispatch_.kernel = std::move(kernel); }

  Args args{};

  View in(int slot, const Tensor& t) { return bind(slot, t, false); }
  View out(int slot, const Tensor& t) { return bind(slot, t, true); }
  // Where the part begins, from the address that the kernel gets. Parts that share a slot become one range.
  std::int64_t in(int slot, const ScratchPart& part) { return bind(slot, part, Range::In::scratch, false); }
  std::int64_t out(int slot, const ScratchPart& part) { return bind(slot, part, Range::In::scratch, true); }
  std::int64_t constants(int slot, const ScratchPart& part) { return bind(slot, part, Range::In::constants, false); }

  // The kernel is written for exactly as many threads as it is launched with.
  void needs_all_threads() { dispatch_.needs_all_threads = true; }

  Dispatch over(const Grid& groups, std::uint32_t threads, std::int64_t shared_bytes = 0) {
    dispatch_.args.resize(sizeof(Args));
    std::memcpy(dispatch_.args.data(), &args, sizeof(Args));
    static_assert(sizeof(Args) <= 4096, "what Metal takes as bytes");
    dispatch_.groups = groups;
    dispatch_.threads = threads;
    dispatch_.shared_bytes = static_cast<std::uint32_t>(ceil_div(shared_bytes, 16) * 16);
    return std::move(dispatch_);
  }
  // The groups are three u32 at the beginning of the part.
  Dispatch over_indirect(const ScratchPart& grid, std::uint32_t threads, std::int64_t shared_bytes = 0) {
    Dispatch made = over({}, threads, shared_bytes);
    made.indirect = Range{.in = Range::In::scratch, .begin = grid.begin, .end = grid.begin + 12};
    return made;
  }

 private:
  Range& range_at(int slot) { return dispatch_.ranges[static_cast<std::size_t>(slot)]; }

  View bind(int slot, const Tensor& t, bool writes) {
    if (!t.defined()) return {};
    View view{.offset = t.byte_offset % kBindAlignment, .type = static_cast<int>(t.dtype), .rank = t.rank};
    for (int i = 0; i < t.rank; ++i) {
      view.dims[i] = t.dim(i);
      view.strides[i] = t.stride(i);
    }
    const ByteRange bytes = byte_range(t);
    range_at(slot) = {Range::In::buffer, t.buffer, bytes.begin, bytes.end, writes};
    if (bytes.empty()) range_at(slot).begin = range_at(slot).end = t.byte_offset;
    return view;
  }

  std::int64_t bind(int slot, const ScratchPart& part, Range::In in, bool writes) {
    Range& range = range_at(slot);
    if (range.in == Range::In::nothing) range = {in, nullptr, part.begin, part.begin, writes};
    CONCLAVE_CHECK(range.in == in && range.begin <= part.begin, "parts of one slot ascend");
    range.end = std::max(range.end, part.begin + part.bytes);
    range.writes = range.writes || writes;
    return part.begin - range.begin / kBindAlignment * kBindAlignment;
  }

  Dispatch dispatch_;
};

}  // namespace conclave::metal
