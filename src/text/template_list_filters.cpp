// Filters over lists and dicts.
#include <algorithm>
#include <charconv>

#include "base/file_text.h"
#include "text/template_builtins.h"

namespace conclave::jinja {
namespace {

// 'function.name' or 0 or 'items.0': item by item, with `fallback` for each that is not there.
Value by_path(Runtime& runtime, Value value, const Value& path, const Value* fallback = nullptr) {
  const auto or_fallback = [&](Value found) {
    return found.is<Undefined>() && fallback != nullptr && !fallback->is<None>() ? *fallback : found;
  };
  if (path.text() == nullptr) return or_fallback(item_of(runtime, value, path));
  const std::string_view names = path.text()->view();
  for (std::size_t at = 0; at <= names.size();) {
    const std::size_t dot = std::min(names.find('.', at), names.size());
    const std::string_view name = names.substr(at, dot - at);
    std::int64_t index = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index =
        !name.empty() && name[0] != '-' && read.ec == std::errc{} && read.ptr == name.data() + name.size();
    value =
        or_fallback(item_of(runtime, value, is_index ? Value(index) : runtime.text(name, path.text()->trusted_at(at))));
    at = dot + 1;
  }
  return value;
}

// What sorts and compares: the item or what its attribute holds, in lower case unless case matters.
Value sort_key(Runtime& runtime, const Value& item, const Value* attribute, bool case_sensitive) {
  const bool whole = attribute == nullptr || attribute->is<None>();
  const Value key = whole ? item : by_path(runtime, item, *attribute);
  if (case_sensitive || key.text() == nullptr) return key;
  runtime.step_characters(key.text()->size());
  return runtime.text(lower_case(*key.text()));
}

// Stable; Python's `reverse` keeps the order of equal items, too.
std::vector<Value> sorted(Runtime& runtime, const std::vector<Value>& keys, const std::vector<Value>& items,
                          bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? compare(runtime, keys[b], keys[a]) < 0 : compare(runtime, keys[a], keys[b]) < 0;
  });
  std::vector<Value> result;
  result.reserve(order.size());
  for (const std::size_t i : order) result.push_back(items[i]);
  return result;
}

Value length(Runtime& runtime, const Value& value, const Arguments& arguments) {
  arguments.bind("length", {}, 0);
  const auto n = length_of(runtime, value);
  if (!n) wrong("a {} has no length", type_name(value));
  return static_cast<std::int64_t>(*n);
}

Value first(Runtime& runtime, const Value& value, const Arguments& arguments) {
  arguments.bind("first", {}, 0);
  const std::vector<Value> items = items_of(runtime, value);
  return items.empty() ? undefined("there is no first item") : items.front();
}

Value last(Runtime& runtime, const Value& value, const Arguments& arguments) {
  arguments.bind("last", {}, 0);
  const std::vector<Value> items = items_of(runtime, value);
  return items.empty() ? undefined("there is no last item") : items.back();
}

Value join(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("join", {"d", "attribute"}, 0);
  const TextPtr separator = args[0] != nullptr ? to_text(runtime, *args[0]) : std::make_shared<const Text>();
  Text out;
  bool is_first = true;
  for (const Value& item : items_of(runtime, value)) {
    if (!is_first) out.append(*separator);
    is_first = false;
    const bool whole = args[1] == nullptr || args[1]->is<None>();
    const TextPtr part = to_text(runtime, whole ? item : by_path(runtime, item, *args[1]));
    runtime.step_bytes(separator->size() + part->size());
    runtime.check_length(out.size() + part->size());
    out.append(*part);
  }
  return runtime.text(std::move(out));
}

Value list(Runtime& runtime, const Value& value, const Arguments& arguments) {
  arguments.bind("list", {}, 0);
  return runtime.list(items_of(runtime, value));
}

Value reverse(Runtime& runtime, const Value& value, const Arguments& arguments) {
  arguments.bind("reverse", {}, 0);
  if (value.text() != nullptr) return slice_of(runtime, value, None{}, None{}, std::int64_t{-1});
  std::vector<Value> items = items_of(runtime, value);
  std::reverse(items.begin(), items.end());
  return runtime.list(std::move(items));
}

