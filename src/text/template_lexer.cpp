#include "text/template_lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"
#include "text/template_text.h"

namespace conclave::jinja {
namespace {

// Line breaks as \n, and without the one at the very end.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)), view_(source_) {}

  std::vector<Token> run() {
    while (at_ < view_.size()) next_part();
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  enum class Tag { block, variable, comment };

  void add(TokenKind kind, std::string text = {}) { tokens_.push_back({kind, line_, std::move(text)}); }

  bool starts(std::string_view with) const { return view_.substr(at_).starts_with(with); }

  // Moves on, counting lines.
  void advance(std::size_t to) {
    line_ += static_cast<int>(std::count(view_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         view_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }

  void skip_space() {
    std::size_t to = at_;
    while (to < view_.size()) {
      const CodePoint c = code_point_at(view_, to);
      if (!is_space(c.value)) break;
      to += c.bytes;
    }
    advance(to);
  }

  // After a tag: does the next text start a line? Decides whether its blanks may go.
  void end_tag() { line_starting_ = at_ > 0 && view_[at_ - 1] == '\n'; }

  // The text [at_, to) before a tag whose sign is `sign`, without the whitespace that the tag takes away.
  void add_data(std::size_t to, char sign, bool may_lstrip) {
    std::string_view text = view_.substr(at_, to - at_);
    if (sign == '-') {
      while (!text.empty()) {
        const std::size_t start = previous_code_point(text, text.size());
        if (!is_space(code_point_at(text, start).value)) break;
        text = text.substr(0, start);
      }
    } else if (sign != '+' && may_lstrip) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
      if (line_start > 0 || line_starting_) {
        std::size_t i = line_start;
        while (i < text.size() && is_space(code_point_at(text, i).value)) i += code_point_at(text, i).bytes;
        if (i == text.size()) text = text.substr(0, line_start);
      }
    }
    if (!text.empty()) add(TokenKind::data, std::string(text));
    advance(to);
  }

  char sign_at(std::size_t at) const {
    return at < view_.size() && (view_[at] == '-' || view_[at] == '+') ? view_[at] : '\0';
  }

  void next_part() {
    std::size_t open = at_;
    for (;; ++open) {
      open = view_.find('{', open);
      if (open == std::string_view::npos || open + 1 >= view_.size()) {
        add(TokenKind::data, std::string(view_.substr(at_)));
        advance(view_.size());
        return;
      }
      const char kind = view_[open + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
    }
    const Tag tag = view_[open + 1] == '{' ? Tag::variable : view_[open + 1] == '%' ? Tag::block : Tag::comment;
    const char sign = sign_at(open + 2);
    add_data(open, sign, tag != Tag::variable);
    const std::size_t inside = open + 2 + (sign != '\0' ? 1 : 0);
    if (tag == Tag::comment) return comment(inside);
    if (tag == Tag::block) {
      if (const auto end = raw_tag_end(inside, "raw", false)) return raw(*end);
    }
    add(tag == Tag::block ? TokenKind::block_begin : TokenKind::variable_begin);
    advance(inside);
    while (!tag_ends(tag)) token(tag);
  }

  void comment(std::size_t inside) {
    const std::size_t close = view_.find("#}", inside);
    if (close == std::string_view::npos) syntax_error(line_, "a comment that does not end");
    const char sign = close > inside ? sign_at(close - 1) : '\0';
    advance(close + 2);
    after_block_tag(sign);
  }

  void after_block_tag(char sign) {
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && starts("\n")) {
      advance(at_ + 1);
    }
    end_tag();
  }

  // Where the tag `{% word %}` ends whose inside starts at `at`, if it is one. Whitespace and line break that it takes
  // away are included.
  std::optional<std::size_t> raw_tag_end(std::size_t at, std::string_view word, bool is_end) const {
    const auto blanks = [&] {
      while (at < view_.size() && is_space(code_point_at(view_, at).value)) at += code_point_at(view_, at).bytes;
    };
    blanks();
    if (!view_.substr(at).starts_with(word)) return std::nullopt;
    at += word.size();
    blanks();
    const char sign = sign_at(at);
    if (sign == '+' && !is_end) return std::nullopt;
    if (sign != '\0') ++at;
    if (!view_.substr(at).starts_with("%}")) return std::nullopt;
    at += 2;
    if (sign == '-') {
      blanks();
    } else if (is_end && sign == '\0' && at < view_.size() && view_[at] == '\n') {
      ++at;
    }
    return at;
  }

  void raw(std::size_t inside) {
    const int line = line_;
    advance(inside);
    end_tag();
    for (std::size_t open = view_.find("{%", at_); open != std::string_view::npos; open = view_.find("{%", open + 2)) {
      const char sign = sign_at(open + 2);
      const auto end = raw_tag_end(open + 2 + (sign != '\0' ? 1 : 0), "endraw", true);
      if (!end) continue;
      add_data(open, sign, true);
      advance(*end);
      end_tag();
      return;
    }
    syntax_error(line, "a raw block that does not end");
  }

  // Brackets are still open inside {{ {'a': {}} }}: its }} is not the end.
  bool tag_ends(Tag tag) {
    skip_space();
    if (!brackets_.empty()) return false;
    const char sign = sign_at(at_);
    const bool signed_end = sign == '-' || (sign == '+' && tag == Tag::block);
    const std::size_t close = at_ + (signed_end ? 1 : 0);
    if (!view_.substr(close).starts_with(tag == Tag::block ? "%}" : "}}")) return false;
    add(tag == Tag::block ? TokenKind::block_end : TokenKind::variable_end);
    advance(close + 2);
    if (tag == Tag::block) {
      after_block_tag(signed_end ? sign : '\0');
    } else {
      if (sign == '-') skip_space();
      end_tag();
    }
    return true;
  }

  void token(Tag tag) {
    if (at_ >= view_.size()) {
      syntax_error(line_, tag == Tag::block ? "the template ends inside {% %}" : "the template ends inside {{ }}");
    }
    const char c = view_[at_];
    if (is_digit(c)) return number();
    if (is_name_char(c)) return name();
    if (c == '\'' || c == '"') return string(c);
    op();
  }

  void name() {
    std::size_t to = at_;
    while (to < view_.size() && is_name_char(view_[to])) {
      const CodePoint c = code_point_at(view_, to);
      if (is_space(c.value)) break;  // a blank beyond ASCII
      to += c.bytes;
    }
    add(TokenKind::name, std::string(view_.substr(at_, to - at_)));
    advance(to);
  }

  // Digits of a base with single underscores between them, from `at`; returns where they end.
  std::size_t digits_end(std::size_t at, int base) const {
    while (at < view_.size()) {
      if (digit_value(view_[at]) < base) {
        ++at;
      } else if (view_[at] == '_' && at + 1 < view_.size() && digit_value(view_[at + 1]) < base && at > at_) {
        at += 2;
      } else {
        break;
      }
    }
    return at;
  }

  void number() {
    int base = 10;
    std::size_t start = at_;
    if (view_[at_] == '0' && at_ + 2 < view_.size()) {
      const char x = static_cast<char>(view_[at_ + 1] | 0x20);
      const int prefixed = x == 'x' ? 16 : x == 'o' ? 8 : x == 'b' ? 2 : 10;
      if (prefixed != 10 && digit_value(view_[at_ + 2]) < prefixed) base = prefixed, start = at_ + 2;
    }
    std::size_t to = digits_end(start, base);
    bool real = false;
    if (base == 10 && (at_ == 0 || view_[at_ - 1] != '.')) {
      if (to + 1 < view_.size() && view_[to] == '.' && is_digit(view_[to + 1])) {
        to = digits_end(to + 1, 10);
        real = true;
      }
      if (to < view_.size() && (view_[to] == 'e' || view_[to] == 'E')) {
        const std::size_t exponent = to + 1 + (sign_at(to + 1) != '\0' ? 1 : 0);
        if (exponent < view_.size() && is_digit(view_[exponent])) {
          to = digits_end(exponent, 10);
          real = true;
        }
      }
    }
    std::string digits(view_.substr(start, to - start));
    std::erase(digits, '_');
    add(real ? TokenKind::real : TokenKind::integer);
    const char* const end = digits.data() + digits.size();
    Token& token = tokens_.back();
    const std::from_chars_result read = real ? std::from_chars(digits.data(), end, token.real)
                                             : std::from_chars(digits.data(), end, token.integer, base);
    if (read.ec != std::errc{} || read.ptr != end) {
      syntax_error(line_, fmt::format("the number {} is out of range", printable(digits)));
    }
    advance(to);
  }

  void string(char quote) {
    std::size_t to = at_ + 1;
    while (to < view_.size() && view_[to] != quote) to += view_[to] == '\\' ? 2 : 1;
    if (to >= view_.size()) syntax_error(line_, "a string that does not end");
    add(TokenKind::string, unescaped(view_.substr(at_ + 1, to - at_ - 1)));
    advance(to + 1);
  }

  char32_t hex_escape(std::string_view text, std::size_t at, std::size_t n) const {
    char32_t value = 0;
    for (std::size_t i = at; i < at + n; ++i) {
      const int digit = i < text.size() ? digit_value(text[i]) : 99;
      if (digit >= 16) syntax_error(line_, "a string has an unfinished \\x, \\u or \\U");
      value = value << 4 | static_cast<char32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      syntax_error(line_, "a string has a \\u or \\U that is no character");
    }
    return value;
  }

  std::string unescaped(std::string_view text) const {
    static constexpr std::pair<char, char> kSimple[] = {{'n', '\n'},  {'t', '\t'}, {'r', '\r'}, {'\\', '\\'},
                                                        {'\'', '\''}, {'"', '"'},  {'a', '\a'}, {'b', '\b'},
                                                        {'f', '\f'},  {'v', '\v'}};
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out.push_back(text[i]);
        continue;
      }
      const char c = text[++i];
      const auto* const simple =
          std::find_if(std::begin(kSimple), std::end(kSimple), [&](const auto& pair) { return pair.first == c; });
      if (simple != std::end(kSimple)) {
        out.push_back(simple->second);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        append_utf8(out, hex_escape(text, i + 1, n));
        i += n;
      } else if (c >= '0' && c <= '7') {
        char32_t value = 0;
        std::size_t n = 0;
        for (; n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7'; ++n) {
          value = value << 3 | static_cast<char32_t>(text[i + n] - '0');
        }
        append_utf8(out, value);
        i += n - 1;
      } else if (c != '\n') {  // an escaped line break is nothing; an unknown escape stays as it is
        out.push_back('\\');
        out.push_back(c);
      }
    }
    return out;
  }

  void op() {
    static constexpr std::string_view kOps[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","};
    for (const std::string_view op : kOps) {
      if (!starts(op)) continue;
      bracket(op[0]);
      add(TokenKind::op, std::string(op));
      advance(at_ + op.size());
      return;
    }
    syntax_error(line_, fmt::format("unexpected '{}'", printable(view_.substr(at_, code_point_at(view_, at_).bytes))));
  }

  void bracket(char c) {
    if (c == '(') brackets_.push_back(')');
    if (c == '[') brackets_.push_back(']');
    if (c == '{') brackets_.push_back('}');
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) syntax_error(line_, fmt::format("unexpected '{}'", c));
    if (brackets_.back() != c) syntax_error(line_, fmt::format("unexpected '{}', expected '{}'", c, brackets_.back()));
    brackets_.pop_back();
  }

  std::string source_;
  std::string_view view_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // the closing ones still to come
  std::vector<Token> tokens_;
};

}  // namespace

void syntax_error(int line, const std::string& what) {
  fail(ErrorCode::bad_file, "chat template, line {}: {}", line, what);
}

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace conclave::jinja
