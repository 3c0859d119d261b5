// Renders templates for the tests, with some variables that all of them may use.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/chat_template.h"

namespace conclave {

inline ChatValue::Object test_variables() {
  using Object = ChatValue::Object;
  using Array = ChatValue::Array;
  return {
      {"name", "Ada"},
      {"n", 5},
      {"f", 2.75},
      {"yes", true},
      {"no", false},
      {"nothing", nullptr},
      {"list", Array{3, 1, 2, 1}},
      {"words", Array{"b", "A", "c", "a"}},
      {"empty", Array{}},
      {"text", " Some Text\n"},
      {"uni", "ünï 世🎉"},
      {"d", Object{{"b", 1}, {"a", "x"}, {"C", Array{1, 2}}}},
      {"rows", Array{Object{{"r", "x"}, {"v", 1}, {"w", Object{{"z", "Q"}}}}, Object{{"r", "y"}, {"v", 0}},
                     Object{{"r", "x"}, {"v", 3}, {"w", Object{{"z", "P"}}}}}},
  };
}

inline std::string joined(const std::vector<TemplatePiece>& pieces) {
  std::string text;
  for (const TemplatePiece& piece : pieces) text += piece.text;
  return text;
}

inline std::string render(std::string_view source, const TemplateLimits& limits = {}) {
  return joined(ChatTemplate(source, limits).render({}, {.variables = test_variables()}));
}

// The text of the Error that parsing or rendering throws.
inline std::string error_of(std::string_view source, const TemplateLimits& limits = {}) {
  try {
    return "no error, but: " + render(source, limits);
  } catch (const Error& error) {
    return error.what();
  }
}

struct Rendering {
  std::string_view source;
  std::string_view text;
};

inline void expect_all(std::initializer_list<Rendering> cases) {
  for (const Rendering& c : cases) {
    try {
      EXPECT_EQ(render(c.source), c.text) << c.source;
    } catch (const Error& error) {
      ADD_FAILURE() << c.source << "\n" << error.what();
    }
  }
}

}  // namespace conclave
