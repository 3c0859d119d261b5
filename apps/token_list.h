// Token ids on the command line: "1,2,3".
#pragma once

#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace conclave {

// Nothing where the text is not a list of whole numbers. An empty text is an empty list.
inline std::optional<std::vector<std::int32_t>> parse_token_list(std::string_view text) {
  std::vector<std::int32_t> ids;
  if (text.empty()) return ids;
  for (const char* at = text.data();; ++at) {
    std::int32_t id = 0;
    const auto [end, fault] = std::from_chars(at, text.data() + text.size(), id);
    if (fault != std::errc{}) return std::nullopt;
    ids.push_back(id);
    at = end;
    if (at == text.data() + text.size()) return ids;
    if (*at != ',') return std::nullopt;
  }
}

inline CLI::Validator token_list() {
  return {[](const std::string& text) {
            return parse_token_list(text) ? std::string{} : "'" + text + "' is not a list of token ids such as 1,2,3";
          },
          ""};
}

}  // namespace conclave
