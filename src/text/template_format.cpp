// How values look as text: str(), repr() and JSON.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/template_runtime.h"
#include "text/template_value.h"

namespace conclave::jinja {
namespace {

// Characters that repr() writes as escapes: control, format, private and unassigned ones and all blanks but the space.
bool is_shown_as_is(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  if (c <= 0xA0 || c == 0xAD) return false;
  static constexpr std::pair<char32_t, char32_t> kHidden[] = {
      {0x600, 0x605},   {0x61C, 0x61C},   {0x6DD, 0x6DD},     {0x70F, 0x70F},     {0x1680, 0x1680}, {0x180E, 0x180E},
      {0x2000, 0x200F}, {0x2028, 0x202F}, {0x205F, 0x206F},   {0x3000, 0x3000},   {0xD800, 0xF8FF}, {0xFEFF, 0xFEFF},
      {0xFFF0, 0xFFFB}, {0xFFFE, 0xFFFF}, {0xE0000, 0xE00FF}, {0xE01F0, 0x10FFFF}};
  return std::none_of(std::begin(kHidden), std::end(kHidden),
                      [&](const auto& range) { return c >= range.first && c <= range.second; });
}

void append_text_repr(Runtime& runtime, Text& out, const Text& text) {
  runtime.step_bytes(text.size());
  const std::string_view bytes = text.view();
  const bool double_quotes = bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
  const std::string_view quote = double_quotes ? "\"" : "'";
  out.append(quote, true);
  for (std::size_t at = 0; at < bytes.size();) {
    const CodePoint c = code_point_at(bytes, at);
    const bool trusted = text.trusted_at(at);
    if (c.value == '\n') {
      out.append("\\n", trusted);
    } else if (c.value == '\r') {
      out.append("\\r", trusted);
    } else if (c.value == '\t') {
      out.append("\\t", trusted);
    } else if (c.value == '\\' || (c.value == '\'' && !double_quotes)) {
      out.append("\\", trusted);
      out.append(bytes.substr(at, 1), trusted);
    } else if (is_shown_as_is(c.value)) {
      out.append(bytes.substr(at, c.bytes), trusted);
    } else {
      const auto code = static_cast<std::uint32_t>(c.value);
      out.append(code < 0x100     ? fmt::format("\\x{:02x}", code)
                 : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                  : fmt::format("\\U{:08x}", code),
                 trusted);
    }
    at += c.bytes;
  }
  out.append(quote, true);
}

// What is no text, list or dict.
std::string plain_repr(const Value& value) {
  if (value.is<Undefined>()) return "";
  if (value.is<None>()) return "None";
  if (const auto* const boolean = value.get<bool>()) return *boolean ? "True" : "False";
  if (const auto integer = value.integer()) return fmt::format("{}", *integer);
  if (const auto* const real = value.get<double>()) return float_repr(*real);
  return fmt::format("<{}>", type_name(value));
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonFormat& format) : runtime_(runtime), format_(format) {}

  void write(const Value& value, int depth) {
    const Runtime::Level level(runtime_);
    runtime_.step();
    runtime_.check_length(out_.size());
    if (const Text* const text = value.text()) return string(*text);
    if (const List* const list = value.list()) return array(*list, depth);
    if (const Dict* const dict = value.dict()) return object(*dict, depth);
    out_.append(scalar(value), true);
  }

