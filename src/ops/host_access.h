// How the references reach elements: any float type as f32, any weight row decoded, indices as i32. Host memory only,
// and only after validate(): nothing here checks bounds again.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "quant/codec.h"
#include "quant/half.h"
#include "tensor/tensor.h"

namespace conclave {

using Index = std::initializer_list<std::int64_t>;

// The address of the innermost row (or of the element, for plain types) at the given leading indices.
inline std::byte* row_address(const Tensor& t, Index leading) {
  std::byte* at = t.buffer->host() + t.byte_offset;
  int i = 0;
  for (const std::int64_t index : leading) at += index * t.stride(i++);
  return at;
}

inline float load(const Tensor& t, Index index) {
  const std::byte* at = row_address(t, index);
  if (t.dtype == DType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return t.dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// Rounds once: from f64 to f32, then to the tensor's type.
inline void store(const Tensor& t, Index index, double value) {
  std::byte* at = row_address(t, index);
  const auto rounded = static_cast<float>(value);
  if (t.dtype == DType::f32) {
    std::memcpy(at, &rounded, sizeof rounded);
    return;
  }
  const std::uint16_t bits = t.dtype == DType::f16 ? f32_to_f16(rounded) : f32_to_bf16(rounded);
  std::memcpy(at, &bits, sizeof bits);
}

inline std::int32_t load_i32(const Tensor& t, Index index) {
  std::int32_t value;
  std::memcpy(&value, row_address(t, index), sizeof value);
  return value;
}

inline void store_i32(const Tensor& t, Index index, std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  std::memcpy(row_address(t, index), &narrow, sizeof narrow);
}

// One innermost row of any float or block type, decoded.
inline void load_row(const Tensor& t, Index leading, std::vector<float>& out) {
  out.resize(static_cast<std::size_t>(t.inner()));
  decode(t.dtype, {row_address(t, leading), static_cast<std::size_t>(row_bytes(t))}, out);
}

inline std::vector<float> load_row(const Tensor& t, Index leading) {
  std::vector<float> row;
  load_row(t, leading, row);
  return row;
}

// Rows that count: a device-side `live` count (i32 [1], optional) held to [0, rows].
inline std::int64_t live_rows(const Tensor& live, std::int64_t rows) {
  if (!live.defined()) return rows;
  const std::int64_t count = load_i32(live, {0});
  return count < 0 ? 0 : (count > rows ? rows : count);
}

}  // namespace conclave
