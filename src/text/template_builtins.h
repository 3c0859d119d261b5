// What templates can call: filters, tests, methods and global functions.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template_runtime.h"
#include "text/template_value.h"

namespace conclave::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The arguments in the order of a function's parameters, nullptr for those that were not given. An error where there
  // are too many, one is unknown, or one of the first `required` is missing.
  std::vector<const Value*> bind(std::string_view function, std::initializer_list<std::string_view> parameters,
                                 std::size_t required) const;
};

// For what was bound.
std::int64_t integer_or(const Value* value, std::int64_t fallback);
bool truth_or(const Value* value, bool fallback);
// The text of an argument that must be one.
const Text& text_argument(std::string_view function, const Value& value);

Value call_filter(Runtime& runtime, const std::string& name, const Value& value, const Arguments& arguments);
bool call_test(Runtime& runtime, const std::string& name, const Value& value, const Arguments& arguments);

bool has_method(const Value& self, std::string_view name);
Value call_method(Runtime& runtime, const Value& self, std::string_view name, const Arguments& arguments);
Value call_text_method(Runtime& runtime, const Text& self, std::string_view name, const Arguments& arguments);

bool is_global(const Runtime& runtime, std::string_view name);
Value call_global(Runtime& runtime, std::string_view name, const Arguments& arguments);

// 'text' % value and 'text'.format(...).
Value printf_format(Runtime& runtime, const Text& format, const Value& value);
Value brace_format(Runtime& runtime, const Text& format, const Arguments& arguments);

// The work of string filters and methods alike.
enum class Sides { left, right, both };
Text stripped(const Text& text, const Text* characters, Sides sides);
Text replaced(Runtime& runtime, const Text& text, const Text& from, const Text& to, std::int64_t count);
Text upper_case(const Text& text);
Text lower_case(const Text& text);
Text capitalized(const Text& text);
Text centered(Runtime& runtime, const Text& text, std::int64_t width);
std::vector<Text> split_lines(const Text& text, bool keep_ends);

// A filter or test by its name, as far as tables go.
using FilterFunction = Value (*)(Runtime&, const Value&, const Arguments&);
struct NamedFilter {
  std::string_view name;
  FilterFunction function;
};
FilterFunction find_text_filter(std::string_view name);
FilterFunction find_list_filter(std::string_view name);

}  // namespace conclave::jinja
