// Methods of lists and dicts, the global functions, and how arguments meet parameters.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/file_text.h"
#include "text/template_builtins.h"

namespace conclave::jinja {
namespace {

constexpr std::string_view kTextMethods[] = {
    "strip",      "lstrip",       "rstrip",    "split",        "rsplit",  "partition", "rpartition", "startswith",
    "endswith",   "removeprefix", "find",      "rfind",        "index",   "rindex",    "count",      "join",
    "format",     "ljust",        "rjust",     "removesuffix", "center",  "upper",     "lower",      "casefold",
    "capitalize", "title",        "isspace",   "isdigit",      "isalpha", "isnumeric", "replace",    "isalnum",
    "isupper",    "islower",      "isdecimal", "splitlines"};
constexpr std::string_view kListMethods[] = {"append",  "extend", "insert", "pop",   "remove",
                                             "reverse", "clear",  "copy",   "index", "count"};
constexpr std::string_view kTupleMethods[] = {"index", "count"};
constexpr std::string_view kDictMethods[] = {"get", "items",      "keys", "values", "update",
                                             "pop", "setdefault", "copy", "clear"};
constexpr std::string_view kGlobals[] = {"range", "dict", "namespace", "raise_exception"};

template <std::size_t N>
bool has(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Where an index of pop() or insert() is in a list of `n`.
std::int64_t position(std::int64_t index, std::size_t n) {
  return index < 0 ? index + static_cast<std::int64_t>(n) : index;
}

Value find_in(Runtime& runtime, const List& list, std::string_view name, const Arguments& arguments) {
  const auto args = arguments.bind(name, {"value"}, 1);
  std::int64_t n = 0;
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (!is_equal(runtime, list.items[i], *args[0])) continue;
    if (name == "index") return static_cast<std::int64_t>(i);
    ++n;
  }
  if (name == "index") wrong("index: the value is not in the list");
  return n;
}

Value call_list_method(Runtime& runtime, List& list, std::string_view name, const Arguments& arguments) {
  std::vector<Value>& items = list.items;
  if (name == "index" || name == "count") return find_in(runtime, list, name, arguments);
  if (name == "append") {
    const auto args = arguments.bind(name, {"value"}, 1);
    items.push_back(*args[0]);
    return None{};
  }
  if (name == "extend") {
    const auto args = arguments.bind(name, {"values"}, 1);
    const std::vector<Value> more = items_of(runtime, *args[0]);
    items.insert(items.end(), more.begin(), more.end());
    return None{};
  }
  runtime.step(items.size());  // what follows moves items
  if (name == "insert") {
    const auto args = arguments.bind(name, {"index", "value"}, 2);
    const auto n = static_cast<std::int64_t>(items.size());
    items.insert(items.begin() + std::clamp<std::int64_t>(position(integer_or(args[0], 0), items.size()), 0, n),
                 *args[1]);
    return None{};
  }
  if (name == "pop") {
    const auto args = arguments.bind(name, {"index"}, 0);
    const std::int64_t at = position(integer_or(args[0], -1), items.size());
    if (at < 0 || at >= static_cast<std::int64_t>(items.size())) wrong("pop from a list that is too short");
    const Value value = items[static_cast<std::size_t>(at)];
    items.erase(items.begin() + at);
    return value;
  }
  if (name == "remove") {
    const std::int64_t at = *find_in(runtime, list, "index", arguments).integer();
    items.erase(items.begin() + at);
    return None{};
  }
  arguments.bind(name, {}, 0);
  if (name == "copy") return runtime.list(items);
  if (name == "clear") items.clear();
  if (name == "reverse") std::reverse(items.begin(), items.end());
  return None{};
}

// dict(x), d.update(x): pairs of a mapping or of a list of pairs, then the named arguments.
void update(Runtime& runtime, Dict& dict, std::string_view function, const Arguments& arguments) {
  if (arguments.positional.size() > 1) wrong("{} takes one argument", function);
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.dict() != nullptr) {
      const auto pairs = from.dict()->items;
      for (const auto& [key, value] : pairs) dict.set(runtime, key, value);
    } else {
      for (const Value& pair : items_of(runtime, from)) {
        const std::vector<Value> parts = items_of(runtime, pair);
        if (parts.size() != 2) wrong("{} wants pairs", function);
        dict.set(runtime, parts[0], parts[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.named) dict.set(runtime, runtime.text(key), value);
}

Value call_dict_method(Runtime& runtime, Dict& dict, std::string_view name, const Arguments& arguments) {
  if (name == "get" || name == "pop" || name == "setdefault") {
    const auto args = arguments.bind(name, {"key", "default"}, 1);
    const Value* const found = dict.find(runtime, *args[0]);
    const Value value = found != nullptr ? *found : args[1] != nullptr ? *args[1] : Value(None{});
    if (name == "pop") {
      if (found == nullptr && args[1] == nullptr) wrong("pop: the key is not in the dict");
      if (found != nullptr) dict.erase(runtime, *args[0]);
    }
    if (name == "setdefault" && found == nullptr) dict.set(runtime, *args[0], value);
    return value;
  }
  if (name == "update") {
    update(runtime, dict, name, arguments);
    return None{};
  }
  arguments.bind(name, {}, 0);
  if (name == "clear") {
    dict = Dict{};
    return None{};
  }
  if (name == "copy") {
    Dict* const other = runtime.dict();
    runtime.step(dict.items.size());
    *other = dict;
    return other;
  }
  std::vector<Value> items;
  for (const auto& [key, value] : dict.items) {
    items.push_back(name == "keys" ? key : name == "values" ? value : Value(runtime.tuple({key, value})));
  }
  return runtime.list(std::move(items));
}

Value call_loop_method(Runtime& runtime, Loop& loop, std::string_view name, const Arguments& arguments) {
  if (name == "cycle") {
    if (arguments.positional.empty()) wrong("loop.cycle without arguments");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  const Value now = runtime.tuple(arguments.positional);
  const bool changed = !loop.changed || !is_equal(runtime, *loop.changed, now);
  loop.changed = now;
  return changed;
}

Value range(Runtime& runtime, const Arguments& arguments) {
  const auto args = arguments.bind("range", {"start", "stop", "step"}, 1);
  const std::int64_t start = args[1] == nullptr ? 0 : integer_or(args[0], 0);
  const std::int64_t stop = args[1] == nullptr ? integer_or(args[0], 0) : integer_or(args[1], 0);
  const std::int64_t step = integer_or(args[2], 1);
  if (step == 0) wrong("range with step 0");
  constexpr std::size_t kMaxRange = 100'000;  // Jinja's sandbox has the same
  std::vector<Value> items;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() == kMaxRange) wrong("a range of more than {} numbers", kMaxRange);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return runtime.list(std::move(items));
}

Value strftime_now(Runtime& runtime, const Arguments& arguments) {
  const auto args = arguments.bind("strftime_now", {"format"}, 1);
  const Text& format = text_argument("strftime_now", *args[0]);
  // One more character, so that an empty result differs from one that did not fit.
  const std::string pattern = std::string(format.view()) + ".";
  std::array<char, 1024> buffer{};
  const std::size_t n = std::strftime(buffer.data(), buffer.size(), pattern.c_str(), &*runtime.now);
  if (n == 0 || std::strlen(pattern.c_str()) != pattern.size()) wrong("strftime_now cannot use this format");
  return runtime.text(std::string_view(buffer.data(), n - 1), format.all_trusted());
}

}  // namespace

std::vector<const Value*> Arguments::bind(std::string_view function, std::initializer_list<std::string_view> parameters,
                                          std::size_t required) const {
  if (positional.size() > parameters.size()) {
    wrong("{} takes at most {} arguments, not {}", function, parameters.size(), positional.size());
  }
  std::vector<const Value*> bound(parameters.size(), nullptr);
  for (std::size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [name, value] : named) {
    const auto* const parameter = std::find(parameters.begin(), parameters.end(), name);
    if (parameter == parameters.end()) wrong("{} has no parameter '{}'", function, printable(name));
    const Value*& slot = bound[static_cast<std::size_t>(parameter - parameters.begin())];
    if (slot != nullptr) wrong("{} gets '{}' twice", function, printable(name));
    slot = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) wrong("{} lacks its argument '{}'", function, std::data(parameters)[i]);
  }
  return bound;
}

std::int64_t integer_or(const Value* value, std::int64_t fallback) {
  if (value == nullptr || value->is<None>()) return fallback;
  if (value->is<Undefined>()) fail_undefined(*value);
  if (!value->integer()) wrong("an argument is a {}, must be an integer", type_name(*value));
  return *value->integer();
}

bool truth_or(const Value* value, bool fallback) {
  return value == nullptr ? fallback : is_true(*value);
}

const Text& text_argument(std::string_view function, const Value& value) {
  if (value.is<Undefined>()) fail_undefined(value);
  if (value.text() == nullptr) wrong("{} wants a string, not a {}", function, type_name(value));
  return *value.text();
}

bool has_method(const Value& self, std::string_view name) {
  if (self.text() != nullptr) return has(kTextMethods, name);
  if (self.dict() != nullptr) return has(kDictMethods, name);
  if (self.list() != nullptr) return self.list()->is_tuple ? has(kTupleMethods, name) : has(kListMethods, name);
  return false;
}

Value call_method(Runtime& runtime, const Value& self, std::string_view name, const Arguments& arguments) {
  if (const Text* const text = self.text()) return call_text_method(runtime, *text, name, arguments);
  if (Dict* const dict = self.dict()) return call_dict_method(runtime, *dict, name, arguments);
  if (List* const list = self.list()) return call_list_method(runtime, *list, name, arguments);
  if (Loop* const loop = self.loop()) return call_loop_method(runtime, *loop, name, arguments);
  return call_global(runtime, name, arguments);
}

bool is_global(const Runtime& runtime, std::string_view name) {
  return has(kGlobals, name) || (name == "strftime_now" && runtime.now.has_value());
}

Value call_global(Runtime& runtime, std::string_view name, const Arguments& arguments) {
  if (name == "range") return range(runtime, arguments);
  if (name == "strftime_now") return strftime_now(runtime, arguments);
  if (name == "raise_exception") {
    const auto args = arguments.bind(name, {"message"}, 1);
    constexpr std::size_t kShown = 1000;
    fail(ErrorCode::invalid_argument, "{}", printable(to_text(runtime, *args[0])->view(), kShown));
  }
  Dict* const dict = runtime.dict();
  update(runtime, *dict, name, arguments);
  if (name == "dict") return dict;
  Namespace* const name_space = runtime.name_space();
  for (const auto& [key, value] : dict->items) {
    name_space->attributes.insert_or_assign(std::string(text_argument(name, key).view()), value);
  }
  return name_space;
}

}  // namespace conclave::jinja
