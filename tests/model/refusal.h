// Holds a table of faults to the one line each of them must give.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/file.h"
#include "model/description.h"
#include "model_fixture.h"

namespace conclave::testing {

// The family of most faults.
inline const std::string kQ = "qwen3moe";

// The refusal of the model with this edit, or what happened instead.
inline std::string refusal(const std::string& family, const Edit& edit) {
  ModelFixture model = tiny_model(family);
  edit(model);
  const TempDir dir;
  const auto path = dir.path() / "model.gguf";
  model.write(path);
  const gguf::File file = gguf::File::open(path);
  try {
    describe_model(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file) << error.what();
    return error.what();
  }
  return "(accepted)";
}

inline void expect_refusals(const std::vector<Fault>& faults) {
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const std::string text = refusal(faults[i].family, faults[i].edit);
    EXPECT_NE(text.find(faults[i].message), std::string::npos)
        << "fault " << i << ", expected: " << faults[i].message << "\n  got: " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

inline void expect_accepted(const std::string& family, const Edit& edit) {
  EXPECT_EQ(refusal(family, edit), "(accepted)");
}

}  // namespace conclave::testing
