// Runs a parsed template.
#pragma once

#include <memory>

#include "text/template_runtime.h"
#include "text/template_syntax.h"

namespace conclave::jinja {

// The text that `tree` makes with the variables of `globals`. Throws Error without a line; runtime.line has it.
Text evaluate(Runtime& runtime, const Tree& tree, std::shared_ptr<Scope> globals);

}  // namespace conclave::jinja
