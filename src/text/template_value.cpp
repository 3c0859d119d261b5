#include "text/template_value.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/template_runtime.h"

namespace conclave::jinja {
namespace {

// Equal keys have equal texts: 1, 1.0 and True are one key, as in Python.
void append_key(Runtime& runtime, std::string& out, const Value& key) {
  const Runtime::Level level(runtime);
  runtime.step();
  if (const Text* const text = key.text()) {
    runtime.step_bytes(text->size());
    out += fmt::format("s{}:", text->size());
    out += text->view();
  } else if (const auto integer = key.integer()) {
    out += fmt::format("i{};", *integer);
  } else if (const auto* const real = key.get<double>()) {
    const bool whole = std::floor(*real) == *real && std::abs(*real) < 9e18;
    out += whole ? fmt::format("i{};", static_cast<std::int64_t>(*real)) : fmt::format("f{};", *real);
  } else if (key.is<None>()) {
    out += 'n';
  } else if (key.is<Undefined>()) {
    out += 'u';
  } else if (key.list() != nullptr && key.list()->is_tuple) {
    out += '(';
    for (const Value& item : key.list()->items) append_key(runtime, out, item);
    out += ')';
  } else {
    wrong("a {} cannot be the key of a dict", type_name(key));
  }
}

std::string key_of(Runtime& runtime, const Value& key) {
  std::string out;
  append_key(runtime, out, key);
  return out;
}

int sign(std::ptrdiff_t value) {
  return value < 0 ? -1 : value > 0 ? 1 : 0;
}

}  // namespace

std::optional<std::int64_t> Value::integer() const {
  if (const auto* const value = get<std::int64_t>()) return *value;
  if (const auto* const value = get<bool>()) return *value ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* const value = get<double>()) return *value;
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

const Value* Dict::find(Runtime& runtime, const Value& key) const {
  const auto found = index_.find(key_of(runtime, key));
  return found == index_.end() ? nullptr : &items[found->second].second;
}

void Dict::set(Runtime& runtime, const Value& key, const Value& value) {
  runtime.step(8);
  const auto [at, is_new] = index_.emplace(key_of(runtime, key), items.size());
  if (is_new) {
    items.emplace_back(key, value);
  } else {
    items[at->second].second = value;
  }
}

bool Dict::erase(Runtime& runtime, const Value& key) {
  runtime.step(items.size());
  const auto found = index_.find(key_of(runtime, key));
  if (found == index_.end()) return false;
  const std::size_t at = found->second;
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  index_.erase(found);
  for (auto& [name, position] : index_) {
    if (position > at) --position;
  }
  return true;
}

std::string_view type_name(const Value& value) {
  if (value.is<None>()) return "NoneType";
  if (value.is<bool>()) return "bool";
  if (value.is<std::int64_t>()) return "int";
  if (value.is<double>()) return "float";
  if (value.text() != nullptr) return "str";
  if (value.list() != nullptr) return value.list()->is_tuple ? "tuple" : "list";
  if (value.dict() != nullptr) return "dict";
  if (value.name_space() != nullptr) return "namespace";
  if (value.macro() != nullptr) return "macro";
  if (value.bound() != nullptr) return "function";
  if (value.loop() != nullptr) return "loop";
  return "undefined";
}

bool is_true(const Value& value) {
  if (const auto number = value.number()) return *number != 0;
  if (const Text* const text = value.text()) return !text->empty();
  if (const List* const list = value.list()) return !list->items.empty();
  if (const Dict* const dict = value.dict()) return !dict->items.empty();
  if (const Loop* const loop = value.loop()) return !loop->items.empty();
  return !value.is<None>() && !value.is<Undefined>();
}

bool is_equal(Runtime& runtime, const Value& a, const Value& b) {
  const Runtime::Level level(runtime);
  runtime.step();
  const auto a_integer = a.integer();
  const auto b_integer = b.integer();
  if (a_integer && b_integer) return *a_integer == *b_integer;
  if (a.is_number() && b.is_number()) return *a.number() == *b.number();
  if (a.text() != nullptr && b.text() != nullptr) {
    runtime.step_bytes(std::min(a.text()->size(), b.text()->size()));
    return a.text()->view() == b.text()->view();
  }
  if (a.is<None>() && b.is<None>()) return true;
  if (a.is<Undefined>() && b.is<Undefined>()) return true;
  if (a.list() != nullptr && b.list() != nullptr) {
    const List& x = *a.list();
    const List& y = *b.list();
    if (x.is_tuple != y.is_tuple || x.items.size() != y.items.size()) return false;
    for (std::size_t i = 0; i < x.items.size(); ++i) {
      if (!is_equal(runtime, x.items[i], y.items[i])) return false;
    }
    return true;
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict()->items.size() != b.dict()->items.size()) return false;
    for (const auto& [key, value] : a.dict()->items) {
      const Value* const other = b.dict()->find(runtime, key);
      if (other == nullptr || !is_equal(runtime, value, *other)) return false;
    }
    return true;
  }
  if (a.name_space() != nullptr) return a.name_space() == b.name_space();
  if (a.macro() != nullptr) return a.macro() == b.macro();
  if (a.loop() != nullptr) return a.loop() == b.loop();
  return false;
}

