// Filters that make texts and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template_builtins.h"

namespace conclave::jinja {
namespace {

Value trim(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("trim", {"chars"}, 0);
  const TextPtr text = to_text(runtime, value);
  const bool blanks = args[0] == nullptr || args[0]->is<None>();
  runtime.step_characters(text->size() + (blanks ? 0 : text_argument("trim", *args[0]).size()));
  return runtime.text(stripped(*text, blanks ? nullptr : args[0]->text(), Sides::both));
}

template <Text (*Convert)(const Text&)>
Value convert(Runtime& runtime, const Value& value, const Arguments& arguments) {
  arguments.bind("this filter", {}, 0);
  const TextPtr text = to_text(runtime, value);
  runtime.step_characters(text->size());
  return runtime.text(Convert(*text));
}

// Upper case after blanks, hyphens and opening brackets.
Text title_case(const Text& text) {
  Text out;
  bool starts = true;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text.view(), at);
    if (c.value == 0xFFFD) {
      out.append(text, at, at + c.bytes);
    } else {
      out.append(starts ? to_upper(c.value) : to_lower(c.value), text.trusted_at(at));
    }
    starts =
        is_space(c.value) || c.value == '-' || c.value == '(' || c.value == '{' || c.value == '[' || c.value == '<';
    at += c.bytes;
  }
  return out.as_markup(text.is_markup());
}

Text force_escaped(const Text& text) {
  return html_escaped(text.as_markup(false));
}

Text marked_safe(const Text& text) {
  return text.as_markup();
}

Value string(Runtime& runtime, const Value& value, const Arguments& arguments) {
  arguments.bind("string", {}, 0);
  return to_text(runtime, value);
}

Value replace(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("replace", {"old", "new", "count"}, 2);
  return runtime.text(replaced(runtime, *to_text(runtime, value), *to_text(runtime, *args[0]),
                               *to_text(runtime, *args[1]), integer_or(args[2], -1)));
}

Value indent(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("indent", {"width", "first", "blank"}, 0);
  Text step;
  if (args[0] != nullptr && args[0]->text() != nullptr) {
    step = *args[0]->text();
  } else {
    const std::int64_t width = std::max<std::int64_t>(integer_or(args[0], 4), 0);
    runtime.check_length(static_cast<std::size_t>(width));
    runtime.step_bytes(static_cast<std::size_t>(width));
    step.append(std::string(static_cast<std::size_t>(width), ' '), true);
  }
  const bool first = truth_or(args[1], false);
  const bool blank = truth_or(args[2], false);
  Text text = text_argument("indent", value);
  text.append("\n", true);  // so that a last line break is kept
  runtime.step_bytes(text.size());
  Text out;
  bool is_first = true;
  for (const Text& line : split_lines(text, false)) {
    if (!is_first) out.append("\n", true);
    if (is_first ? first : blank || !line.empty()) out.append(step);
    is_first = false;
    runtime.step_bytes(step.size() + line.size());
    runtime.check_length(out.size() + line.size());
    out.append(line);
  }
  return runtime.text(out.as_markup(text.is_markup()));
}

Value center(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("center", {"width"}, 0);
  return runtime.text(centered(runtime, *to_text(runtime, value), integer_or(args[0], 80)));
}

Value wordcount(Runtime& runtime, const Value& value, const Arguments& arguments) {
  arguments.bind("wordcount", {}, 0);
  std::int64_t n = 0;
  bool in_word = false;
  const TextPtr text = to_text(runtime, value);
  runtime.step_characters(text->size());
  for (std::size_t at = 0; at < text->size();) {
    const CodePoint c = code_point_at(text->view(), at);
    const bool letter = c.value == '_' || c.value >= 0x80 || (c.value >= '0' && c.value <= '9') || is_cased(c.value);
    if (letter && !in_word) ++n;
    in_word = letter;
    at += c.bytes;
  }
  return n;
}

Value format(Runtime& runtime, const Value& value, const Arguments& arguments) {
  if (!arguments.named.empty()) wrong("format with names is not supported");
  return printf_format(runtime, *to_text(runtime, value), runtime.tuple(arguments.positional));
}

Value tojson(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonFormat json;
  json.ensure_ascii = truth_or(args[0], false);
  json.sort_keys = truth_or(args[3], false);
  if (args[1] != nullptr && !args[1]->is<None>()) {
    if (args[1]->text() != nullptr) {
      json.indent = *args[1]->text();
    } else {
      const std::int64_t width = std::max<std::int64_t>(integer_or(args[1], 0), 0);
      runtime.check_length(static_cast<std::size_t>(width));
      runtime.step_bytes(static_cast<std::size_t>(width));
      json.indent = Text(std::string(static_cast<std::size_t>(width), ' '), true);
    }
  }
  json.item_separator = Text(json.indent ? "," : ", ", true);
  json.key_separator = Text(": ", true);
  if (args[2] != nullptr && !args[2]->is<None>()) {
    const std::vector<Value> separators = items_of(runtime, *args[2]);
    if (separators.size() != 2) wrong("tojson wants two separators");
    json.item_separator = text_argument("tojson", separators[0]);
    json.key_separator = text_argument("tojson", separators[1]);
  }
  return runtime.text(to_json(runtime, value, json));
}

