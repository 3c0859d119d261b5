#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <limits>
#include <new>
#include <sstream>
#include <string>
#include <string_view>

#include "base/file_text.h"
#include "cli.h"
#include "commands.h"

#ifndef CONCLAVE_VERSION  // the build defines it from the project's version
#define CONCLAVE_VERSION "(no version)"
#endif

namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// One line on stderr whatever the text holds: file names may have line breaks. (fmt::print would throw where stderr is
// closed.)
int report(std::string_view text, int exit_code) {
  const std::string line = conclave::printable(text, std::numeric_limits<std::size_t>::max());
  std::fputs(fmt::format("error: {}\n", line).c_str(), stderr);
  return exit_code;
}

int wrong_usage(const CLI::App& app, std::string_view text) {
  report(text, kWrongUsage);
  const auto named = app.get_subcommands();
  const std::string command = named.empty() ? "" : named.front()->get_name() + " ";
  std::fputs(fmt::format("Try: conclave {}--help\n", command).c_str(), stderr);
  return kWrongUsage;
}

// Help and version on stdout with exit code 0; anything else is wrong usage.
int finish_parse(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {
    std::ostringstream out;
    std::ostringstream unused;
    app.exit(error, out, unused);
    conclave::print(out.str());
    return 0;
  }
  return wrong_usage(app, error.what());
}

int run(int argc, char** argv) {
  CLI::App app(
      "conclave: mixture-of-experts models from GGUF files. It runs them, inspects them, checks its own ops and "
      "measures them.",
      "conclave");
  app.set_version_flag("--version", "conclave " CONCLAVE_VERSION);
  app.require_subcommand(0, 1);  // none is reported below: with 1, a misspelt command would read as a missing one
  app.footer(
      "Examples:\n  conclave run\n  conclave run -m model.gguf -p \"Once upon a time\"\n  conclave inspect "
      "model.gguf\n\nconclave COMMAND --help tells more.");
  conclave::Command chosen;
  conclave::add_commands(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return finish_parse(app, error);
  }
  if (!chosen) return wrong_usage(app, "a command is required");
  return chosen();
}

// A closed stdin, stdout or stderr would be the next file that is opened: the model would be read as a prompt. For
// reading alone: output that nobody gets stays an error.
void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);  // takes the lowest number that is free: fd
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  try {
    return run(argc, argv);
  } catch (const conclave::Error& error) {
    return report(error.what(), kFailed);
  } catch (const std::bad_alloc&) {
    return report("out of memory", kFailed);
  } catch (const std::exception& error) {
    return report(error.what(), kFailed);
  }
}
