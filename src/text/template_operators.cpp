// Arithmetic, attributes, items and slices.
#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/file_text.h"
#include "text/template_builtins.h"
#include "text/template_runtime.h"
#include "text/template_value.h"

namespace conclave::jinja {
namespace {

[[noreturn]] void no_operator(std::string_view op, const Value& a, const Value& b) {
  if (a.is<Undefined>()) fail_undefined(a);
  if (b.is<Undefined>()) fail_undefined(b);
  wrong("'{}' does not work with a {} and a {}", op, type_name(a), type_name(b));
}

std::int64_t fits(std::optional<std::int64_t> result) {
  if (!result) wrong("a number is out of the range of 64 bits");
  return *result;
}

Value power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) wrong("0 to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  std::int64_t result = 1;
  for (std::int64_t bit = exponent; bit > 0; bit >>= 1) {
    if ((bit & 1) != 0) result = fits(checked_mul(result, base));
    if (bit > 1 && base != 0 && base != 1 && base != -1) base = fits(checked_mul(base, base));
    if (bit > 1 && base == -1) base = 1;
  }
  return result;
}

// Rounds down, as Python does; the rest has the sign of the divisor.
struct Division {
  std::int64_t quotient;
  std::int64_t rest;
};
Division floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) wrong("division by zero");
  if (b == -1) return {fits(checked_mul<std::int64_t>(a, -1)), 0};
  Division result{a / b, a % b};
  if (result.rest != 0 && (result.rest < 0) != (b < 0)) {
    --result.quotient;
    result.rest += b;
  }
  return result;
}

Value integers(std::string_view op, std::int64_t a, std::int64_t b) {
  if (op == "+") return fits(checked_add(a, b));
  if (op == "-") {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(a, b, &difference)) fits(std::nullopt);
    return difference;
  }
  if (op == "*") return fits(checked_mul(a, b));
  if (op == "//") return floor_divide(a, b).quotient;
  if (op == "%") return floor_divide(a, b).rest;
  if (op == "**") return power(a, b);
  if (b == 0) wrong("division by zero");
  return static_cast<double>(a) / static_cast<double>(b);
}

Value reals(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") {
    const double result = std::pow(a, b);
    if (std::isnan(result) && !std::isnan(a) && !std::isnan(b)) wrong("a power that is no real number");
    return result;
  }
  if (b == 0) wrong("division by zero");
  if (op == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return op == "%" ? rest : std::round((a - rest) / b);
}

std::size_t repetitions(Runtime& runtime, std::int64_t times, std::size_t size) {
  if (times <= 0 || size == 0) return 0;
  const auto n = static_cast<std::size_t>(times);
  const auto total = checked_mul(n, size);
  runtime.step(total ? 1 + *total / 16 : UINT64_MAX);  // refuses what is far too much before any of it is made
  return n;
}

Value repeat(Runtime& runtime, const Value& value, std::int64_t times) {
  if (const Text* const text = value.text()) {
    const std::size_t n = repetitions(runtime, times, text->size());
    runtime.check_length(n * text->size());
    Text out;
    for (std::size_t i = 0; i < n; ++i) out.append(*text);
    return runtime.text(out.as_markup(text->is_markup()));
  }
  const List& list = *value.list();
  const std::size_t n = repetitions(runtime, times, list.items.size() * 16);
  std::vector<Value> items;
  for (std::size_t i = 0; i < n; ++i) items.insert(items.end(), list.items.begin(), list.items.end());
  return list.is_tuple ? runtime.tuple(std::move(items)) : runtime.list(std::move(items));
}

