// Arithmetic on numbers that came from a file or a user: nullopt where the result does not fit.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>

namespace conclave {

template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T sum{};
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

template <std::integral T>
constexpr std::optional<T> checked_mul(T a, T b) {
  T product{};
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The next multiple of `alignment` (which must not be 0) at or after `value`.
template <std::unsigned_integral T>
constexpr std::optional<T> checked_align_up(T value, T alignment) {
  const T rest = value % alignment;
  if (rest == 0) return value;
  return checked_add<T>(value, alignment - rest);
}

}  // namespace conclave