  Text take() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is<None>()) return "null";
    if (const auto* const boolean = value.get<bool>()) return *boolean ? "true" : "false";
    if (const auto* const real = value.get<double>()) {
      if (std::isnan(*real)) return "NaN";
      if (std::isinf(*real)) return *real < 0 ? "-Infinity" : "Infinity";
      return float_repr(*real);
    }
    if (const auto integer = value.integer()) return fmt::format("{}", *integer);
    if (value.is<Undefined>()) fail_undefined(value);
    wrong("tojson cannot write a {}", type_name(value));
  }

  void escape(char32_t c, bool trusted) {
    switch (c) {
      case '"':
        return out_.append("\\\"", trusted);
      case '\\':
        return out_.append("\\\\", trusted);
      case '\n':
        return out_.append("\\n", trusted);
      case '\r':
        return out_.append("\\r", trusted);
      case '\t':
        return out_.append("\\t", trusted);
      case '\f':
        return out_.append("\\f", trusted);
      case '\b':
        return out_.append("\\b", trusted);
      default:
        break;
    }
    const auto code = static_cast<std::uint32_t>(c);
    if (code < 0x10000) return out_.append(fmt::format("\\u{:04x}", code), trusted);
    const std::uint32_t rest = code - 0x10000;
    out_.append(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF)), trusted);
  }

  void string(const Text& text) {
    runtime_.step_bytes(text.size());
    const std::string_view bytes = text.view();
    out_.append("\"", true);
    std::size_t plain = 0;  // where the characters start that need no escape
    for (std::size_t at = 0; at < bytes.size();) {
      const CodePoint c = code_point_at(bytes, at);
      const bool escaped =
          c.value < 0x20 || c.value == '"' || c.value == '\\' || (format_.ensure_ascii && c.value > 0x7E);
      if (escaped) {
        out_.append(text, plain, at);
        escape(c.value, text.trusted_at(at));
        plain = at + c.bytes;
      }
      at += c.bytes;
    }
    out_.append(text, plain, bytes.size());
    out_.append("\"", true);
  }

  void line_break(int depth) {
    if (!format_.indent) return;
    const std::size_t blanks = format_.indent->size() * static_cast<std::size_t>(depth);  // both are within the limits
    runtime_.step_bytes(blanks);
    runtime_.check_length(out_.size() + blanks);
    out_.append("\n", true);
    for (int i = 0; i < depth; ++i) out_.append(*format_.indent);
  }

  void array(const List& list, int depth) {
    if (list.items.empty()) return out_.append("[]", true);
    out_.append("[", true);
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(format_.item_separator);
      line_break(depth + 1);
      write(list.items[i], depth + 1);
    }
    line_break(depth);
    out_.append("]", true);
  }

  void key(const Value& name) {
    if (const Text* const text = name.text()) return string(*text);
    if (name.list() != nullptr) wrong("tojson cannot write a tuple as a key");
    out_.append("\"", true);
    out_.append(scalar(name), true);
    out_.append("\"", true);
  }

  void object(const Dict& dict, int depth) {
    if (dict.items.empty()) return out_.append("{}", true);
    auto items = dict.items;
    if (format_.sort_keys) {
      std::stable_sort(items.begin(), items.end(),
                       [&](const auto& a, const auto& b) { return compare(runtime_, a.first, b.first) < 0; });
    }
    out_.append("{", true);
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.append(format_.item_separator);
      line_break(depth + 1);
      key(items[i].first);
      out_.append(format_.key_separator);
      write(items[i].second, depth + 1);
    }
    line_break(depth);
    out_.append("}", true);
  }

  Runtime& runtime_;
  const JsonFormat& format_;
  Text out_;
};

}  // namespace

// The shortest digits that read back as the same number; an exponent below 1e-4 and from 1e16 on.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer{};
  const double size = std::abs(value);
  const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string text(buffer.data(), written.ptr);
  if (!scientific && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_repr(Runtime& runtime, Text& out, const Value& value) {
  const Runtime::Level level(runtime);
  runtime.step();
  runtime.check_length(out.size());
  if (const Text* const text = value.text()) {
    if (text->is_markup()) out.append("Markup(", true);
    append_text_repr(runtime, out, *text);
    if (text->is_markup()) out.append(")", true);
  } else if (const List* const list = value.list()) {
    out.append(list->is_tuple ? "(" : "[", true);
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out.append(", ", true);
      append_repr(runtime, out, list->items[i]);
    }
    if (list->is_tuple && list->items.size() == 1) out.append(",", true);
    out.append(list->is_tuple ? ")" : "]", true);
  } else if (const Dict* const dict = value.dict()) {
    out.append("{", true);
    for (std::size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) out.append(", ", true);
      append_repr(runtime, out, dict->items[i].first);
      out.append(": ", true);
      append_repr(runtime, out, dict->items[i].second);
    }
    out.append("}", true);
  } else if (value.is<Undefined>()) {
    out.append("Undefined", true);
  } else {
    out.append(plain_repr(value), true);
  }
}

TextPtr to_text(Runtime& runtime, const Value& value) {
  if (const auto* const text = value.get<TextPtr>()) return *text;
  Text out;
  if (value.list() != nullptr || value.dict() != nullptr) {
    append_repr(runtime, out, value);
  } else {
    out.append(plain_repr(value), true);
  }
  return runtime.keep(std::move(out));
}

Text to_json(Runtime& runtime, const Value& value, const JsonFormat& format) {
  JsonWriter writer(runtime, format);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace conclave::jinja
