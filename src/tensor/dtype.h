// The element and block types a tensor can have, and how many bytes they take. What the bits mean is in src/quant.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace conclave {

enum class DType : std::uint8_t {
  // clang-format off
  f32, f16, bf16,                                              // one number each
  i32, u32,
  q4_0, q4_1, q5_0, q5_1, q8_0,                                // blocks of 32 weights
  q2_k, q3_k, q4_k, q5_k, q6_k,                                // superblocks of 256 weights
  iq4_nl, iq4_xs,                                              // 4 bits into a table of 16 levels: 32 and 256 weights
  mxfp4,                                                       // 32 weights in 4-bit floats under one power of two
  // clang-format on
};
inline constexpr int kDTypeCount = static_cast<int>(DType::mxfp4) + 1;

struct DTypeInfo {
  std::string_view name;   // as in "q4_k"
  std::int64_t per_block;  // elements in one block; 1 where an element stands alone
  std::int64_t bytes;      // bytes of one block
  std::int64_t alignment;  // of a block's address, in bytes
};

const DTypeInfo& dtype_info(DType type);
std::span<const DType> all_dtypes();
std::optional<DType> dtype_from_name(std::string_view name);  // "q4_k" or "Q4_K"

// f32, f16, bf16: what activations are made of.
constexpr bool is_float(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}
constexpr bool is_integer(DType type) {
  return type == DType::i32 || type == DType::u32;
}
// Block formats: only weights and caches are stored so.
constexpr bool is_block(DType type) {
  return !is_float(type) && !is_integer(type);
}

}  // namespace conclave