Value join(Runtime& runtime, const Value& a, const Value& b) {
  if (a.text() != nullptr && b.text() != nullptr) {
    const bool markup = a.text()->is_markup() || b.text()->is_markup();
    Text out = markup ? html_escaped(*a.text()) : *a.text();
    runtime.check_length(out.size() + b.text()->size());
    out.append(markup ? html_escaped(*b.text()) : *b.text());
    return runtime.text(std::move(out));
  }
  if (a.list() == nullptr || b.list() == nullptr || a.list()->is_tuple != b.list()->is_tuple) no_operator("+", a, b);
  std::vector<Value> items = a.list()->items;
  items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
  return a.list()->is_tuple ? runtime.tuple(std::move(items)) : runtime.list(std::move(items));
}

Value loop_attribute(Runtime& runtime, const Value& self, const std::string& name) {
  const Loop& loop = *self.loop();
  const auto n = static_cast<std::int64_t>(loop.items.size());
  const auto i = static_cast<std::int64_t>(loop.index);
  if (name == "index") return i + 1;
  if (name == "index0") return i;
  if (name == "revindex") return n - i;
  if (name == "revindex0") return n - i - 1;
  if (name == "first") return i == 0;
  if (name == "last") return i == n - 1;
  if (name == "length") return n;
  if (name == "depth") return std::int64_t{1};  // of recursion, which loops here have not
  if (name == "depth0") return std::int64_t{0};
  if (name == "previtem") return i > 0 ? loop.items[loop.index - 1] : undefined("there is no previous item");
  if (name == "nextitem") return i + 1 < n ? loop.items[loop.index + 1] : undefined("there is no next item");
  if (name == "cycle" || name == "changed") return runtime.bound(self, name);
  return undefined(fmt::format("'loop' has no attribute '{}'", printable(name)));
}

// Positions that a slice takes from a sequence of `n`, by Python's rules.
struct Slice {
  std::int64_t start;
  std::int64_t step;
  std::size_t count;
};
Slice resolve_slice(std::int64_t n, const Value& start, const Value& stop, const Value& step) {
  const auto number = [](const Value& value) -> std::optional<std::int64_t> {
    if (value.is<None>()) return std::nullopt;
    if (value.is<Undefined>()) fail_undefined(value);
    if (!value.integer()) wrong("a slice from or to a {}", type_name(value));
    return value.integer();
  };
  const std::int64_t by = number(step).value_or(1);
  if (by == 0) wrong("a slice with step 0");
  const std::int64_t low = by > 0 ? 0 : -1;
  const std::int64_t high = by > 0 ? n : n - 1;
  const auto clamp = [&](std::optional<std::int64_t> at, std::int64_t fallback) {
    if (!at) return fallback;
    return std::clamp(*at < 0 ? *at + n : *at, low, high);
  };
  const std::int64_t first = clamp(number(start), by > 0 ? low : high);
  const std::int64_t last = clamp(number(stop), by > 0 ? high : low);
  const std::int64_t distance = by > 0 ? last - first : first - last;
  if (distance <= 0) return {first, by, 0};
  // |by| of the least number does not fit: unsigned.
  const std::uint64_t stride = by > 0 ? static_cast<std::uint64_t>(by) : 0 - static_cast<std::uint64_t>(by);
  return {first, by, static_cast<std::size_t>((static_cast<std::uint64_t>(distance) - 1) / stride + 1)};
}

}  // namespace

Value binary(Runtime& runtime, std::string_view op, const Value& a, const Value& b) {
  const auto a_integer = a.integer();
  const auto b_integer = b.integer();
  if (a_integer && b_integer) return integers(op, *a_integer, *b_integer);
  if (a.is_number() && b.is_number()) return reals(op, *a.number(), *b.number());
  if (op == "+") return join(runtime, a, b);
  if (op == "%" && a.text() != nullptr) return printf_format(runtime, *a.text(), b);
  if (op == "*") {
    if ((a.text() != nullptr || a.list() != nullptr) && b_integer) return repeat(runtime, a, *b_integer);
    if ((b.text() != nullptr || b.list() != nullptr) && a_integer) return repeat(runtime, b, *a_integer);
  }
  no_operator(op, a, b);
}

