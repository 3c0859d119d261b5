// What shim/metal_stdlib declares for kernels, for the compiler of the host: the two must agree.
#pragma once

#include <cstdint>

extern "C" {
enum ShimCollective {
  kShimSumFloat,
  kShimMaxFloat,
  kShimMinFloat,
  kShimSumInt,
  kShimMaxUint,
  kShimMinUint,
  kShimOr,
  kShimAnd,
  kShimPrefixInt,
  kShimShuffle,
  kShimShuffleXor,
  kShimShuffleDown,
  kShimShuffleUp,
  kShimMatrix,
  kShimBarrier,
};
}

struct ShimPlace {
  std::uint32_t group[3];
  std::uint32_t groups[3];
  std::uint32_t index;
  std::uint32_t count;
  std::uint32_t lane;
  std::uint32_t simd;
};
struct ShimKernel {
  const char* name;
  void (*call)(const void* args, unsigned char* const* buffers, unsigned char* shared, const ShimPlace* place);
  const char* fault;
};
