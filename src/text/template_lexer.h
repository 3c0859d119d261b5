// A template cut into tokens: the text between tags, and what stands inside them. Whitespace control happens here, with
// the settings that chat templates are written for: a line break right after a block tag goes (trim_blocks), and so do
// the blanks before one that starts its line (lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace conclave::jinja {

enum class TokenKind {
  data,
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,
  integer,
  real,
  op,
  end
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // data, name, string (unescaped), op; empty otherwise
  std::int64_t integer = 0;
  double real = 0;
};

// The last token is `end`. Throws Error, with the line, on what is no template.
std::vector<Token> tokenize(std::string_view source);

// A syntax error at a line: "chat template, line 3: ...".
[[noreturn]] void syntax_error(int line, const std::string& what);

}  // namespace conclave::jinja
