// A text with a cursor in it, and how it lies on a screen. No input, no output.
//
// The text is UTF-8 and may have line breaks. The cursor stands before a character and never between a character and the
// marks that combine with it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace conclave {

class LineBuffer {
 public:
  const std::string& text() const { return text_; }
  std::size_t cursor() const { return cursor_; }  // in bytes
  bool empty() const { return text_.empty(); }

  void set(std::string text);  // the cursor at its end
  void insert(std::string_view text);

  void left();
  void right();
  void word_left();
  void word_right();
  void home();  // of the line of text that the cursor is in
  void end();
  bool line_up();  // into the line of text above; false where there is none
  bool line_down();

  void backspace();
  void del();
  // What was removed can be put back by yank().
  void kill_to_start();
  void kill_to_end();
  void kill_word_left();
  void kill_word_right();
  void yank();

 private:
  std::size_t after(std::size_t place) const;   // one character on
  std::size_t before(std::size_t place) const;  // one character back
  std::size_t word_start() const;
  std::size_t word_end() const;
  std::size_t line_start(std::size_t place) const;
  std::size_t line_end(std::size_t place) const;
  std::size_t place_in_line(std::size_t start, int columns) const;
  void kill(std::size_t from, std::size_t to);

  std::string text_;
  std::size_t cursor_ = 0;
  std::string killed_;
};

// The rows of a screen that a prompt and a text take, wrapped at `columns`. A wide character that does not fit goes to the
// next row whole; a tab is four blanks.
struct LineLayout {
  std::vector<std::string> rows;
  std::size_t cursor_row = 0;
  int cursor_column = 0;
};

LineLayout lay_out(std::string_view prompt, std::string_view text, std::size_t cursor, int columns);

}  // namespace conclave