Value sort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("sort", {"reverse", "case_sensitive", "attribute"}, 0);
  const std::vector<Value> items = items_of(runtime, value);
  // 'a,b' sorts by a, then by b. Keys are lists, in which equal ones need have no order.
  std::vector<Value> attributes;
  if (args[2] != nullptr && args[2]->text() != nullptr) {
    const Value parts = call_method(runtime, *args[2], "split", {.positional = {runtime.text(",")}});
    attributes = items_of(runtime, parts);
  } else {
    attributes.push_back(args[2] != nullptr ? *args[2] : Value(None{}));
  }
  std::vector<Value> keys;
  for (const Value& item : items) {
    std::vector<Value> key;
    key.reserve(attributes.size());
    for (const Value& attribute : attributes) {
      key.push_back(sort_key(runtime, item, &attribute, truth_or(args[1], false)));
    }
    keys.emplace_back(runtime.list(std::move(key)));
  }
  return runtime.list(sorted(runtime, keys, items, truth_or(args[0], false)));
}

Value dictsort(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("dictsort", {"case_sensitive", "by", "reverse"}, 0);
  if (value.is<Undefined>()) fail_undefined(value);
  if (value.dict() == nullptr) wrong("dictsort of a {}", type_name(value));
  const std::string_view by = args[1] != nullptr ? text_argument("dictsort", *args[1]).view() : "key";
  if (by != "key" && by != "value") wrong("dictsort sorts by key or by value");
  std::vector<Value> items;
  std::vector<Value> keys;
  for (const auto& [key, item] : value.dict()->items) {
    items.push_back(runtime.tuple({key, item}));
    keys.push_back(sort_key(runtime, by == "key" ? key : item, nullptr, truth_or(args[0], false)));
  }
  return runtime.list(sorted(runtime, keys, items, truth_or(args[2], false)));
}

Value unique(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("unique", {"case_sensitive", "attribute"}, 0);
  Dict seen;
  std::vector<Value> items;
  for (const Value& item : items_of(runtime, value)) {
    const Value key = sort_key(runtime, item, args[1], truth_or(args[0], false));
    if (seen.find(runtime, key) != nullptr) continue;
    seen.set(runtime, key, None{});
    items.push_back(item);
  }
  return runtime.list(std::move(items));
}

Value extreme(Runtime& runtime, const Value& value, const Arguments& arguments, int direction) {
  const auto args = arguments.bind("min", {"case_sensitive", "attribute"}, 0);
  std::optional<Value> best;
  Value best_key;
  for (const Value& item : items_of(runtime, value)) {
    const Value key = sort_key(runtime, item, args[1], truth_or(args[0], false));
    if (best && compare(runtime, key, best_key) * direction <= 0) continue;
    best = item;
    best_key = key;
  }
  return best ? *best : undefined("there is no item");
}

Value smallest(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return extreme(runtime, value, arguments, -1);
}

Value largest(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return extreme(runtime, value, arguments, 1);
}

Value sum(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("sum", {"attribute", "start"}, 0);
  Value total = args[1] != nullptr ? *args[1] : Value(std::int64_t{0});
  for (const Value& item : items_of(runtime, value)) {
    const bool whole = args[0] == nullptr || args[0]->is<None>();
    total = binary(runtime, "+", total, whole ? item : by_path(runtime, item, *args[0]));
  }
  return total;
}

Value items(Runtime& runtime, const Value& value, const Arguments& arguments) {
  arguments.bind("items", {}, 0);
  if (value.is<Undefined>()) return runtime.list({});
  if (value.dict() == nullptr) wrong("items of a {}", type_name(value));
  return call_method(runtime, value, "items", {});
}

Value attr(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("attr", {"name"}, 1);
  const std::string name(to_text(runtime, *args[0])->view());
  if (value.is<Undefined>()) fail_undefined(value);
  if (value.dict() != nullptr && !has_method(value, name)) return undefined("a dict has no attribute of this name");
  return attribute_of(runtime, value, name);
}

