#include "bench/kernels/random_blocks.h"

#include <cmath>
#include <cstring>
#include <string>

#include "base/error.h"
#include "quant/half.h"

namespace conclave::bench {
namespace {

void put_f16(std::byte* at, double value) {
  const std::uint16_t bits = f32_to_f16(static_cast<float>(value));
  std::memcpy(at, &bits, sizeof bits);
}

// Where a block keeps its scales, and what they are for weights of standard deviation 1.
struct Scales {
  std::int64_t d_at;
  double d;
  std::int64_t m_at = -1;  // minimum or offset; none where negative
  double m = 0;
};

Scales scales_of(DType type) {
  switch (type) {
    case DType::q4_0:
      return {0, 1 / 4.6};  // levels -8..7
    case DType::q4_1:
      return {0, 1 / 4.6, 2, -7.5 / 4.6};
    case DType::q5_0:
      return {0, 1 / 9.2};
    case DType::q5_1:
      return {0, 1 / 9.2, 2, -15.5 / 9.2};
    case DType::q8_0:
      return {0, 1 / 74.0};
    case DType::q2_k:
      return {80, 0.1, 82, 0.15};  // scale 0..15 times level 0..3, minimum 0..15
    case DType::q3_k:
      return {108, 0.025};  // scale -32..31 times level -4..3
    case DType::q4_k:
      return {0, 0.006, 2, 0.045};  // scale 0..63 times level 0..15, minimum 0..63
    case DType::q5_k:
      return {0, 0.003, 2, 0.045};
    case DType::q6_k:
      return {208, 0.0008};  // int8 scale times level -32..31
    case DType::iq4_nl:
      return {0, 0.015};
    case DType::iq4_xs:
      return {0, 0.0008};
    default:
      CONCLAVE_CHECK(false, std::string(dtype_info(type).name));
  }
}

void fill_bits(std::span<std::byte> bytes, test::Rng& rng) {
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t bits = rng.bits();
    std::memcpy(bytes.data() + i, &bits, 8);
  }
  for (; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(rng.bits());
}

void random_floats(DType type, std::span<std::byte> out, double size, test::Rng& rng) {
  const auto width = static_cast<std::size_t>(dtype_info(type).bytes);
  const double reach = size * std::sqrt(12.0);  // of a uniform distribution
  for (std::size_t i = 0; i + width <= out.size(); i += width) {
    const auto value = static_cast<float>((rng.uniform() - 0.5) * reach);
    const std::uint16_t half = type == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(out.data() + i, type == DType::f32 ? static_cast<const void*>(&value) : &half, width);
  }
}

// One shared power of two, e8m0: the codes' root mean square is 2.9.
void random_mxfp4(std::span<std::byte> blocks, double size, test::Rng& rng) {
  fill_bits(blocks, rng);
  const int exponent = 127 + static_cast<int>(std::floor(std::log2(size / 2.9)));
  for (std::size_t at = 0; at < blocks.size(); at += static_cast<std::size_t>(dtype_info(DType::mxfp4).bytes)) {
    blocks[at] = static_cast<std::byte>(exponent + static_cast<int>(rng.bits() & 1U));
  }
}

}  // namespace

void random_blocks(DType type, std::span<std::byte> blocks, double size, test::Rng& rng) {
  if (is_float(type)) return random_floats(type, blocks, size, rng);
  if (type == DType::mxfp4) return random_mxfp4(blocks, size, rng);
  fill_bits(blocks, rng);
  const Scales scales = scales_of(type);
  const auto bytes = static_cast<std::size_t>(dtype_info(type).bytes);
  for (std::size_t at = 0; at + bytes <= blocks.size(); at += bytes) {
    const double scale = size * (0.7 + 0.6 * rng.uniform());
    put_f16(&blocks[at] + scales.d_at, scales.d * scale);
    if (scales.m_at >= 0) put_f16(&blocks[at] + scales.m_at, scales.m * scale);
  }
}

}  // namespace conclave::bench
