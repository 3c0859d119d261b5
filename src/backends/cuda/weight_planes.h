// How prepare() lays out a row of blocks whose size is not a multiple of 16: each field of all its blocks in a plane of
// its own, the row padded to whole 16-byte words with zeros. A row keeps its blocks and its dimensions; only its bytes
// change places.
//
//   q6_k, n blocks    | ql: 128 n | qh: 64 n | scales: 16 n | d: 2 n | padding |
//   q8_0              | qs: 32 n | d: 2 n | padding |
//   q4_0              | qs: 16 n | d: 2 n | padding |
//   mxfp4             | qs: 16 n | e: n | padding |        its nibbles in other places (mxfp4_word)
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

// The formats in blocks of 32 that have planes.
constexpr bool is_block_32(DType type) {
  return type == DType::q8_0 || type == DType::q4_0 || type == DType::mxfp4;
}
// Of a block.
constexpr int level_bytes(DType type) {
  return type == DType::q8_0 ? 32 : 16;
}
constexpr int scale_bytes(DType type) {
  return type == DType::mxfp4 ? 1 : 2;
}

struct Planes32 {
  DType type;
  std::int64_t blocks;

  constexpr std::int64_t levels(std::int64_t b) const { return level_bytes(type) * b; }
  constexpr std::int64_t scales(std::int64_t b) const { return level_bytes(type) * blocks + scale_bytes(type) * b; }
  constexpr std::int64_t row_bytes() const { return (scales(blocks) + 15) / 16 * 16; }
};
static_assert(Planes32{DType::q8_0, 64}.row_bytes() == 64 * 34);
static_assert(Planes32{DType::mxfp4, 90}.row_bytes() == 1536);  // d_model 2880: 0.4% more than 1530

// Four bytes of an mxfp4 block hold elements 4 t .. 4 t + 3 in their low nibbles and those 16 on in their high ones. In
// a plane the first four are the lower half of the word and the others the upper: a half selects four bytes of a table.
constexpr std::uint32_t mxfp4_word(std::uint32_t stored) {
  std::uint32_t word = 0;
  for (int half = 0; half < 2; ++half) {
    std::uint32_t x = stored >> 4 * half & 0x0F0F0F0FU;
    x = (x | x >> 4) & 0x00FF00FFU;
    word |= ((x | x >> 8) & 0xFFFFU) << 16 * half;
  }
  return word;
}
static_assert(mxfp4_word(0xD7C5B3A1U) == 0xDCBA7531U);

// Rows of blocks as stored, `from_stride` bytes apart, into planes.
struct PlaneArgs {
  const std::byte* from;
  std::byte* to;
  std::int64_t from_stride;
  std::int64_t rows;
  std::int64_t blocks;  // of a row
  DType type;
};
int launch_spread(const PlaneArgs& args, const Stream& stream);

}  // namespace conclave::cuda
