#include "default_model.h"

#include <cstdlib>
#include <system_error>
#include <vector>

#include "base/fail.h"

#ifndef CONCLAVE_MODELS_DIR  // the build defines it: models/ of the source tree
#define CONCLAVE_MODELS_DIR ""
#endif

namespace conclave {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  std::error_code none;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", none); !none) {
    found.push_back(program.parent_path());
    found.push_back(program.parent_path().parent_path() / "share" / "conclave");
  }
  if (const fs::path source = CONCLAVE_MODELS_DIR; !source.empty()) found.push_back(source);
  return found;
}

}  // namespace

fs::path default_model() {
  if (const char* named = std::getenv("CONCLAVE_MODEL"); named != nullptr && *named != '\0') return named;
  for (const fs::path& folder : folders()) {
    std::error_code none;
    if (fs::is_regular_file(folder / kBundledModel, none)) return folder / kBundledModel;
  }
  fail(ErrorCode::io, "the bundled model {} is not installed: name a file with -m FILE or in $CONCLAVE_MODEL",
       kBundledModel);
}

}  // namespace conclave
