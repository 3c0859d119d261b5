// Methods of strings.
#include <algorithm>
#include <functional>
#include <optional>

#include "base/file_text.h"
#include "text/template_builtins.h"

namespace conclave::jinja {
namespace {

using Parts = std::vector<std::pair<std::size_t, std::size_t>>;

Value text_list(Runtime& runtime, const Text& text, const Parts& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const auto& [from, to] : parts) items.push_back(runtime.text(text.slice(from, to)));
  return runtime.list(std::move(items));
}

// Where `what` stands, from left to right or from right to left, no two overlapping, at most `limit` of them (below 0:
// all). In order of position.
std::vector<std::size_t> positions(std::string_view text, std::string_view what, std::int64_t limit, bool from_right) {
  std::vector<std::size_t> found;
  if (what.size() > text.size()) return found;
  const std::string backward_text = from_right ? std::string(text.rbegin(), text.rend()) : std::string();
  const std::string backward_what(what.rbegin(), what.rend());
  const std::string_view in = from_right ? std::string_view(backward_text) : text;
  const std::string_view part = from_right ? std::string_view(backward_what) : what;
  for (std::size_t at = 0; limit < 0 || found.size() < static_cast<std::size_t>(limit); at += part.size()) {
    at = find_bytes(in, part, at);
    if (at == std::string_view::npos) break;
    found.push_back(from_right ? text.size() - at - what.size() : at);
  }
  if (from_right) std::reverse(found.begin(), found.end());
  return found;
}

Parts split_at_spaces(std::string_view text, std::int64_t limit, bool from_right) {
  Parts parts;  // words; past the limit, the rest as it is but for the blanks next to the words
  const auto spaces_end = [&](std::size_t at) {
    while (at < text.size() && is_space(code_point_at(text, at).value)) at += code_point_at(text, at).bytes;
    return at;
  };
  const auto spaces_start = [&](std::size_t end) {
    while (end > 0 && is_space(code_point_at(text, previous_code_point(text, end)).value)) {
      end = previous_code_point(text, end);
    }
    return end;
  };
  const auto full = [&] { return limit >= 0 && parts.size() >= static_cast<std::size_t>(limit); };
  if (!from_right) {
    std::size_t at = spaces_end(0);
    while (at < text.size() && !full()) {
      std::size_t end = at;
      while (end < text.size() && !is_space(code_point_at(text, end).value)) end += code_point_at(text, end).bytes;
      parts.emplace_back(at, end);
      at = spaces_end(end);
    }
    if (at < text.size()) parts.emplace_back(at, text.size());
    return parts;
  }
  std::size_t end = spaces_start(text.size());
  while (end > 0 && !full()) {
    std::size_t start = end;
    while (start > 0 && !is_space(code_point_at(text, previous_code_point(text, start)).value)) {
      start = previous_code_point(text, start);
    }
    parts.emplace_back(start, end);
    end = spaces_start(start);
  }
  if (end > 0) parts.emplace_back(0, end);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split(Runtime& runtime, const Text& text, const Arguments& arguments, bool from_right) {
  const auto args = arguments.bind("split", {"sep", "maxsplit"}, 0);
  const std::int64_t limit = integer_or(args[1], -1);
  if (args[0] == nullptr || args[0]->is<None>()) {
    return text_list(runtime, text, split_at_spaces(text.view(), limit, from_right));
  }
  const Text& separator = text_argument("split", *args[0]);
  if (separator.empty()) wrong("split with an empty separator");
  Parts parts;
  std::size_t start = 0;
  for (const std::size_t at : positions(text.view(), separator.view(), limit, from_right)) {
    parts.emplace_back(start, at);
    start = at + separator.size();
  }
  parts.emplace_back(start, text.size());
  return text_list(runtime, text, parts);
}

Value partition(Runtime& runtime, const Text& text, const Arguments& arguments, bool from_right) {
  const auto args = arguments.bind("partition", {"sep"}, 1);
  const Text& separator = text_argument("partition", *args[0]);
  if (separator.empty()) wrong("partition with an empty separator");
  const auto found = positions(text.view(), separator.view(), 1, from_right);
  const std::size_t none = from_right ? 0 : text.size();
  const std::size_t at = found.empty() ? none : found[0];
  const std::size_t end = found.empty() ? none : at + separator.size();
  return runtime.tuple(
      {runtime.text(text.slice(0, at)), runtime.text(text.slice(at, end)), runtime.text(text.slice(end, text.size()))});
}

Value strip(Runtime& runtime, const Text& text, const Arguments& arguments, Sides sides) {
  const auto args = arguments.bind("strip", {"chars"}, 0);
  const bool blanks = args[0] == nullptr || args[0]->is<None>();
  if (!blanks) runtime.step_characters(text.size() + text_argument("strip", *args[0]).size());
  return runtime.text(stripped(text, blanks ? nullptr : args[0]->text(), sides));
}

Value starts_or_ends(const Text& text, const Arguments& arguments, bool starts) {
  const auto args = arguments.bind(starts ? "startswith" : "endswith", {"prefix"}, 1);
  const auto matches = [&](const Value& value) {
    const std::string_view part = text_argument("startswith", value).view();
    return starts ? text.view().starts_with(part) : text.view().ends_with(part);
  };
  if (const List* const list = args[0]->list(); list != nullptr && list->is_tuple) {
    return std::any_of(list->items.begin(), list->items.end(), matches);
  }
  return matches(*args[0]);
}

Value without(Runtime& runtime, const Text& text, const Arguments& arguments, bool prefix) {
  const auto args = arguments.bind(prefix ? "removeprefix" : "removesuffix", {"part"}, 1);
  const std::string_view part = text_argument("removeprefix", *args[0]).view();
  if (prefix && text.view().starts_with(part)) return runtime.text(text.slice(part.size(), text.size()));
  if (!prefix && text.view().ends_with(part)) return runtime.text(text.slice(0, text.size() - part.size()));
  return runtime.text(text);
}

Value find(const Text& text, const Arguments& arguments, bool from_right, bool must) {
  const auto args = arguments.bind("find", {"sub"}, 1);
  const Text& part = text_argument("find", *args[0]);
  std::optional<std::size_t> at;
  if (part.empty()) {
    at = from_right ? text.size() : 0;
  } else if (const auto found = positions(text.view(), part.view(), 1, from_right); !found.empty()) {
    at = found[0];
  }
  if (!at && must) wrong("index: the part is not in the text");
  return at ? static_cast<std::int64_t>(count_code_points(text.view().substr(0, *at))) : std::int64_t{-1};
}

Value count(const Text& text, const Arguments& arguments) {
  const auto args = arguments.bind("count", {"sub"}, 1);
  const Text& part = text_argument("count", *args[0]);
  if (part.empty()) return static_cast<std::int64_t>(count_code_points(text.view()) + 1);
  return static_cast<std::int64_t>(positions(text.view(), part.view(), -1, false).size());
}

Value joined(Runtime& runtime, const Text& separator, const Arguments& arguments) {
  const auto args = arguments.bind("join", {"iterable"}, 1);
  Text out;
  bool first = true;
  for (const Value& item : items_of(runtime, *args[0])) {
    if (!first) out.append(separator);
    first = false;
    const Text& part = text_argument("join", item);
    runtime.step_bytes(separator.size() + part.size());
    runtime.check_length(out.size() + part.size());
    out.append(part);
  }
  return runtime.text(std::move(out));
}

// Upper case at the start of every run of letters.
Value title(Runtime& runtime, const Text& text) {
  Text out;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text.view(), at);
    if (c.value == 0xFFFD) {
      out.append(text, at, at + c.bytes);
    } else {
      out.append(in_word ? to_lower(c.value) : to_upper(c.value), text.trusted_at(at));
    }
    in_word = is_cased(c.value);
    at += c.bytes;
  }
  return runtime.text(std::move(out));
}

