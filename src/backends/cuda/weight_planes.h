// How prepare() lays out a row of blocks whose size is not a multiple of 16: each field of all its blocks in a plane of
// its own, the row padded to whole 16-byte words. A row keeps its blocks and its dimensions; only its bytes change places.
//
//   q6_k, n blocks   | ql: 128 n | qh: 64 n | scales: 16 n | d: 2 n | padding |
#pragma once

#include <cstdint>

#include "backends/cuda/view.h"

namespace conclave::cuda {

struct PlanesQ6K {
  std::int64_t blocks;

  constexpr std::int64_t ql(std::int64_t b) const { return 128 * b; }
  constexpr std::int64_t qh(std::int64_t b) const { return 128 * blocks + 64 * b; }
  constexpr std::int64_t scales(std::int64_t b) const { return 192 * blocks + 16 * b; }
  constexpr std::int64_t d(std::int64_t b) const { return 208 * blocks + 2 * b; }
  constexpr std::int64_t row_bytes() const { return (210 * blocks + 15) / 16 * 16; }
};
static_assert(PlanesQ6K{3}.row_bytes() == 640);   // d_ff 768: 1.6% more than the 630 of the blocks
static_assert(PlanesQ6K{8}.row_bytes() == 1680);  // d_model 2048: no more

// Rows of blocks as stored, `from_stride` bytes apart, into planes.
struct PlaneArgs {
  const std::byte* from;
  std::byte* to;
  std::int64_t from_stride;
  std::int64_t rows;
  std::int64_t blocks;  // of a row
};
int launch_spread_q6_k(const PlaneArgs& args, const Stream& stream);

}  // namespace conclave::cuda
