// The two kinds of failure.
//
// The world (a file, a request, memory, a device) fails with `Error`: thrown where it is found, caught only in main and
// at the edge of a request, shown as one line. A bug of ours fails with CONCLAVE_CHECK: it prints the values and
// aborts.
#pragma once

#include <stdexcept>
#include <string>

namespace conclave {

enum class ErrorCode {
  invalid_argument,  // what the caller asked for cannot be
  bad_file,          // a file that breaks its format, or that no model can be made of
  io,                // the operating system refused
  unsupported,       // legal, but not by this backend or this version
  out_of_memory,     // the size was computed first, and it does not fit
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

[[noreturn]] void check_failed(const char* condition, const std::string& values, const char* file, int line);

}  // namespace conclave

// For what cannot be false unless this code is wrong; never for input.
#define CONCLAVE_CHECK(condition, values)                                                 \
  do {                                                                                    \
    if (!(condition)) ::conclave::check_failed(#condition, (values), __FILE__, __LINE__); \
  } while (false)
