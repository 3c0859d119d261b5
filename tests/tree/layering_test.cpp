// Reads every #include of src/ and holds it to the table in docs/architecture.md: an arrow that is not there fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kRoot = CONCLAVE_SOURCE_DIR;

// Folder of src/ -> the folders it may include, besides itself. "conclave" is include/conclave: the public API.
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"base", {"conclave"}},
    {"tensor", {"base"}},
    {"quant", {"base", "tensor"}},
    {"gguf", {"base", "tensor", "quant"}},
    {"ops", {"base", "tensor", "quant"}},
    {"backends/ref", {"base", "tensor", "quant", "ops"}},
    {"backends/cpu", {"base", "tensor", "quant", "ops"}},
    {"backends/cuda", {"base", "tensor", "quant", "ops"}},
    {"backends/metal", {"base", "tensor", "quant", "ops"}},
    {"model", {"base", "tensor", "quant", "gguf", "ops"}},
    {"text", {"base"}},
    {"sample", {"base", "tensor", "conclave"}},
    {"engine", {"base", "tensor", "quant", "gguf", "ops", "model", "text", "sample", "conclave"}},
    {"api",
     {"base", "tensor", "ops", "engine", "backends/ref", "backends/cpu", "backends/cuda", "backends/metal",
      "conclave"}},
    {"terminal", {"base"}},
    {"report", {"base", "terminal"}},
    {"convert", {"base", "tensor", "quant", "gguf", "model"}},
};

std::string folder_of(const fs::path& inside_src) {
  auto part = inside_src.begin();
  std::string folder = part->string();
  if (folder == "backends" && std::next(part) != inside_src.end()) folder += "/" + std::next(part)->string();
  return folder;
}

// The text between quotes of every `#include "..."` line.
std::vector<std::string> quoted_includes(std::istream& file) {
  std::vector<std::string> includes;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("#include \"", 0) != 0) continue;
    const std::size_t end = line.find('"', 10);
    includes.push_back(line.substr(10, end - 10));
  }
  return includes;
}

std::vector<std::string> forbidden(const std::string& folder, const std::vector<std::string>& includes) {
  std::vector<std::string> bad;
  const auto allowed = kMayInclude.find(folder);
  for (const std::string& include : includes) {
    const std::string target = folder_of(fs::path(include).parent_path());
    const bool ok = allowed != kMayInclude.end() && (target == folder || allowed->second.count(target) > 0);
    if (!ok) bad.push_back(include);
  }
  return bad;
}

TEST(Layering, EveryIncludeIsAnArrowOfTheTable) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / "src")) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh" &&
        extension != ".metal" && extension != ".mm")
      continue;
    ++files;
    const std::string folder = folder_of(fs::relative(entry.path().parent_path(), kRoot / "src"));
    std::ifstream file(entry.path());
    for (const std::string& include : forbidden(folder, quoted_includes(file))) {
      ADD_FAILURE() << fs::relative(entry.path(), kRoot) << " includes " << include;
    }
  }
  EXPECT_GT(files, 80);
}

TEST(Layering, TheTestItselfRejectsAForbiddenArrow) {
  EXPECT_EQ(forbidden("ops", {"gguf/file.h", "ops/check.h", "tensor/tensor.h"}),
            std::vector<std::string>{"gguf/file.h"});
  EXPECT_EQ(forbidden("model", {"backends/ref/ref_device.h"}).size(), 1U);
  EXPECT_EQ(forbidden("backends/ref", {"backends/cpu/cpu_device.h"}).size(), 1U);
  EXPECT_EQ(forbidden("base", {"tensor/tensor.h"}).size(), 1U);
  EXPECT_EQ(forbidden("unheard_of", {"base/error.h"}).size(), 1U);
}

TEST(Tree, EveryOpHasItsSpecReferenceAndTestsUnderItsStem) {
  std::ifstream op_header(kRoot / "src/ops/op.h");
  int stems = 0;
  for (const std::string& include : quoted_includes(op_header)) {
    const std::string stem = fs::path(include).stem().string();
    if (stem == "op") continue;
    ++stems;
    EXPECT_TRUE(fs::exists(kRoot / "src/ops" / (stem + ".cpp"))) << stem;
    EXPECT_TRUE(fs::exists(kRoot / "tests/ops" / (stem + "_test.cpp"))) << stem;
  }
  EXPECT_GE(stems, 20);
}

TEST(Tree, NoSourceFileIsOver800Lines) {
  for (const char* folder : {"src", "apps", "bench", "tests", "fuzz", "tools"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".h" && extension != ".cpp" && extension != ".py") continue;
      std::ifstream file(entry.path());
      const auto lines = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
      EXPECT_LE(lines, 800) << entry.path();
    }
  }
}

}  // namespace