Value unary(std::string_view op, const Value& value) {
  if (value.is<Undefined>()) fail_undefined(value);
  if (const auto integer = value.integer()) return op == "+" ? *integer : fits(checked_mul<std::int64_t>(*integer, -1));
  if (const auto* const real = value.get<double>()) return op == "+" ? *real : -*real;
  wrong("'{}' does not work with a {}", op, type_name(value));
}

Value attribute_of(Runtime& runtime, const Value& value, const std::string& name) {
  if (value.is<Undefined>()) fail_undefined(value);
  if (value.loop() != nullptr) return loop_attribute(runtime, value, name);
  if (has_method(value, name)) return runtime.bound(value, name);
  if (const Dict* const dict = value.dict()) {
    if (const Value* const found = dict->find(runtime, runtime.text(name))) return *found;
  }
  if (const Namespace* const name_space = value.name_space()) {
    const auto found = name_space->attributes.find(name);
    if (found != name_space->attributes.end()) return found->second;
  }
  return undefined(fmt::format("a {} has no attribute '{}'", type_name(value), printable(name)));
}

Value item_of(Runtime& runtime, const Value& value, const Value& key) {
  if (value.is<Undefined>()) fail_undefined(value);
  const bool unhashable = key.dict() != nullptr || (key.list() != nullptr && !key.list()->is_tuple);
  if (const Dict* const dict = value.dict(); dict != nullptr && !unhashable) {
    if (const Value* const found = dict->find(runtime, key)) return *found;
  }
  if (const Text* const name = key.text()) {
    runtime.step_bytes(name->size());
    return attribute_of(runtime, value, std::string(name->view()));
  }
  if (const auto index = key.integer(); index && (value.list() != nullptr || value.text() != nullptr)) {
    const auto n = static_cast<std::int64_t>(length_of(runtime, value).value_or(0));
    const std::int64_t at = *index < 0 ? *index + n : *index;
    if (at >= 0 && at < n) {
      if (value.list() != nullptr) return value.list()->items[static_cast<std::size_t>(at)];
      const std::string_view bytes = value.text()->view();
      std::size_t start = 0;
      for (std::int64_t i = 0; i < at; ++i) start += code_point_at(bytes, start).bytes;
      return runtime.text(value.text()->slice(start, start + code_point_at(bytes, start).bytes));
    }
  }
  return undefined(fmt::format("a {} has no item {}", type_name(value), printable(to_text(runtime, key)->view())));
}

Value slice_of(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step) {
  if (value.is<Undefined>()) fail_undefined(value);
  const Text* const text = value.text();
  const List* const list = value.list();
  if (text == nullptr && list == nullptr) wrong("a slice of a {}", type_name(value));
  const auto n = static_cast<std::int64_t>(length_of(runtime, value).value_or(0));
  const Slice slice = resolve_slice(n, start, stop, step);
  if (list != nullptr) {
    std::vector<Value> items;
    std::int64_t at = slice.start;
    for (std::size_t i = 0; i < slice.count; ++i, at += i < slice.count ? slice.step : 0) {
      items.push_back(list->items[static_cast<std::size_t>(at)]);
    }
    return list->is_tuple ? runtime.tuple(std::move(items)) : runtime.list(std::move(items));
  }
  std::vector<std::size_t> starts;  // of every character, and the end
  for (std::size_t at = 0; at < text->size(); at += code_point_at(text->view(), at).bytes) starts.push_back(at);
  starts.push_back(text->size());
  Text out;
  if (slice.count > 0 && slice.step == 1) {
    const auto first = static_cast<std::size_t>(slice.start);
    return runtime.text(text->slice(starts[first], starts[first + slice.count]));
  }
  std::int64_t at = slice.start;
  for (std::size_t i = 0; i < slice.count; ++i, at += i < slice.count ? slice.step : 0) {
    out.append(*text, starts[static_cast<std::size_t>(at)], starts[static_cast<std::size_t>(at) + 1]);
  }
  return runtime.text(std::move(out));
}

}  // namespace conclave::jinja
