#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace conclave {

void check_failed(const char* condition, const std::string& values, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: bug in conclave: %s is false: %s\n", file, line, condition, values.c_str());
  std::abort();
}

}  // namespace conclave