int compare(Runtime& runtime, const Value& a, const Value& b) {
  const Runtime::Level level(runtime);
  runtime.step();
  if (a.is<Undefined>()) fail_undefined(a);
  if (b.is<Undefined>()) fail_undefined(b);
  const auto a_integer = a.integer();
  const auto b_integer = b.integer();
  if (a_integer && b_integer) return *a_integer < *b_integer ? -1 : *a_integer > *b_integer ? 1 : 0;
  if (a.is_number() && b.is_number()) {
    const double x = *a.number();
    const double y = *b.number();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.text() != nullptr && b.text() != nullptr) {
    runtime.step_bytes(std::min(a.text()->size(), b.text()->size()));
    return sign(a.text()->view().compare(b.text()->view()));  // UTF-8 sorts as its code points do
  }
  if (a.list() != nullptr && b.list() != nullptr && a.list()->is_tuple == b.list()->is_tuple) {
    const std::vector<Value>& x = a.list()->items;
    const std::vector<Value>& y = b.list()->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!is_equal(runtime, x[i], y[i])) return compare(runtime, x[i], y[i]);
    }
    return sign(static_cast<std::ptrdiff_t>(x.size()) - static_cast<std::ptrdiff_t>(y.size()));
  }
  wrong("a {} and a {} have no order", type_name(a), type_name(b));
}

bool contains(Runtime& runtime, const Value& container, const Value& item) {
  if (const Text* const text = container.text()) {
    if (item.is<Undefined>()) fail_undefined(item);
    if (item.text() == nullptr) wrong("'in' looks for a {} in a str", type_name(item));
    runtime.step_bytes(text->size());
    return find_bytes(text->view(), item.text()->view(), 0) != std::string_view::npos;
  }
  if (const Dict* const dict = container.dict()) {
    return dict->find(runtime, item) != nullptr;
  }
  if (const List* const list = container.list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& other) { return is_equal(runtime, other, item); });
  }
  if (container.is<Undefined>()) return false;
  wrong("'in' looks into a {}, which has no items", type_name(container));
}

std::optional<std::size_t> length_of(Runtime& runtime, const Value& value) {
  if (value.is<Undefined>()) return 0;
  if (const Text* const text = value.text()) {
    runtime.step_bytes(text->size());
    return count_code_points(text->view());
  }
  if (const List* const list = value.list()) return list->items.size();
  if (const Dict* const dict = value.dict()) return dict->items.size();
  if (const Loop* const loop = value.loop()) return loop->items.size();
  return std::nullopt;
}

std::vector<Value> items_of(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.is<Undefined>()) return items;
  if (const List* const list = value.list()) {
    runtime.step(list->items.size());
    return list->items;
  }
  if (const Dict* const dict = value.dict()) {
    runtime.step(dict->items.size());
    for (const auto& [key, unused] : dict->items) items.push_back(key);
    return items;
  }
  if (const Text* const text = value.text()) {
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t end = at + code_point_at(text->view(), at).bytes;
      items.push_back(runtime.text(text->slice(at, end).as_markup(false)));
      at = end;
    }
    return items;
  }
  wrong("a {} cannot be iterated over", type_name(value));
}

}  // namespace conclave::jinja
