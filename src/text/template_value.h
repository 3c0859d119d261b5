// The values that expressions have: Python's, as far as chat templates can see them.
//
// Texts are shared and never change. Lists, dicts and the like belong to the Runtime of one rendering and are pointed
// at: a value is cheap to copy, cycles do no harm, and everything goes at once when the rendering ends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/template_text.h"

namespace conclave::jinja {

class Runtime;
struct List;
struct Dict;
struct Namespace;
struct Macro;
struct Bound;
struct Loop;

// What a name without a value, or an item that is not there, evaluates to. It prints as nothing and is false; to use it
// for more is an error, with the text that is kept here.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};

template <class T, class Variant>
inline constexpr bool kIsAlternative = false;
template <class T, class... Ts>
inline constexpr bool kIsAlternative<T, std::variant<Ts...>> = (std::is_same_v<T, Ts> || ...);

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, std::int64_t, double, TextPtr, List*, Dict*, Namespace*, Macro*,
                            Bound*, Loop*>;

  Value() = default;  // undefined
  template <class T>
  requires kIsAlternative<T, Data> Value(T data) : data_(std::in_place_type<T>, std::move(data)) {}

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  // nullptr where the value is of another kind. For objects the pointer itself, for texts what they point at.
  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  const Text* text() const { return is<TextPtr>() ? std::get<TextPtr>(data_).get() : nullptr; }
  List* list() const { return object<List>(); }
  Dict* dict() const { return object<Dict>(); }
  Namespace* name_space() const { return object<Namespace>(); }
  Macro* macro() const { return object<Macro>(); }
  Bound* bound() const { return object<Bound>(); }
  Loop* loop() const { return object<Loop>(); }

  bool is_number() const { return is<bool>() || is<std::int64_t>() || is<double>(); }
  // An int or a bool, which Python counts among them.
  std::optional<std::int64_t> integer() const;
  std::optional<double> number() const;

 private:
  template <class T>
  T* object() const {
    const auto* const pointer = std::get_if<T*>(&data_);
    return pointer != nullptr ? *pointer : nullptr;
  }

  Data data_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
};

// In order of insertion. Keys are what Python can hash: texts, numbers, None and tuples of them.
struct Dict {
  std::vector<std::pair<Value, Value>> items;

  const Value* find(Runtime& runtime, const Value& key) const;
  void set(Runtime& runtime, const Value& key, const Value& value);
  bool erase(Runtime& runtime, const Value& key);

 private:
  std::unordered_map<std::string, std::size_t> index_;
};

struct Namespace {
  std::unordered_map<std::string, Value> attributes;
};

// A function of the interpreter by name; `self` is what it is a method of, undefined for a global function.
struct Bound {
  Value self;
  std::string name;
};

struct Loop {
  std::vector<Value> items;
  std::size_t index = 0;
  std::optional<Value> changed;  // what loop.changed() saw last
};

std::string_view type_name(const Value& value);  // Python's name of the type, for messages
bool is_true(const Value& value);
bool is_equal(Runtime& runtime, const Value& a, const Value& b);
// Below 0, 0 or above 0; an error for what Python does not order.
int compare(Runtime& runtime, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);

// Python's len(). nullopt where a value has none.
std::optional<std::size_t> length_of(Runtime& runtime, const Value& value);
// What a loop over the value sees: items, keys, characters, nothing for undefined. An error for what cannot be iterated.
std::vector<Value> items_of(Runtime& runtime, const Value& value);

// str(value); a text is shared, not copied.
TextPtr to_text(Runtime& runtime, const Value& value);
// repr(value), as lists and dicts print their items.
void append_repr(Runtime& runtime, Text& out, const Value& value);
std::string float_repr(double value);

struct JsonFormat {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<Text> indent;
  Text item_separator;
  Text key_separator;
};
// json.dumps(value). What is punctuation there is trusted; characters of texts keep their origin.
Text to_json(Runtime& runtime, const Value& value, const JsonFormat& format);

// value.name and value[key], as the sandbox of Jinja has them: undefined where there is none.
Value attribute_of(Runtime& runtime, const Value& value, const std::string& name);
Value item_of(Runtime& runtime, const Value& value, const Value& key);
Value slice_of(Runtime& runtime, const Value& value, const Value& start, const Value& stop, const Value& step);

// `op` is one of + - * / // % **.
Value binary(Runtime& runtime, std::string_view op, const Value& a, const Value& b);
Value unary(std::string_view op, const Value& value);

}  // namespace conclave::jinja
