// The numbers GGUF gives to value types and tensor types, and what is known of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace conclave::gguf {

enum class ValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
inline constexpr std::uint32_t kValueTypeCount = 13;

std::string_view value_type_name(ValueType type);  // "u32", "string", ...
// Bytes of one value in the file; 0 for strings and arrays.
std::uint64_t value_type_bytes(ValueType type);

// A tensor type of the file format. `dtype` is empty for the types that are legal in a file but that conclave does not
// compute with (iq2_xxs, i64, ...): such a file can be listed, and the model check refuses it by name.
struct TensorType {
  std::uint32_t code;
  std::string_view name;  // as in "Q4_K"
  std::int64_t per_block;
  std::int64_t bytes;
  std::optional<DType> dtype;
};

// Null for a number that was never given out or has been removed (4, 5, 31 to 33, 36 to 38, ...).
const TensorType* tensor_type(std::uint32_t code);
const TensorType& tensor_type(DType type);  // i32 exists in files; u32 does not and is a bug to ask for

}  // namespace conclave::gguf
