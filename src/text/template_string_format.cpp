// 'text' % values and 'text'.format(values), with the plain forms of their fields.
#include <algorithm>
#include <charconv>

#include "base/file_text.h"
#include "text/template_builtins.h"

namespace conclave::jinja {
namespace {

// What stands after the ':' of a brace field or between '%' and its letter.
struct Field {
  bool left = false;
  bool right = false;
  bool zero = false;
  int width = 0;
  int precision = -1;
  char type = 's';
};

constexpr int kMaxFieldNumber = 1000;

int read_number(std::string_view spec, std::size_t& at) {
  int number = 0;
  for (; at < spec.size() && spec[at] >= '0' && spec[at] <= '9'; ++at) {
    number = number * 10 + (spec[at] - '0');
    if (number > kMaxFieldNumber) wrong("a format asks for more than {} characters", kMaxFieldNumber);
  }
  return number;
}

// Width and precision, from `at`.
void read_size(std::string_view spec, std::size_t& at, Field& field) {
  if (at < spec.size() && spec[at] == '0') field.zero = true, ++at;
  field.width = read_number(spec, at);
  if (at < spec.size() && spec[at] == '.') field.precision = read_number(spec, ++at);
}

Text formatted(Runtime& runtime, const Value& value, const Field& field) {
  Text text;
  const bool as_real = field.type == 'f' || field.type == 'e' || field.type == 'g';
  if (field.type == 's' || field.type == 'r') {
    if (field.type == 'r') {
      append_repr(runtime, text, value);
    } else {
      text = *to_text(runtime, value);
    }
    if (field.precision >= 0) {
      std::size_t end = 0;
      for (int i = 0; i < field.precision && end < text.size(); ++i) end += code_point_at(text.view(), end).bytes;
      text = text.slice(0, end);
    }
  } else if (as_real || field.type == 'd' || field.type == 'x') {
    if (value.is<Undefined>()) fail_undefined(value);
    if (!value.is_number()) wrong("a format wants a number, not a {}", type_name(value));
    if (as_real) {
      const int precision = field.precision < 0 ? 6 : field.precision;
      const double number = *value.number();
      text = Text(field.type == 'f'   ? fmt::format("{:.{}f}", number, precision)
                  : field.type == 'e' ? fmt::format("{:.{}e}", number, precision)
                                      : fmt::format("{:.{}g}", number, precision),
                  true);
    } else {
      const double real = value.number().value_or(0);
      const bool fits = real > -9.2e18 && real < 9.2e18;
      if (!value.integer() && !fits) wrong("a format wants an integer, not {}", float_repr(real));
      const std::int64_t number = value.integer() ? *value.integer() : static_cast<std::int64_t>(real);
      text = Text(field.type == 'x' ? fmt::format("{:x}", number) : fmt::format("{}", number), true);
    }
  } else {
    wrong("the format '{}' is not supported", printable(std::string_view(&field.type, 1)));
  }
  const auto n = static_cast<int>(std::min<std::size_t>(count_code_points(text.view()), kMaxFieldNumber));
  if (field.width <= n) return text;
  const Text padding(std::string(static_cast<std::size_t>(field.width - n), field.zero && !field.left ? '0' : ' '),
                     true);
  Text out;
  if (field.left) {
    out = text;
    out.append(padding);
  } else if (field.zero && text.view().starts_with('-')) {
    out = text.slice(0, 1);
    out.append(padding);
    out.append(text, 1, text.size());
  } else {
    out = padding;
    out.append(text);
  }
  return out;
}

// {name}, {0.name}, {items[0]}: a name and then attributes and items.
Value field_value(Runtime& runtime, std::string_view path, const Arguments& arguments, std::size_t& next) {
  const std::size_t end = std::min(path.find_first_of(".["), path.size());
  const std::string_view first = path.substr(0, end);
  const auto number = [](std::string_view text) -> std::optional<std::size_t> {
    std::size_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
    return value;
  };
  Value value;
  const auto index = first.empty() ? std::optional(next++) : number(first);
  if (index) {
    if (*index >= arguments.positional.size()) wrong("format has no argument {}", *index);
    value = arguments.positional[*index];
  } else {
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& pair) { return pair.first == first; });
    if (named == arguments.named.end()) wrong("format has no argument '{}'", printable(first));
    value = named->second;
  }
  for (std::size_t at = end; at < path.size();) {
    const bool item = path[at] == '[';
    const std::size_t stop = item ? path.find(']', at) : std::min(path.find_first_of(".[", at + 1), path.size());
    if (stop == std::string_view::npos) wrong("format has a '[' without ']'");
    const std::string_view name = path.substr(at + 1, stop - at - 1);
    if (!item) {
      value = attribute_of(runtime, value, std::string(name));
    } else if (const auto position = number(name)) {
      value = item_of(runtime, value, static_cast<std::int64_t>(*position));
    } else {
      value = item_of(runtime, value, runtime.text(name));
    }
    at = item ? stop + 1 : stop;
  }
  return value;
}

