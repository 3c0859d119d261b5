#include "base/fail.h"
#include "base/file_text.h"
#include "text/template_parser.h"
#include "text/template_parser_state.h"

namespace conclave::jinja {
namespace {

std::string shown(const Token& token) {
  switch (token.kind) {
    case TokenKind::data:
      return "text";
    case TokenKind::block_begin:
      return "{%";
    case TokenKind::block_end:
      return "%}";
    case TokenKind::variable_begin:
      return "{{";
    case TokenKind::variable_end:
      return "}}";
    case TokenKind::integer:
    case TokenKind::real:
      return "a number";
    case TokenKind::string:
      return "a string";
    case TokenKind::end:
      return "the end of the template";
    default:
      return "'" + printable(token.text) + "'";
  }
}

}  // namespace

void TokenStream::unexpected(std::string_view wanted) const {
  syntax_error(line(), fmt::format("expected {}, found {}", wanted, shown(now())));
}

void TokenStream::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected(fmt::format("'{}'", op));
}

void TokenStream::expect_word(std::string_view word) {
  if (!skip_word(word)) unexpected(fmt::format("'{}'", word));
}

void TokenStream::expect(TokenKind kind, std::string_view what) {
  if (!is(kind)) unexpected(what);
  take();
}

std::string TokenStream::expect_name() {
  if (!is(TokenKind::name)) unexpected("a name");
  return take().text;
}

Nesting::Nesting(int& depth, int line) : depth_(depth) {
  if (depth_ >= kMaxNesting) syntax_error(line, fmt::format("nested deeper than {} levels", kMaxNesting));
  ++depth_;
}

}  // namespace conclave::jinja
