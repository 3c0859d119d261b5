#include "text/template_macro.h"

#include <algorithm>

#include "base/file_text.h"

namespace conclave::jinja {
namespace {

void bind_positional(Runtime& runtime, const Stmt& macro, const Arguments& arguments, Scope& scope) {
  const std::size_t n_params = macro.params.size();
  const std::size_t n = arguments.positional.size();
  if (n > n_params && !macro.takes_varargs)
    wrong("the macro '{}' takes at most {} arguments", printable(macro.name), n_params);
  for (std::size_t i = 0; i < std::min(n, n_params); ++i) scope.set(macro.params[i].name, arguments.positional[i]);
  if (!macro.takes_varargs) return;
  std::vector<Value> rest;
  for (std::size_t i = n_params; i < n; ++i) rest.push_back(arguments.positional[i]);
  scope.set("varargs", runtime.tuple(std::move(rest)));
}

void bind_named(Runtime& runtime, const Stmt& macro, const Arguments& arguments, Scope& scope) {
  Dict* const rest = macro.takes_kwargs ? runtime.dict() : nullptr;
  for (const auto& argument : arguments.named) {
    const std::string& name = argument.first;
    const auto param =
        std::find_if(macro.params.begin(), macro.params.end(), [&](const Param& p) { return p.name == name; });
    if (param != macro.params.end()) {
      const auto index = static_cast<std::size_t>(param - macro.params.begin());
      if (index < arguments.positional.size()) {
        wrong("the macro '{}' gets '{}' twice", printable(macro.name), printable(name));
      }
      scope.set(param->name, argument.second);
    } else if (name == "caller") {
      scope.set("caller", argument.second);
    } else if (rest != nullptr) {
      rest->set(runtime, runtime.text(name), argument.second);
    } else {
      wrong("the macro '{}' has no parameter '{}'", printable(macro.name), printable(name));
    }
  }
  if (rest != nullptr) scope.set("kwargs", rest);
}

}  // namespace

void bind_arguments(Runtime& runtime, const Stmt& macro, const Arguments& arguments, Scope& scope,
                    const std::function<Value(const Expr&)>& value_of) {
  bind_positional(runtime, macro, arguments, scope);
  bind_named(runtime, macro, arguments, scope);
  for (std::size_t i = arguments.positional.size(); i < macro.params.size(); ++i) {
    const Param& param = macro.params[i];
    if (scope.names.count(param.name) > 0) continue;
    scope.set(param.name, param.fallback != nullptr
                              ? value_of(*param.fallback)
                              : undefined(fmt::format("the parameter '{}' was not given", printable(param.name))));
  }
}

}  // namespace conclave::jinja
