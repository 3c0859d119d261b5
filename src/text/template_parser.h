// From tokens to a tree: the grammar of Jinja without template inheritance and imports, which a template that lives in
// one string has no use for.
#pragma once

#include <string_view>

#include "text/template_syntax.h"

namespace conclave::jinja {

// Nesting of blocks, brackets and operators that a template may have; real ones stay below 30.
inline constexpr int kMaxNesting = 100;
inline constexpr int kMaxExprHeight = 200;

// Throws Error with the line of what is wrong.
Tree parse(std::string_view source);

}  // namespace conclave::jinja
