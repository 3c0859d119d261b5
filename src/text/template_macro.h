// How the arguments of a call become the names that a macro's body sees.
#pragma once

#include <functional>

#include "text/template_builtins.h"

namespace conclave::jinja {

// Sets every parameter in `scope`, which is the macro's own and empty: from the arguments, from its default, which may
// use the parameters before it, or as undefined. Also `varargs` and `kwargs` for a macro that reads them, and `caller`.
// An argument for which there is no place is an error.
void bind_arguments(Runtime& runtime, const Stmt& macro, const Arguments& arguments, Scope& scope,
                    const std::function<Value(const Expr&)>& value_of);

}  // namespace conclave::jinja
