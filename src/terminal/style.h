// What a terminal can show, and how much of it fits on a line.
#pragma once

namespace conclave {

enum class Colours { none, palette256, truecolour };

struct TerminalStyle {
  int columns = 80;
  Colours colours = Colours::none;
};

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};

// Of the terminal behind `fd`; $COLUMNS and $LINES, then 80 by 24, where it does not tell.
TerminalSize terminal_size(int fd);

// For what is printed to `fd`: no colours unless it is a terminal, and none with NO_COLOR set or TERM=dumb. True colours
// where COLORTERM says so.
TerminalStyle terminal_style(int fd);

}  // namespace conclave
