// What the subcommands share. Each one lives in a file of its own and exposes one function, add_NAME(app, chosen),
// which declares its arguments; when the command line names it, it stores what is to be run in `chosen`. main runs that
// after the whole command line has been read, so wrong usage (exit code 2) never starts any work.
#pragma once

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fail.h"

namespace conclave {

using Command = std::function<int()>;  // gives the exit code: 0 where all is well, 1 where what was asked for failed

// For options that name a file.
inline CLI::Validator not_empty() {
  return {[](const std::string& name) { return name.empty() ? "the name is empty" : std::string{}; }, ""};
}

// Writes to stdout now; a full disk is an error like any other, not a short output with exit code 0.
inline void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  fail(ErrorCode::io, "cannot write the output: {}", std::strerror(errno));
}

}  // namespace conclave