Field brace_field(std::string_view spec, const Value& value) {
  Field field;
  field.type = value.is<double>() ? 'f' : value.is<std::int64_t>() ? 'd' : 's';
  if (spec.empty()) field.type = 's';
  std::size_t at = 0;
  if (at < spec.size() && (spec[at] == '<' || spec[at] == '>')) {
    field.left = spec[at] == '<';
    field.right = !field.left;
    ++at;
  }
  read_size(spec, at, field);
  const bool is_real = value.is<double>();
  if (at == spec.size() && is_real && field.precision < 0) field.type = 's';
  if (at < spec.size()) field.type = spec[at++];
  if (at != spec.size()) wrong("the format '{}' is not supported", printable(spec));
  if (!field.left && !field.right && field.type == 's' && !value.is_number()) field.left = true;
  return field;
}

}  // namespace

Value printf_format(Runtime& runtime, const Text& format, const Value& value) {
  const bool many = value.list() != nullptr && value.list()->is_tuple;
  const std::vector<Value> values = many ? value.list()->items : std::vector<Value>{value};
  const std::string_view bytes = format.view();
  std::size_t next = 0;
  Text out;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.append(format, at, percent);
    if (percent == bytes.size()) break;
    at = percent + 1;
    if (at < bytes.size() && bytes[at] == '%') {
      out.append(format, at, at + 1);
      ++at;
      continue;
    }
    Field field;
    if (at < bytes.size() && bytes[at] == '-') field.left = true, ++at;
    read_size(bytes, at, field);
    if (at >= bytes.size()) wrong("a format ends after '%'");
    field.type = bytes[at] == 'i' ? 'd' : bytes[at];
    ++at;
    if (next >= values.size()) wrong("a format has more fields than values");
    const Text part = formatted(runtime, values[next++], field);
    runtime.step_bytes(part.size());
    runtime.check_length(out.size() + part.size());
    out.append(part);
  }
  const bool may_ignore = value.dict() != nullptr || (value.list() != nullptr && !many);
  if (next < values.size() && !may_ignore) wrong("a format has fewer fields than values");
  return runtime.text(std::move(out));
}

Value brace_format(Runtime& runtime, const Text& format, const Arguments& arguments) {
  const std::string_view bytes = format.view();
  std::size_t next = 0;
  Text out;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(format, at, brace);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const std::size_t end = bytes.find('}', brace);
    if (bytes[brace] == '}' || end == std::string_view::npos) wrong("format has a single '{}'", bytes[brace]);
    std::string_view path = bytes.substr(brace + 1, end - brace - 1);
    std::string_view spec;
    if (const std::size_t colon = path.find(':'); colon != std::string_view::npos) {
      spec = path.substr(colon + 1);
      path = path.substr(0, colon);
    }
    const bool repr = path.ends_with("!r");
    if (repr || path.ends_with("!s")) path.remove_suffix(2);
    const Value value = field_value(runtime, path, arguments, next);
    Field field = brace_field(spec, value);
    if (repr) field.type = 'r';
    const Text part = formatted(runtime, value, field);
    runtime.step_bytes(part.size());
    runtime.check_length(out.size() + part.size());
    out.append(part);
    at = end + 1;
  }
  return runtime.text(std::move(out));
}

}  // namespace conclave::jinja
