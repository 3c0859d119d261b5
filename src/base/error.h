// The two kinds of failure.
//
// The world (a file, a request, memory, a device) fails with `Error`: thrown where it is found, caught only in main and
// at the edge of a request, shown as one line. A bug of ours fails with CONCLAVE_CHECK: it prints the values and
// aborts.
#pragma once

#include <string>

#include "conclave/error.h"

namespace conclave {

[[noreturn]] void check_failed(const char* condition, const std::string& values, const char* file, int line);

}  // namespace conclave

// For what cannot be false unless this code is wrong; never for input.
#define CONCLAVE_CHECK(condition, values)                                                 \
  do {                                                                                    \
    if (!(condition)) ::conclave::check_failed(#condition, (values), __FILE__, __LINE__); \
  } while (false)
