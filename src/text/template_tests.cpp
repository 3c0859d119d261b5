// What can stand after `is`.
#include "base/file_text.h"
#include "text/template_builtins.h"

namespace conclave::jinja {
namespace {

bool is_callable(const Value& value) {
  return value.macro() != nullptr || value.bound() != nullptr || value.is<Undefined>();
}

bool is_sequence(const Value& value) {
  return value.text() != nullptr || value.list() != nullptr || value.dict() != nullptr || value.is<Undefined>();
}

std::optional<bool> test_alone(const std::string& name, const Value& value) {
  if (name == "defined") return !value.is<Undefined>();
  if (name == "undefined") return value.is<Undefined>();
  if (name == "none") return value.is<None>();
  if (name == "string") return value.text() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "sequence") return is_sequence(value);
  if (name == "iterable") return is_sequence(value) || value.loop() != nullptr;
  if (name == "number") return value.is_number();
  if (name == "integer") return value.is<std::int64_t>();
  if (name == "float") return value.is<double>();
  if (name == "boolean") return value.is<bool>();
  if (name == "true") return value.is<bool>() && *value.get<bool>();
  if (name == "false") return value.is<bool>() && !*value.get<bool>();
  if (name == "callable") return is_callable(value);
  if (name == "escaped") return false;
  return std::nullopt;
}

bool is_multiple(Runtime& runtime, const Value& value, std::int64_t of, std::int64_t rest) {
  return is_equal(runtime, binary(runtime, "%", value, of), rest);
}

std::optional<bool> test_case(Runtime& runtime, const std::string& name, const Value& value) {
  if (name != "lower" && name != "upper") return std::nullopt;
  const TextPtr text = to_text(runtime, value);
  return *call_text_method(runtime, *text, name == "lower" ? "islower" : "isupper", {}).get<bool>();
}

bool is_same(Runtime& runtime, const Value& a, const Value& b) {
  if (a.list() != nullptr || a.dict() != nullptr) return a.list() == b.list() && a.dict() == b.dict();
  return type_name(a) == type_name(b) && is_equal(runtime, a, b);
}

std::optional<bool> test_against(Runtime& runtime, const std::string& name, const Value& value, const Value& other) {
  if (name == "equalto" || name == "eq") return is_equal(runtime, value, other);
  if (name == "ne") return !is_equal(runtime, value, other);
  if (name == "lt" || name == "lessthan") return compare(runtime, value, other) < 0;
  if (name == "le") return compare(runtime, value, other) <= 0;
  if (name == "gt" || name == "greaterthan") return compare(runtime, value, other) > 0;
  if (name == "ge") return compare(runtime, value, other) >= 0;
  if (name == "in") return contains(runtime, other, value);
  if (name == "sameas") return is_same(runtime, value, other);
  if (name == "divisibleby") return is_multiple(runtime, value, integer_or(&other, 0), 0);
  return std::nullopt;
}

// The signs, as select('==', x) has them.
std::string word_for(const std::string& name) {
  if (name == "==") return "eq";
  if (name == "!=") return "ne";
  if (name == "<") return "lt";
  if (name == "<=") return "le";
  if (name == ">") return "gt";
  if (name == ">=") return "ge";
  return name;
}

}  // namespace

bool call_test(Runtime& runtime, const std::string& name, const Value& value, const Arguments& arguments) {
  runtime.step();
  if (!arguments.positional.empty()) {
    const auto args = arguments.bind(name, {"other"}, 1);
    if (const auto result = test_against(runtime, word_for(name), value, *args[0])) return *result;
  } else {
    arguments.bind(name, {}, 0);
    if (const auto result = test_alone(name, value)) return *result;
    if (const auto result = test_case(runtime, name, value)) return *result;
    if (name == "odd") return is_multiple(runtime, value, 2, 1);
    if (name == "even") return is_multiple(runtime, value, 2, 0);
  }
  wrong("there is no test '{}' with {} arguments", printable(name), arguments.positional.size());
}

}  // namespace conclave::jinja
