// Error: what every function of the library throws where the world (a file, a request, memory, a device) is not as it
// must be. The text is one line that names the thing and the numbers, fit to be shown.
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
  device_failed,     // a GPU refused, or is lost: what was in its memory is gone
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace conclave
