#include "terminal/style.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace conclave {
namespace {

constexpr int kMostColumns = 10000;

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int number_or(std::string_view text, int otherwise) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc{} && end == text.data() + text.size();
  return whole && value > 0 && value <= kMostColumns ? value : otherwise;
}

}  // namespace

TerminalSize terminal_size(int fd) {
  TerminalSize size;
  size.columns = number_or(variable("COLUMNS"), size.columns);
  size.rows = number_or(variable("LINES"), size.rows);
  winsize told{};
  if (::ioctl(fd, TIOCGWINSZ, &told) == 0) {
    if (told.ws_col > 0) size.columns = told.ws_col;
    if (told.ws_row > 0) size.rows = told.ws_row;
  }
  return size;
}

TerminalStyle terminal_style(int fd) {
  TerminalStyle style;
  style.columns = terminal_size(fd).columns;
  if (::isatty(fd) == 0 || !variable("NO_COLOR").empty() || variable("TERM") == "dumb") return style;
  const std::string_view depth = variable("COLORTERM");
  style.colours = depth == "truecolor" || depth == "24bit" ? Colours::truecolour : Colours::palette256;
  return style;
}

}  // namespace conclave
