// Whole numbers on the command line. (CLI11's own checks go through double, and its unsigned numbers take -1.)
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <string>

namespace conclave {

template <class T>
CLI::Validator at_least(T min) {
  return {[min](const std::string& text) {
            T value{};
            const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
            if (fault == std::errc{} && end == text.data() + text.size() && value >= min) return std::string{};
            return "'" + text + "' is not a whole number from " + std::to_string(min) + " on";
          },
          ""};
}

}  // namespace conclave
