// The bytes of a header as they are put together by the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gguf/types.h"

namespace conclave::gguf {

template <class T>
constexpr ValueType value_type_of() {
  if constexpr (std::is_same_v<T, bool>) return ValueType::boolean;
  if constexpr (std::is_same_v<T, std::uint8_t>) return ValueType::u8;
  if constexpr (std::is_same_v<T, std::int8_t>) return ValueType::i8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return ValueType::u16;
  if constexpr (std::is_same_v<T, std::int16_t>) return ValueType::i16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return ValueType::u32;
  if constexpr (std::is_same_v<T, std::int32_t>) return ValueType::i32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return ValueType::u64;
  if constexpr (std::is_same_v<T, std::int64_t>) return ValueType::i64;
  if constexpr (std::is_same_v<T, float>) return ValueType::f32;
  if constexpr (std::is_same_v<T, double>) return ValueType::f64;
  if constexpr (std::is_same_v<T, std::string>) return ValueType::string;
}

class HeaderText {
 public:
  std::span<const std::byte> bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }

  void raw(std::string_view text) { append(text.data(), text.size()); }

  template <class T>
  void number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    append(&value, sizeof value);
  }

  void value(const std::string& text) {
    number<std::uint64_t>(text.size());
    raw(text);
  }
  void value(bool flag) { number<std::uint8_t>(flag ? 1 : 0); }
  template <class T>
  requires std::is_arithmetic_v<T>
  void value(T scalar) { number(scalar); }

  template <class T>
  void key_value(const std::string& key, const T& scalar) {
    value(key);
    number(static_cast<std::uint32_t>(value_type_of<T>()));
    value(scalar);
  }
  template <class T>
  void key_value(const std::string& key, const std::vector<T>& array) {
    value(key);
    number(static_cast<std::uint32_t>(ValueType::array));
    number(static_cast<std::uint32_t>(value_type_of<T>()));
    number<std::uint64_t>(array.size());
    for (const T& element : array) value(element);
  }

  void pad_to(std::uint64_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
  }

 private:
  void append(const void* data, std::size_t size) {
    const auto* const first = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), first, first + size);
  }
  std::vector<std::byte> bytes_;
};

}  // namespace conclave::gguf
