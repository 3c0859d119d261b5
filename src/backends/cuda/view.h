// View: a tensor as a kernel sees it, with the address that only this backend knows. Host code and kernels share it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

struct CUstream_st;

namespace conclave::cuda {

struct View {
  std::byte* data = nullptr;  // null where an optional member was not given
  DType type = DType::f32;
  std::int32_t rank = 0;
  bool planes = false;  // rows of blocks are laid out as weight_planes.h says
  std::int64_t dims[4] = {};
  std::int64_t strides[4] = {};  // bytes
};

// How many threads run a kernel, and how much shared memory each block of them has.
struct LaunchPlan {
  std::int64_t blocks = 0;  // 0: nothing to do, nothing is launched
  int threads = 0;
  std::int64_t shared_bytes = 0;
  int cluster = 1;           // neighbouring blocks that run together and reach each other's shared memory
  bool wants_cache = false;  // more than it wants to start while the kernel before it runs (launch.cuh)
};

// Where kernels are put.
struct Stream {
  CUstream_st* handle = nullptr;
  bool overlaps = false;  // a kernel may start before the one before it has ended (launch.cuh)
};

// The architecture that the kernels which run on the current GPU were compiled for: 90 for sm_90a. An error where there are
// none for it.
int built_for(int* architecture);

inline constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 31) - 1;
inline constexpr int kWarp = 32;

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace conclave::cuda