// A whole number in decimal or, for `base` 16, 8 and 2, with its prefix too.
std::optional<std::int64_t> parse_integer(std::string_view digits, std::int64_t base) {
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.size() > 2 && digits[0] == '0') {
    const char x = static_cast<char>(digits[1] | 0x20);
    if ((base == 16 && x == 'x') || (base == 8 && x == 'o') || (base == 2 && x == 'b')) digits.remove_prefix(2);
  }
  std::int64_t number = 0;
  const std::string text = (negative ? "-" : "") + std::string(digits);
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number, static_cast<int>(base));
  if (digits.empty() || digits[0] == '-' || read.ec != std::errc{} || read.ptr != text.data() + text.size()) return {};
  return number;
}

std::optional<double> parse_real(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || text[0] == '+' || read.ec != std::errc{} || read.ptr != text.data() + text.size()) return {};
  return number;
}

std::optional<std::int64_t> truncated(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) > 9.2e18) wrong("a number is out of the range of 64 bits");
  return static_cast<std::int64_t>(value);
}

Value to_int(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("int", {"default", "base"}, 0);
  const Value fallback = args[0] != nullptr ? *args[0] : Value(std::int64_t{0});
  const std::int64_t base = integer_or(args[1], 10);
  if (base < 2 || base > 36) wrong("int with the base {}", base);
  std::optional<std::int64_t> result = value.integer();
  if (const auto* const real = value.get<double>()) result = truncated(*real);
  if (const Text* const text = value.text()) {
    runtime.step_bytes(text->size());
    const Text bare = stripped(*text, nullptr, Sides::both);
    result = parse_integer(bare.view(), base);
    if (!result) {
      if (const auto real = parse_real(bare.view())) result = truncated(*real);
    }
  }
  return result ? Value(*result) : fallback;
}

Value to_float(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("float", {"default"}, 0);
  std::optional<double> result = value.number();
  if (const Text* const text = value.text()) {
    runtime.step_bytes(text->size());
    result = parse_real(stripped(*text, nullptr, Sides::both).view());
  }
  return result ? Value(*result) : args[0] != nullptr ? *args[0] : Value(0.0);
}

Value absolute(Runtime&, const Value& value, const Arguments& arguments) {
  arguments.bind("abs", {}, 0);
  if (value.is<Undefined>()) fail_undefined(value);
  if (!value.is_number()) wrong("abs of a {}", type_name(value));
  return *value.number() < 0 ? unary("-", value) : unary("+", value);
}

Value rounded(Runtime&, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("round", {"precision", "method"}, 0);
  const std::int64_t precision = integer_or(args[0], 0);
  const std::string_view method = args[1] != nullptr ? text_argument("round", *args[1]).view() : "common";
  if (method != "common" && method != "ceil" && method != "floor") wrong("round wants common, ceil or floor");
  if (value.is<Undefined>()) fail_undefined(value);
  if (!value.is_number()) wrong("round of a {}", type_name(value));
  if (precision < -300 || precision > 300) wrong("round to {} digits", precision);
  const double number = *value.number();
  if (method != "common") {
    const double scale = std::pow(10.0, static_cast<double>(precision));
    return (method == "ceil" ? std::ceil(number * scale) : std::floor(number * scale)) / scale;
  }
  if (precision >= 0 && value.integer()) return *value.integer();
  if (precision >= 0 && std::isfinite(number)) return *parse_real(fmt::format("{:.{}f}", number, precision));
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  const double result = std::nearbyint(number / scale) * scale;
  if (!value.integer()) return result;
  return truncated(result).value_or(0);
}

Value fallback(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("default", {"default_value", "boolean"}, 0);
  const bool use = value.is<Undefined>() || (truth_or(args[1], false) && !is_true(value));
  if (!use) return value;
  return args[0] != nullptr ? *args[0] : runtime.text("");
}

constexpr NamedFilter kTextFilters[] = {
    {"trim", trim},
    {"upper", convert<upper_case>},
    {"lower", convert<lower_case>},
    {"capitalize", convert<capitalized>},
    {"title", convert<title_case>},
    {"escape", convert<html_escaped>},
    {"e", convert<html_escaped>},
    {"forceescape", convert<force_escaped>},
    {"string", string},
    {"safe", convert<marked_safe>},
    {"replace", replace},
    {"indent", indent},
    {"center", center},
    {"wordcount", wordcount},
    {"format", format},
    {"tojson", tojson},
    {"int", to_int},
    {"float", to_float},
    {"abs", absolute},
    {"round", rounded},
    {"default", fallback},
    {"d", fallback},
};

}  // namespace

FilterFunction find_text_filter(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kTextFilters), std::end(kTextFilters),
                                         [&](const NamedFilter& f) { return f.name == name; });
  return found == std::end(kTextFilters) ? nullptr : found->function;
}

}  // namespace conclave::jinja
