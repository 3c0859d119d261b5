// One rendering: its limits, the line it is at, and the objects it made.
#pragma once

#include <cstdint>
#include <ctime>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "text/chat_template.h"
#include "text/template_syntax.h"
#include "text/template_value.h"

namespace conclave::jinja {

// The names of one block. Macros keep the scope they were written in.
struct Scope {
  std::unordered_map<std::string_view, Value> names;  // the tree or the context own the texts
  std::shared_ptr<Scope> outer;

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value) { names.insert_or_assign(name, std::move(value)); }
};

struct Macro {
  const Stmt* definition;
  std::shared_ptr<Scope> scope;
};

class Runtime {
 public:
  explicit Runtime(const TemplateLimits& limits) : limits_(limits) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int line = 1;  // of what is evaluated: errors name it
  std::optional<std::tm> now;

  // Work of `n` units is about to be done. Everything that takes time or memory comes through here, so this is what
  // bounds both: a unit is no more than some 50 bytes that stay.
  void step(std::uint64_t n = 1);
  // The work of reading or making that many bytes.
  void step_bytes(std::size_t bytes) { step(1 + bytes / kBytesPerStep); }
  // The work of looking up each character of that many bytes: its case, its class.
  void step_characters(std::size_t bytes) { step(1 + bytes / kCharactersPerStep); }
  // A text is about to become that long.
  void check_length(std::size_t bytes) const;

  Value text(Text text);
  // What is alive of these counts towards the limit.
  TextPtr keep(Text text);
  Value text(std::string_view bytes, bool trusted = true) { return text(Text(bytes, trusted)); }
  List* list(std::vector<Value> items) { return sequence(std::move(items), false); }
  List* tuple(std::vector<Value> items) { return sequence(std::move(items), true); }
  Dict* dict();
  Namespace* name_space();
  Macro* macro(const Stmt* definition, std::shared_ptr<Scope> scope);
  Bound* bound(Value self, std::string name);
  Loop* loop(std::vector<Value> items);

  // One level of recursion, of whatever function, while it lives.
  class Level {
   public:
    explicit Level(Runtime& runtime);
    ~Level() { --runtime_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Runtime& runtime_;
  };

 private:
  static constexpr std::size_t kBytesPerStep = 64;
  static constexpr std::size_t kCharactersPerStep = 2;

  List* sequence(std::vector<Value> items, bool is_tuple);

  TemplateLimits limits_;
  std::uint64_t steps_ = 0;
  std::shared_ptr<std::size_t> kept_bytes_ = std::make_shared<std::size_t>(0);  // texts may outlive the rest
  int depth_ = 0;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> name_spaces_;
  std::deque<Macro> macros_;
  std::deque<Bound> bounds_;
  std::deque<Loop> loops_;
};

// "'x' is undefined" and the like: an error for whoever uses it.
Value undefined(std::string what);
[[noreturn]] void fail_undefined(const Value& value);

// The template does something that cannot be. Its line is added where the rendering was started.
template <class... Args>
[[noreturn]] void wrong(fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorCode::bad_file, format, std::forward<Args>(args)...);
}

}  // namespace conclave::jinja
