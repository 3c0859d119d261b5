// The string operations that filters and methods share. All of them are made of slices, so that origins are kept.
#include <algorithm>
#include <unordered_set>

#include "text/template_builtins.h"

namespace conclave::jinja {
namespace {

template <class Convert>
Text converted(const Text& text, Convert&& convert) {
  Text out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text.view(), at);
    if (c.value == 0xFFFD) {
      out.append(text, at, at + c.bytes);  // bytes that are no UTF-8 stay as they are
    } else {
      out.append(convert(c.value, at == 0), text.trusted_at(at));
    }
    at += c.bytes;
  }
  return out.as_markup(text.is_markup());
}

}  // namespace

Text stripped(const Text& text, const Text* characters, Sides sides) {
  std::unordered_set<char32_t> set;
  if (characters != nullptr) {
    for (std::size_t at = 0; at < characters->size();) {
      const CodePoint c = code_point_at(characters->view(), at);
      set.insert(c.value);
      at += c.bytes;
    }
  }
  const auto goes = [&](char32_t c) { return characters == nullptr ? is_space(c) : set.count(c) > 0; };
  std::size_t from = 0;
  std::size_t to = text.size();
  while (sides != Sides::right && from < to) {
    const CodePoint c = code_point_at(text.view(), from);
    if (!goes(c.value)) break;
    from += c.bytes;
  }
  while (sides != Sides::left && from < to) {
    const std::size_t start = previous_code_point(text.view(), to);
    if (!goes(code_point_at(text.view(), start).value)) break;
    to = start;
  }
  return text.slice(from, std::max(from, to));
}

Text replaced(Runtime& runtime, const Text& text, const Text& from, const Text& to, std::int64_t count) {
  runtime.step_bytes(text.size());
  Text out;
  std::size_t at = 0;
  const auto put = [&] {
    runtime.step_bytes(to.size());
    runtime.check_length(out.size() + to.size());
    out.append(to);
  };
  if (from.empty()) {  // between all characters, and at both ends
    for (; count != 0; --count) {
      put();
      if (at >= text.size()) return out;
      const std::size_t end = at + code_point_at(text.view(), at).bytes;
      out.append(text, at, end);
      at = end;
    }
  }
  for (; count != 0 && !from.empty(); --count) {
    const std::size_t found = find_bytes(text.view(), from.view(), at);
    if (found == std::string_view::npos) break;
    out.append(text, at, found);
    put();
    at = found + from.size();
  }
  out.append(text, at, text.size());
  return out;
}

Text upper_case(const Text& text) {
  return converted(text, [](char32_t c, bool) { return to_upper(c); });
}

Text lower_case(const Text& text) {
  return converted(text, [](char32_t c, bool) { return to_lower(c); });
}

Text capitalized(const Text& text) {
  return converted(text, [](char32_t c, bool first) { return first ? to_upper(c) : to_lower(c); });
}

Text centered(Runtime& runtime, const Text& text, std::int64_t width) {
  const auto n = static_cast<std::int64_t>(count_code_points(text.view()));
  if (width <= n) return text;
  runtime.check_length(static_cast<std::size_t>(width));
  const std::int64_t pad = width - n;
  const std::int64_t left = pad / 2 + (pad & width & 1);
  Text out(std::string(static_cast<std::size_t>(left), ' '), true);
  out.append(text);
  out.append(std::string(static_cast<std::size_t>(pad - left), ' '), true);
  return out;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view bytes = text.view();
  std::size_t start = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    std::size_t next = at + c.bytes;
    if (is_line_break(c.value)) {
      if (c.value == '\r' && next < bytes.size() && bytes[next] == '\n') ++next;
      lines.push_back(text.slice(start, keep_ends ? next : at));
      start = next;
    }
    at = next;
  }
  if (start < bytes.size()) lines.push_back(text.slice(start, bytes.size()));
  return lines;
}

}  // namespace conclave::jinja
