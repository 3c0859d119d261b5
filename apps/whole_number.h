// Numbers on the command line. (CLI11's own checks go through double, take NaN, and its unsigned numbers take -1.)
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <optional>
#include <string>

namespace conclave {

// The whole text as a number.
template <class T>
std::optional<T> parse_number(const std::string& text) {
  T value{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <class T>
CLI::Validator at_least(T min) {
  return {[min](const std::string& text) {
            const auto value = parse_number<T>(text);
            return value && *value >= min ? std::string{}
                                          : fmt::format("'{}' is not a whole number from {} on", text, min);
          },
          ""};
}

inline CLI::Validator whole_number(std::int64_t min, std::int64_t max) {
  return {[min, max](const std::string& text) {
            const auto value = parse_number<std::int64_t>(text);
            return value && *value >= min && *value <= max
                       ? std::string{}
                       : fmt::format("'{}' is not a whole number from {} to {}", text, min, max);
          },
          ""};
}

inline CLI::Validator number_within(double min, double max) {
  return {[min, max](const std::string& text) {
            const auto value = parse_number<double>(text);
            return value && *value >= min && *value <= max
                       ? std::string{}
                       : fmt::format("'{}' is not a number from {} to {}", text, min, max);
          },
          ""};
}

}  // namespace conclave
