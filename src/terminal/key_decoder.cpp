#include "terminal/key_decoder.h"

#include <algorithm>

#include "base/utf8.h"

namespace conclave {
namespace {

constexpr char kEscape = '\x1b';
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr std::size_t kLongestSequence = 64;
constexpr std::size_t kLongestPaste = 64 << 20;  // then it is handed over in pieces

struct Sequence {
  std::string_view bytes;  // after "ESC [" or "ESC O"
  Key key;
};

// xterm and its relatives, the Linux console, rxvt. 3 is Alt, 5 is Ctrl.
constexpr Sequence kSequences[] = {
    {"A", Key::up},
    {"B", Key::down},
    {"C", Key::right},
    {"D", Key::left},
    {"H", Key::home},
    {"F", Key::end},
    {"1~", Key::home},
    {"7~", Key::home},
    {"4~", Key::end},
    {"8~", Key::end},
    {"3~", Key::del},
    {"1;5C", Key::word_right},
    {"1;5D", Key::word_left},
    {"1;3C", Key::word_right},
    {"1;3D", Key::word_left},
    {"5C", Key::word_right},
    {"5D", Key::word_left},
    {"c", Key::word_right},
    {"d", Key::word_left},
    {"3;5~", Key::kill_word_right},
    {"3;3~", Key::kill_word_right},
};

struct Control {
  unsigned char byte;
  Key key;
};

constexpr Control kControls[] = {
    {0x01, Key::home},        {0x02, Key::left},          {0x03, Key::interrupt},      {0x04, Key::end_of_file},
    {0x05, Key::end},         {0x06, Key::right},         {0x08, Key::backspace},      {0x0A, Key::enter},
    {0x0B, Key::kill_to_end}, {0x0C, Key::clear_screen},  {0x0D, Key::enter},          {0x0E, Key::down},
    {0x10, Key::up},          {0x15, Key::kill_to_start}, {0x17, Key::kill_word_left}, {0x19, Key::yank},
    {0x1A, Key::suspend},     {0x7F, Key::backspace},
};

bool is_control(unsigned char byte) {
  return byte < 0x20 || byte == 0x7F;
}

// True where more bytes could make a character of this malformed beginning.
bool may_become_character(std::string_view bytes) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  const std::size_t length = lead >= 0xF0 && lead <= 0xF4 ? 4 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (lead > 0xF4 || bytes.size() >= length) return false;
  return std::all_of(bytes.begin() + 1, bytes.end(), [](char c) { return (c & 0xC0) == 0x80; });
}

}  // namespace

std::string clean_text(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const Utf8Character c = first_character(bytes);
    const std::size_t length = std::max<std::size_t>(c.length, 1);
    if (c.length > 0 && (c.code == '\n' || c.code == '\t' || (c.code >= 0x20 && c.code < 0x7F) || c.code >= 0xA0)) {
      out += bytes.substr(0, length);
    } else if (c.length > 0 && c.code == '\r' && !bytes.starts_with("\r\n")) {
      out += '\n';
    }
    bytes.remove_prefix(length);
  }
  return out;
}

std::optional<KeyPress> KeyDecoder::next() {
  bool complete = true;
  while (complete && !buffer_.empty()) {
    std::optional<KeyPress> press;
    const auto first = static_cast<unsigned char>(buffer_[0]);
    if (pasting_) {
      press = take_paste(complete);
    } else if (buffer_[0] == kEscape) {
      press = take_escape(complete);
    } else if (is_control(first)) {
      press = take_control(first);
    } else {
      press = take_text(complete);
    }
    if (press) return press;
  }
  return std::nullopt;
}

void KeyDecoder::drop_escape() {
  if (escape_pending()) buffer_.clear();  // the rest of it, if any, is the beginning of a sequence that never ended
}

