#include "text/template_runtime.h"

#include <algorithm>

namespace conclave::jinja {
namespace {

// Counted for as long as it lives.
struct KeptText {
  KeptText(Text t, std::shared_ptr<std::size_t> bytes) : text(std::move(t)), kept_bytes(std::move(bytes)) {
    *kept_bytes += text.size();
  }
  ~KeptText() { *kept_bytes -= text.size(); }
  KeptText(const KeptText&) = delete;
  KeptText& operator=(const KeptText&) = delete;

  const Text text;
  const std::shared_ptr<std::size_t> kept_bytes;
};

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
    const auto found = scope->names.find(name);
    if (found != scope->names.end()) return &found->second;
  }
  return nullptr;
}

void Runtime::step(std::uint64_t n) {
  if (n > limits_.max_steps - steps_) wrong("it does not end within {} steps", limits_.max_steps);
  steps_ += n;
}

void Runtime::check_length(std::size_t bytes) const {
  if (bytes > limits_.max_text_bytes) wrong("it makes a text of more than {} bytes", limits_.max_text_bytes);
}

Value Runtime::text(Text text) {
  check_length(text.size());
  step(3);
  step_bytes(text.size());
  return keep(std::move(text));
}

TextPtr Runtime::keep(Text text) {
  if (text.size() > limits_.max_kept_bytes - *kept_bytes_) {
    wrong("it keeps more than {} bytes of text", limits_.max_kept_bytes);
  }
  const auto kept = std::make_shared<const KeptText>(std::move(text), kept_bytes_);
  return {kept, &kept->text};
}

List* Runtime::sequence(std::vector<Value> items, bool is_tuple) {
  step(2 + 2 * items.size());
  lists_.push_back({std::move(items), is_tuple});
  return &lists_.back();
}

Dict* Runtime::dict() {
  step();
  return &dicts_.emplace_back();
}

Namespace* Runtime::name_space() {
  step();
  return &name_spaces_.emplace_back();
}

Macro* Runtime::macro(const Stmt* definition, std::shared_ptr<Scope> scope) {
  step();
  macros_.push_back({definition, std::move(scope)});
  return &macros_.back();
}

Bound* Runtime::bound(Value self, std::string name) {
  step();
  bounds_.push_back({std::move(self), std::move(name)});
  return &bounds_.back();
}

Loop* Runtime::loop(std::vector<Value> items) {
  step(2 + 2 * items.size());
  loops_.emplace_back().items = std::move(items);
  return &loops_.back();
}

Runtime::Level::Level(Runtime& runtime) : runtime_(runtime) {
  if (runtime.depth_ >= runtime.limits_.max_depth) {
    wrong("macros, expressions or data are nested deeper than {} levels", runtime.limits_.max_depth);
  }
  ++runtime.depth_;
}

Value undefined(std::string what) {
  return Undefined{std::make_shared<const std::string>(std::move(what))};
}

void fail_undefined(const Value& value) {
  const auto* const undefined_value = value.get<Undefined>();
  const bool known = undefined_value != nullptr && undefined_value->what != nullptr;
  wrong("{}", known ? *undefined_value->what : std::string("an undefined value is used"));
}

}  // namespace conclave::jinja
