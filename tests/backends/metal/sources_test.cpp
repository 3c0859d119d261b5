// The kernels are Metal Shading Language: nothing in them that only the host's compiler would take, and nothing that the
// two compilers would understand differently.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>

#include "backends/metal/shim/executor.h"

namespace conclave::metal {
namespace {

namespace fs = std::filesystem;
const fs::path kKernels = fs::path(CONCLAVE_SOURCE_DIR) / "src/backends/metal/kernels";

// The words and signs of a file, without comments and without what the host's compiler alone sees.
std::vector<std::string> tokens_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> tokens;
  bool skipped = false;
  for (std::string line; std::getline(file, line);) {
    line.erase(std::min(line.find("//"), line.size()));
    if (path.filename() == "arguments.h" && line == "#else") skipped = true;
    if (line == "#endif") skipped = false;
    for (std::size_t i = 0; i < line.size() && !skipped;) {
      const auto in_word = [&](std::size_t at) {
        return at < line.size() && (std::isalnum(static_cast<unsigned char>(line[at])) != 0 || line[at] == '_');
      };
      std::size_t end = i + 1;
      while (in_word(i) && in_word(end)) ++end;
      if (line[i] != ' ') tokens.push_back(line.substr(i, end - i));
      i = end;
    }
  }
  return tokens;
}

std::vector<fs::path> kernel_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kKernels)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(MetalSources, HoldToTheLanguage) {
  // Not in Metal, or not the same for both compilers. `auto` could lose an address space.
  const std::set<std::string> forbidden = {"double",
                                           "new",
                                           "delete",
                                           "try",
                                           "catch",
                                           "throw",
                                           "virtual",
                                           "goto",
                                           "dynamic_cast",
                                           "typeid",
                                           "asm",
                                           "thread_local",
                                           "function_constant",
                                           "std",
                                           "auto",
                                           "int64_t",
                                           "uint32_t",
                                           "size_t",
                                           "thread_elements"};
  for (const fs::path& path : kernel_files()) {
    const std::vector<std::string> tokens = tokens_of(path);
    ASSERT_GT(tokens.size(), 4U) << path;
    for (std::size_t i = 0; i + 2 < tokens.size(); ++i) {
      const std::string& word = tokens[i];
      const std::string three = word + " " + tokens[i + 1] + " " + tokens[i + 2];
      EXPECT_EQ(forbidden.count(word), 0U) << path.filename() << ": " << three;
      const bool is_vector = word.size() > 4 && std::string("234").find(word.back()) != std::string::npos &&
                             std::set<std::string>{"float", "half", "int", "uint", "uchar", "ushort", "ulong"}.count(
                                 word.substr(0, word.size() - 1)) > 0;
      EXPECT_FALSE(is_vector && tokens[i + 1] == "(") << path.filename() << ": vectors are initialised with braces";
      EXPECT_FALSE(word == "[" && (tokens[i + 1] == "&" || tokens[i + 1] == "=" || three == "[ ] (")) << path << three;
      EXPECT_FALSE(word == "if" && tokens[i + 1] == "constexpr") << path.filename() << ": Metal is C++14";
      // Threadgroup memory comes in as an argument: the word is followed by a type and a star.
      if (word == "threadgroup" && i + 3 < tokens.size()) {
        const bool is_pointer = tokens[i + 2] == "*" || (tokens[i + 1] == "const" && tokens[i + 3] == "*");
        EXPECT_TRUE(is_pointer || tokens[i + 1] == "(") << path.filename() << ": " << three;
      }
      // half is loaded, stored and converted: no variable holds one.
      EXPECT_FALSE(word == "half" && std::isalpha(static_cast<unsigned char>(tokens[i + 1][0])) != 0) << path << three;
    }
  }
}

TEST(MetalSources, IncludeNothingButMetalAndThemselves) {
  for (const fs::path& path : kernel_files()) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (line.rfind("#include", 0) != 0) continue;
      const bool known = line.find("\"backends/metal/kernels/") != std::string::npos ||
                         line == "#include <metal_stdlib>" ||
                         (path.filename() == "arguments.h" && line == "#include <cstdint>");
      EXPECT_TRUE(known) << path.filename() << ": " << line;
    }
  }
}

// Whatever is instantiated can be found by its name, once.
TEST(MetalSources, KernelsHaveNamesOfTheirOwn) {
  const std::vector<std::string> names = Executor::kernel_names();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_GT(names.size(), 60U);
  for (const char* format : {"q4_k", "q5_k", "q6_k", "q8_0", "q4_0", "f16", "bf16", "f32", "mxfp4", "any"}) {
    for (const char* kind :
         {"few_rows_", "few_gate_up_", "few_finish_", "many_rows_", "many_gate_up_", "many_finish_"}) {
      EXPECT_NE(Executor::find(std::string(kind) + format), nullptr) << kind << format;
    }
  }
}

}  // namespace
}  // namespace conclave::metal