std::optional<KeyPress> KeyDecoder::take_control(unsigned char byte) {
  buffer_.erase(0, 1);
  if (byte == '\t') return KeyPress{Key::text, "\t"};
  for (const Control& control : kControls) {
    if (control.byte == byte) return KeyPress{control.key, {}};
  }
  return std::nullopt;
}

std::optional<KeyPress> KeyDecoder::take_escape(bool& complete) {
  if (buffer_.size() < 2) {
    complete = false;
    return std::nullopt;
  }
  const char second = buffer_[1];
  if (second == '[' || second == 'O') return take_csi(complete);
  if (second == kEscape) {  // the Escape key, then something else
    buffer_.erase(0, 1);
    return std::nullopt;
  }
  buffer_.erase(0, 2);
  switch (second) {  // with Alt
    case 'b':
      return KeyPress{Key::word_left, {}};
    case 'f':
      return KeyPress{Key::word_right, {}};
    case 'd':
      return KeyPress{Key::kill_word_right, {}};
    case '\x7f':
    case '\x08':
      return KeyPress{Key::kill_word_left, {}};
    case '\r':
    case '\n':
      return KeyPress{Key::text, "\n"};
    default:
      return std::nullopt;
  }
}

std::optional<KeyPress> KeyDecoder::take_csi(bool& complete) {
  // Parameters, then one final byte. The Linux console's function keys are "ESC [ [ A".
  std::size_t end = 2;
  if (buffer_.size() > end && buffer_[1] == '[' && buffer_[end] == '[') ++end;
  while (end < buffer_.size() && buffer_[end] >= 0x20 && buffer_[end] < 0x40) ++end;
  if (end == buffer_.size() && end < kLongestSequence) {
    complete = false;
    return std::nullopt;
  }
  const bool ended = end < buffer_.size() && buffer_[end] >= 0x40 && buffer_[end] < 0x7F;
  const std::string sequence = buffer_.substr(2, end - 2 + (ended ? 1 : 0));
  buffer_.erase(0, end + (ended ? 1 : 0));
  if (sequence == "200~") {
    pasting_ = true;
    paste_scanned_ = 0;
    return std::nullopt;
  }
  for (const Sequence& known : kSequences) {
    if (known.bytes == sequence) return KeyPress{known.key, {}};
  }
  return std::nullopt;
}

std::optional<KeyPress> KeyDecoder::take_paste(bool& complete) {
  const std::size_t end = buffer_.find(kPasteEnd, paste_scanned_);
  if (end == std::string::npos && buffer_.size() < kLongestPaste) {
    paste_scanned_ = buffer_.size() - std::min(buffer_.size(), kPasteEnd.size() - 1);
    complete = false;
    return std::nullopt;
  }
  const std::size_t length = std::min(end, buffer_.size());
  std::string text = clean_text(std::string_view(buffer_).substr(0, length));
  pasting_ = end == std::string::npos;
  buffer_.erase(0, pasting_ ? length : length + kPasteEnd.size());
  paste_scanned_ = 0;
  if (text.empty()) return std::nullopt;
  return KeyPress{Key::text, std::move(text)};
}

// As much as there is, so that fast typing and pastes without brackets are few keys.
std::optional<KeyPress> KeyDecoder::take_text(bool& complete) {
  std::string text;
  std::string_view rest = buffer_;
  while (!rest.empty() && !is_control(static_cast<unsigned char>(rest[0]))) {
    const Utf8Character c = first_character(rest);
    if (c.length == 0 && may_become_character(rest)) {
      complete = !text.empty();
      break;
    }
    if (c.length > 0 && (c.code < 0x80 || c.code >= 0xA0)) text += rest.substr(0, c.length);
    rest.remove_prefix(std::max<std::size_t>(c.length, 1));
  }
  buffer_.erase(0, buffer_.size() - rest.size());
  if (text.empty()) return std::nullopt;
  return KeyPress{Key::text, std::move(text)};
}

}  // namespace conclave
