#include <cstring>

#include "gguf/file.h"

namespace conclave::gguf {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;  // at any position: the format aligns nothing in its header
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct Integer {
  bool negative;
  std::uint64_t bits;
};

template <class T>
Integer integer(const std::byte* at) {
  const T value = load<T>(at);
  return {value < T{0}, static_cast<std::uint64_t>(value)};
}

std::optional<Integer> load_integer(ValueType type, const std::byte* at) {
  switch (type) {
    case ValueType::u8:
      return Integer{false, load<std::uint8_t>(at)};
    case ValueType::i8:
      return integer<std::int8_t>(at);
    case ValueType::u16:
      return Integer{false, load<std::uint16_t>(at)};
    case ValueType::i16:
      return integer<std::int16_t>(at);
    case ValueType::u32:
      return Integer{false, load<std::uint32_t>(at)};
    case ValueType::i32:
      return integer<std::int32_t>(at);
    case ValueType::u64:
      return Integer{false, load<std::uint64_t>(at)};
    case ValueType::i64:
      return integer<std::int64_t>(at);
    default:
      return std::nullopt;
  }
}

}  // namespace

ValueType Value::type() const {
  return type_;
}

ValueType Value::element_type() const {
  return element_type_;
}

std::uint64_t Value::size() const {
  return size_;
}

std::optional<std::uint64_t> Value::as_u64() const {
  return type_ == ValueType::array ? std::nullopt : u64_at(0);
}

std::optional<std::int64_t> Value::as_i64() const {
  return type_ == ValueType::array ? std::nullopt : i64_at(0);
}

std::optional<double> Value::as_float() const {
  return type_ == ValueType::array ? std::nullopt : float_at(0);
}

std::optional<bool> Value::as_bool() const {
  return type_ == ValueType::array ? std::nullopt : bool_at(0);
}

std::optional<std::string_view> Value::as_string() const {
  return type_ == ValueType::array ? std::nullopt : string_at(0);
}

std::optional<std::uint64_t> Value::u64_at(std::uint64_t index) const {
  if (index >= size_) return std::nullopt;
  const auto value = load_integer(element_type_, data_ + index * value_type_bytes(element_type_));
  if (!value || value->negative) return std::nullopt;
  return value->bits;
}

std::optional<std::int64_t> Value::i64_at(std::uint64_t index) const {
  if (index >= size_) return std::nullopt;
  const auto value = load_integer(element_type_, data_ + index * value_type_bytes(element_type_));
  if (!value || (!value->negative && (value->bits >> 63) != 0)) return std::nullopt;
  return static_cast<std::int64_t>(value->bits);
}

std::optional<double> Value::float_at(std::uint64_t index) const {
  if (index >= size_) return std::nullopt;
  if (element_type_ == ValueType::f32) return load<float>(data_ + index * sizeof(float));
  if (element_type_ == ValueType::f64) return load<double>(data_ + index * sizeof(double));
  return std::nullopt;
}

std::optional<bool> Value::bool_at(std::uint64_t index) const {
  if (index >= size_ || element_type_ != ValueType::boolean) return std::nullopt;
  return data_[index] != std::byte{0};
}

std::optional<std::string_view> Value::string_at(std::uint64_t index) const {
  if (index >= size_ || element_type_ != ValueType::string) return std::nullopt;
  const auto* const text = reinterpret_cast<const char*>(data_);
  if (type_ == ValueType::string) return std::string_view(text, text_bytes_);
  const std::uint64_t begin = string_starts_[index];
  const std::uint64_t end = string_starts_[index + 1] - sizeof(std::uint64_t);  // the next string's length lies between
  return std::string_view(text + begin, end - begin);
}

}  // namespace conclave::gguf
