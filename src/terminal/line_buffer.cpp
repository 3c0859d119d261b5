#include "terminal/line_buffer.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "terminal/width.h"

namespace conclave {
namespace {

constexpr int kTabColumns = 4;

// Only well-formed text is put in; a stray byte still counts as a character of its own.
Utf8Character character_at(std::string_view text, std::size_t place) {
  Utf8Character c = first_character(text.substr(place));
  if (c.length == 0) c = {1, '?'};
  return c;
}

bool is_word(const Utf8Character& c) {
  const std::uint32_t code = c.code;
  return (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || code == '_' ||
         code >= 0x80;
}

int width_of(const Utf8Character& c) {
  return c.code == '\t' ? kTabColumns : column_width(c.code);
}

}  // namespace

void LineBuffer::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void LineBuffer::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

std::size_t LineBuffer::after(std::size_t place) const {
  if (place >= text_.size()) return text_.size();
  place += character_at(text_, place).length;
  while (place < text_.size()) {
    const Utf8Character c = character_at(text_, place);
    if (width_of(c) > 0) break;
    place += c.length;
  }
  return place;
}

std::size_t LineBuffer::before(std::size_t place) const {
  while (place > 0) {
    do --place;
    while (place > 0 && (text_[place] & 0xC0) == 0x80);
    if (width_of(character_at(text_, place)) > 0) break;
  }
  return place;
}

std::size_t LineBuffer::word_start() const {
  std::size_t place = cursor_;
  while (place > 0 && !is_word(character_at(text_, before(place)))) place = before(place);
  while (place > 0 && is_word(character_at(text_, before(place)))) place = before(place);
  return place;
}

std::size_t LineBuffer::word_end() const {
  std::size_t place = cursor_;
  while (place < text_.size() && !is_word(character_at(text_, place))) place = after(place);
  while (place < text_.size() && is_word(character_at(text_, place))) place = after(place);
  return place;
}

std::size_t LineBuffer::line_start(std::size_t place) const {
  const std::size_t before_break = place == 0 ? std::string::npos : text_.rfind('\n', place - 1);
  return before_break == std::string::npos ? 0 : before_break + 1;
}

std::size_t LineBuffer::line_end(std::size_t place) const {
  return std::min(text_.find('\n', place), text_.size());
}

void LineBuffer::left() {
  cursor_ = before(cursor_);
}

void LineBuffer::right() {
  cursor_ = after(cursor_);
}

void LineBuffer::word_left() {
  cursor_ = word_start();
}

void LineBuffer::word_right() {
  cursor_ = word_end();
}

void LineBuffer::home() {
  cursor_ = line_start(cursor_);
}

void LineBuffer::end() {
  cursor_ = line_end(cursor_);
}

// The place in the line from `start` on that is closest to `columns` without being past it.
std::size_t LineBuffer::place_in_line(std::size_t start, int columns) const {
  const std::size_t end = line_end(start);
  std::size_t place = start;
  while (place < end) {
    const std::size_t next = after(place);
    columns -= text_width(std::string_view(text_).substr(place, next - place));
    if (columns < 0) break;
    place = next;
  }
  return place;
}

bool LineBuffer::line_up() {
  const std::size_t start = line_start(cursor_);
  if (start == 0) return false;
  const int columns = text_width(std::string_view(text_).substr(start, cursor_ - start));
  cursor_ = place_in_line(line_start(start - 1), columns);
  return true;
}

bool LineBuffer::line_down() {
  const std::size_t end = line_end(cursor_);
  if (end == text_.size()) return false;
  const std::size_t start = line_start(cursor_);
  const int columns = text_width(std::string_view(text_).substr(start, cursor_ - start));
  cursor_ = place_in_line(end + 1, columns);
  return true;
}

void LineBuffer::backspace() {
  const std::size_t from = before(cursor_);
  text_.erase(from, cursor_ - from);
  cursor_ = from;
}

void LineBuffer::del() {
  text_.erase(cursor_, after(cursor_) - cursor_);
}

void LineBuffer::kill(std::size_t from, std::size_t to) {
  if (from == to) return;
  killed_ = text_.substr(from, to - from);
  text_.erase(from, to - from);
  cursor_ = from;
}

void LineBuffer::kill_to_start() {
  kill(line_start(cursor_), cursor_);
}

// At the end of a line: the line break itself.
void LineBuffer::kill_to_end() {
  const std::size_t to = line_end(cursor_);
  kill(cursor_, to == cursor_ ? after(cursor_) : to);
}

void LineBuffer::kill_word_left() {
  kill(word_start(), cursor_);
}

void LineBuffer::kill_word_right() {
  kill(cursor_, word_end());
}

void LineBuffer::yank() {
  insert(killed_);
}

LineLayout lay_out(std::string_view prompt, std::string_view text, std::size_t cursor, int columns) {
  LineLayout layout;
  layout.rows.emplace_back();
  int column = 0;
  const auto next_row = [&] {
    layout.rows.emplace_back();
    column = 0;
  };
  const auto put = [&](std::string_view bytes, int width) {
    if (column + width > columns && column > 0) next_row();
    layout.rows.back() += bytes;
    column += width;
  };
  const auto mark_cursor = [&] {
    layout.cursor_row = layout.rows.size() - 1;
    layout.cursor_column = column;
  };
  for (std::size_t place = 0; place < prompt.size();) {
    const Utf8Character c = character_at(prompt, place);
    put(prompt.substr(place, c.length), width_of(c));
    place += c.length;
  }
  for (std::size_t place = 0; place < text.size();) {
    const Utf8Character c = character_at(text, place);
    const int width = width_of(c);
    if (c.code == '\n') {
      if (place == cursor) {
        mark_cursor();
        layout.cursor_column = std::min(column, columns - 1);
      }
      next_row();
    } else {
      if (column + width > columns && column > 0) next_row();
      if (place == cursor) mark_cursor();
      put(c.code == '\t' ? std::string_view("    ") : text.substr(place, c.length), width);
    }
    place += c.length;
  }
  if (cursor >= text.size()) {
    if (column >= columns) next_row();
    mark_cursor();
  }
  return layout;
}

}  // namespace conclave