Value padded(Runtime& runtime, const Text& text, const Arguments& arguments, std::string_view name) {
  const auto args = arguments.bind(name, {"width", "fillchar"}, 1);
  const std::int64_t width = integer_or(args[0], 0);
  const Text blank(" ", true);
  const Text& fill = args[1] == nullptr ? blank : text_argument(name, *args[1]);
  const auto n = static_cast<std::int64_t>(count_code_points(text.view()));
  if (count_code_points(fill.view().substr(0, 5)) != 1) wrong("{} wants one character to fill with", name);
  if (width <= n) return runtime.text(text);
  runtime.check_length(static_cast<std::size_t>(width));
  runtime.step_bytes(static_cast<std::size_t>(width));
  Text padding;
  for (std::int64_t i = n; i < width; ++i) padding.append(fill);
  Text out = name == "rjust" ? padding : text;
  out.append(name == "rjust" ? text : padding);
  return runtime.text(std::move(out));
}

// Every character passes, and there is one.
Value all_are(const Text& text, bool (*is)(char32_t)) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text.view(), at);
    if (!is(c.value)) return false;
    at += c.bytes;
  }
  return !text.empty();
}

// Of the characters that have a case all have this one, and there is one.
Value all_cased(const Text& text, std::string (*to)(char32_t)) {
  bool any = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text.view(), at);
    if (is_cased(c.value)) {
      if (to(c.value) != text.view().substr(at, c.bytes)) return false;
      any = true;
    }
    at += c.bytes;
  }
  return any;
}

