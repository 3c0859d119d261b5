// Bytes from a terminal in raw mode as keys.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace conclave {

enum class Key {
  text,   // typed or pasted: printable characters, line breaks and tabs; always well-formed UTF-8
  enter,  // also Ctrl-J
  left,
  right,
  word_left,
  word_right,
  up,
  down,
  home,
  end,
  backspace,
  del,
  kill_to_start,
  kill_to_end,
  kill_word_left,
  kill_word_right,
  yank,
  clear_screen,
  interrupt,    // Ctrl-C
  end_of_file,  // Ctrl-D
  suspend,      // Ctrl-Z
};

struct KeyPress {
  Key key;
  std::string text;  // of Key::text
};

// Escape sequences and characters may come in pieces. What is unknown is swallowed whole; what is malformed is dropped.
class KeyDecoder {
 public:
  void feed(std::string_view bytes) { buffer_ += bytes; }

  // Nothing where more bytes are needed.
  std::optional<KeyPress> next();

  // True where an escape sequence has begun and not ended, outside of a paste. If nothing follows soon, it was the
  // Escape key: drop_escape() forgets it.
  bool escape_pending() const { return !pasting_ && !buffer_.empty() && buffer_[0] == '\x1b'; }
  void drop_escape();

 private:
  std::optional<KeyPress> take_control(unsigned char byte);
  std::optional<KeyPress> take_escape(bool& complete);
  std::optional<KeyPress> take_csi(bool& complete);
  std::optional<KeyPress> take_paste(bool& complete);
  std::optional<KeyPress> take_text(bool& complete);

  std::string buffer_;
  bool pasting_ = false;
  std::size_t paste_scanned_ = 0;  // how far the end of the paste has been looked for
};

// What may stand in a line: well-formed characters, no control characters but line breaks (as \n) and tabs.
std::string clean_text(std::string_view bytes);

}  // namespace conclave