// map, select and their like take anything that is false for an empty list.
std::vector<Value> items_or_none(Runtime& runtime, const Value& value) {
  return is_true(value) ? items_of(runtime, value) : std::vector<Value>();
}

// The arguments after the first `n`.
Arguments rest_of(const Arguments& arguments, std::size_t n) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + static_cast<std::ptrdiff_t>(n));
  return rest;
}

Value map(Runtime& runtime, const Value& value, const Arguments& arguments) {
  std::vector<Value> results;
  if (arguments.positional.empty()) {
    const auto args = arguments.bind("map", {"attribute", "default"}, 1);
    for (const Value& item : items_or_none(runtime, value)) {
      results.push_back(by_path(runtime, item, *args[0], args[1]));
    }
    return runtime.list(std::move(results));
  }
  const std::string filter(text_argument("map", arguments.positional[0]).view());
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : items_or_none(runtime, value)) results.push_back(call_filter(runtime, filter, item, rest));
  return runtime.list(std::move(results));
}

Value choose(Runtime& runtime, const Value& value, const Arguments& arguments, bool by_attribute, bool wanted) {
  const std::size_t test_at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < test_at) wrong("selectattr and rejectattr want the name of an attribute");
  const bool has_test = arguments.positional.size() > test_at;
  const std::string test = has_test ? std::string(text_argument("select", arguments.positional[test_at]).view()) : "";
  const Arguments rest = has_test ? rest_of(arguments, test_at + 1) : Arguments{};
  std::vector<Value> chosen;
  for (const Value& item : items_or_none(runtime, value)) {
    const Value subject = by_attribute ? by_path(runtime, item, arguments.positional[0]) : item;
    const bool passes = has_test ? call_test(runtime, test, subject, rest) : is_true(subject);
    if (passes == wanted) chosen.push_back(item);
  }
  return runtime.list(std::move(chosen));
}

template <bool ByAttribute, bool Wanted>
Value select(Runtime& runtime, const Value& value, const Arguments& arguments) {
  return choose(runtime, value, arguments, ByAttribute, Wanted);
}

Value batch(Runtime& runtime, const Value& value, const Arguments& arguments) {
  const auto args = arguments.bind("batch", {"linecount", "fill_with"}, 1);
  const std::int64_t size = integer_or(args[0], 0);
  if (size < 1) wrong("batch wants a size above 0");
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : items_of(runtime, value)) {
    row.push_back(item);
    if (static_cast<std::int64_t>(row.size()) < size) continue;
    rows.emplace_back(runtime.list(std::move(row)));
    row.clear();
  }
  if (!row.empty()) {
    while (args[1] != nullptr && static_cast<std::int64_t>(row.size()) < size) {
      runtime.step();
      row.push_back(*args[1]);
    }
    rows.emplace_back(runtime.list(std::move(row)));
  }
  return runtime.list(std::move(rows));
}

constexpr NamedFilter kListFilters[] = {
    {"length", length},
    {"count", length},
    {"first", first},
    {"last", last},
    {"join", join},
    {"list", list},
    {"reverse", reverse},
    {"sort", sort},
    {"dictsort", dictsort},
    {"unique", unique},
    {"min", smallest},
    {"max", largest},
    {"sum", sum},
    {"items", items},
    {"attr", attr},
    {"map", map},
    {"select", select<false, true>},
    {"reject", select<false, false>},
    {"selectattr", select<true, true>},
    {"rejectattr", select<true, false>},
    {"batch", batch},
};

}  // namespace

FilterFunction find_list_filter(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kListFilters), std::end(kListFilters),
                                         [&](const NamedFilter& f) { return f.name == name; });
  return found == std::end(kListFilters) ? nullptr : found->function;
}

Value call_filter(Runtime& runtime, const std::string& name, const Value& value, const Arguments& arguments) {
  const Runtime::Level level(runtime);
  runtime.step();
  FilterFunction function = find_text_filter(name);
  if (function == nullptr) function = find_list_filter(name);
  if (function == nullptr) wrong("there is no filter '{}'", printable(name));
  return function(runtime, value, arguments);
}

}  // namespace conclave::jinja