bool is_ascii_digit(char32_t c) {
  return c >= '0' && c <= '9';
}

// Letters without a case (of most scripts) are told from signs only roughly: beyond Latin-1, what is no blank counts.
bool is_letter(char32_t c) {
  const bool sign = (c >= 0x2000 && c <= 0x2BFF) || (c >= 0x3000 && c <= 0x3004) || (c >= 0x1F000 && c <= 0x1FAFF);
  return is_cased(c) || (c > 0xFF && !is_space(c) && !sign);
}

bool is_letter_or_digit(char32_t c) {
  return is_letter(c) || is_ascii_digit(c);
}

}  // namespace

Value call_text_method(Runtime& runtime, const Text& self, std::string_view name, const Arguments& arguments) {
  runtime.step_bytes(self.size());
  if (name == "strip") return strip(runtime, self, arguments, Sides::both);
  if (name == "lstrip") return strip(runtime, self, arguments, Sides::left);
  if (name == "rstrip") return strip(runtime, self, arguments, Sides::right);
  if (name == "split") return split(runtime, self, arguments, false);
  if (name == "rsplit") return split(runtime, self, arguments, true);
  if (name == "partition") return partition(runtime, self, arguments, false);
  if (name == "rpartition") return partition(runtime, self, arguments, true);
  if (name == "startswith") return starts_or_ends(self, arguments, true);
  if (name == "endswith") return starts_or_ends(self, arguments, false);
  if (name == "removeprefix") return without(runtime, self, arguments, true);
  if (name == "removesuffix") return without(runtime, self, arguments, false);
  if (name == "find") return find(self, arguments, false, false);
  if (name == "rfind") return find(self, arguments, true, false);
  if (name == "index") return find(self, arguments, false, true);
  if (name == "rindex") return find(self, arguments, true, true);
  if (name == "count") return count(self, arguments);
  if (name == "join") return joined(runtime, self, arguments);
  if (name == "format") return brace_format(runtime, self, arguments);
  if (name == "ljust" || name == "rjust") return padded(runtime, self, arguments, name);
  if (name == "replace") {
    const auto args = arguments.bind(name, {"old", "new", "count"}, 2);
    const Text& to = text_argument(name, *args[1]);
    const Text result = replaced(runtime, self, text_argument(name, *args[0]), self.is_markup() ? html_escaped(to) : to,
                                 integer_or(args[2], -1));
    return runtime.text(result.as_markup(self.is_markup()));
  }
  if (name == "splitlines") {
    const auto args = arguments.bind(name, {"keepends"}, 0);
    std::vector<Value> lines;
    for (Text& line : split_lines(self, truth_or(args[0], false))) lines.push_back(runtime.text(std::move(line)));
    return runtime.list(std::move(lines));
  }
  if (name == "center") {
    const auto args = arguments.bind(name, {"width"}, 1);
    return runtime.text(centered(runtime, self, integer_or(args[0], 0)));
  }
  arguments.bind(name, {}, 0);
  runtime.step_characters(self.size());
  if (name == "upper") return runtime.text(upper_case(self));
  if (name == "lower" || name == "casefold") return runtime.text(lower_case(self));
  if (name == "capitalize") return runtime.text(capitalized(self));
  if (name == "title") return title(runtime, self);
  if (name == "isspace") return all_are(self, is_space);
  if (name == "isdigit" || name == "isnumeric" || name == "isdecimal") return all_are(self, is_ascii_digit);
  if (name == "isalpha") return all_are(self, is_letter);
  if (name == "isalnum") return all_are(self, is_letter_or_digit);
  if (name == "isupper") return all_cased(self, to_upper);
  if (name == "islower") return all_cased(self, to_lower);
  wrong("strings have no method '{}' here", printable(name));
}

}  // namespace conclave::jinja
