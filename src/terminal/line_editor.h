// Reads lines from a person at a terminal, with editing and history; from anything else, plainly.
//
//   left right, Ctrl-B Ctrl-F    by character           Ctrl-left Ctrl-right, Alt-B Alt-F   by word
//   Home End, Ctrl-A Ctrl-E      to the ends            up down, Ctrl-P Ctrl-N   history, or lines of a text of several
//   Backspace Delete             a character            Ctrl-W, Alt-Backspace, Alt-D   a word
//   Ctrl-U Ctrl-K                to the ends            Ctrl-Y   what was cut last
//   Enter                        done                   Alt-Enter   a line break in the text; pastes keep theirs
//   Ctrl-C                       clears the line; twice in a row at an empty one: quits
//   Ctrl-D                       quits at an empty line, else deletes a character
//   Ctrl-L                       clears the screen      Ctrl-Z   suspends
//
// The terminal is raw only inside read_line(), and given back however that ends: return, exception, a signal that ends the
// program. Such a signal is raised again after that, with its former effect.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "terminal/history.h"
#include "terminal/key_decoder.h"
#include "terminal/line_buffer.h"

namespace conclave {

class RawMode;
class SignalPipe;

struct LineEditorOptions {
  int in_fd = 0;
  int out_fd = 1;
  std::filesystem::path history_file = default_history_file();  // empty: none
};

class LineEditor {
 public:
  explicit LineEditor(LineEditorOptions options = {});

  // The next line without its line break; nothing at the end. The prompt is shown at a terminal alone. Throws Error where
  // the input cannot be read, or where a line that is not typed is longer than 256 MiB.
  std::optional<std::string> read_line(std::string_view prompt);

  // True where keys are read one by one: both ends are terminals, and not a dumb one.
  bool interactive() const { return interactive_; }

 private:
  enum class Step { more, line, quit };

  std::optional<std::string> read_plain(std::string_view prompt);
  // Edits until there is a line (in buffer_), an end, or a signal that wants to end the program, which it gives.
  Step edit(RawMode& raw, const SignalPipe& signals, int& fatal_signal);
  Step press(const KeyPress& key, RawMode& raw, const SignalPipe& signals);
  Step interrupt();
  void suspend(RawMode& raw, const SignalPipe& signals);
  void browse(int direction);
  void draw(bool at_end = false);
  void write(std::string_view bytes);

  LineEditorOptions options_;
  bool interactive_;
  History history_;
  std::string pending_;    // what was read, where the input is no terminal
  std::size_t given_ = 0;  // how much of it was given
  KeyDecoder decoder_;

  std::string prompt_;
  LineBuffer buffer_;
  std::size_t place_ = 0;       // in the history; its size: the new line
  std::string draft_;           // the new line, while the history is shown
  bool interrupted_ = false;    // the last key was Ctrl-C
  std::size_t cursor_row_ = 0;  // where the cursor was left, counted from the first row that was drawn
};

}  // namespace conclave
