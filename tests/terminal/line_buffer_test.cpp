#include "terminal/line_buffer.h"

#include <gtest/gtest.h>

#include "terminal/key_decoder.h"
#include "terminal/width.h"

namespace conclave {
namespace {

// The text with | where the cursor is.
std::string shown(const LineBuffer& buffer) {
  std::string text = buffer.text();
  return text.insert(buffer.cursor(), "|");
}

LineBuffer buffer_of(std::string_view with_cursor) {
  LineBuffer buffer;
  const std::size_t at = with_cursor.find('|');
  buffer.insert(with_cursor.substr(at + 1));
  while (buffer.cursor() > 0) buffer.left();
  buffer.insert(with_cursor.substr(0, at));
  return buffer;
}

template <class Action>
std::string after(std::string_view with_cursor, Action&& action) {
  LineBuffer buffer = buffer_of(with_cursor);
  action(buffer);
  return shown(buffer);
}

TEST(Width, WideCombiningAndPlain) {
  EXPECT_EQ(text_width("abc"), 3);
  EXPECT_EQ(text_width("\u00e9\u00df"), 2);
  EXPECT_EQ(text_width("\u4e16\u754c"), 4);
  EXPECT_EQ(text_width("e\u0301"), 1);
  EXPECT_EQ(text_width("\U0001F600"), 2);
  EXPECT_EQ(text_width("\uac00"), 2);
  EXPECT_EQ(text_width("\uff21"), 2);
  EXPECT_EQ(text_width("\u200d\ufe0f"), 0);
  EXPECT_EQ(text_width("\u0416\u2500\u2580"), 3);
  EXPECT_EQ(text_width("\xff\xc3"), 2);
}

TEST(LineBuffer, MovesByCharacterNotByByte) {
  EXPECT_EQ(after("a\u4e16|b", [](LineBuffer& b) { b.left(); }), "a|\u4e16b");
  EXPECT_EQ(after("a|\u4e16b", [](LineBuffer& b) { b.right(); }), "a\u4e16|b");
  EXPECT_EQ(after("xe\u0301|", [](LineBuffer& b) { b.left(); }), "x|e\u0301");
  EXPECT_EQ(after("x|e\u0301y", [](LineBuffer& b) { b.right(); }), "xe\u0301|y");
  EXPECT_EQ(after("|ab", [](LineBuffer& b) { b.left(); }), "|ab");
  EXPECT_EQ(after("ab|", [](LineBuffer& b) { b.right(); }), "ab|");
}

TEST(LineBuffer, DeletesWholeCharacters) {
  EXPECT_EQ(after("ae\u0301|b", [](LineBuffer& b) { b.backspace(); }), "a|b");
  EXPECT_EQ(after("a|\U0001F600b", [](LineBuffer& b) { b.del(); }), "a|b");
  EXPECT_EQ(after("|a", [](LineBuffer& b) { b.backspace(); }), "|a");
  EXPECT_EQ(after("a|", [](LineBuffer& b) { b.del(); }), "a|");
}

TEST(LineBuffer, Words) {
  EXPECT_EQ(after("one two,  |x", [](LineBuffer& b) { b.word_left(); }), "one |two,  x");
  EXPECT_EQ(after("one| two, x", [](LineBuffer& b) { b.word_right(); }), "one two|, x");
  EXPECT_EQ(after("one two,  |x", [](LineBuffer& b) { b.kill_word_left(); }), "one |x");
  EXPECT_EQ(after("one| two, x", [](LineBuffer& b) { b.kill_word_right(); }), "one|, x");
  EXPECT_EQ(after("\u00fcber \u4e16|", [](LineBuffer& b) { b.word_left(); }), "\u00fcber |\u4e16");
}

TEST(LineBuffer, KillsAndYanks) {
  LineBuffer buffer = buffer_of("one |two");
  buffer.kill_to_end();
  EXPECT_EQ(shown(buffer), "one |");
  buffer.home();
  buffer.yank();
  EXPECT_EQ(shown(buffer), "two|one ");
  buffer.kill_to_start();
  buffer.kill_to_start();  // nothing to cut: what was cut stays
  buffer.yank();
  EXPECT_EQ(shown(buffer), "two|one ");
}

TEST(LineBuffer, LinesOfAText) {
  EXPECT_EQ(after("first\nse|cond", [](LineBuffer& b) { EXPECT_TRUE(b.line_up()); }), "fi|rst\nsecond");
  EXPECT_EQ(after("ab\nlonger|", [](LineBuffer& b) { EXPECT_TRUE(b.line_up()); }), "ab|\nlonger");
  EXPECT_EQ(after("fir|st\ns\nx", [](LineBuffer& b) { EXPECT_TRUE(b.line_down()); }), "first\ns|\nx");
  EXPECT_EQ(after("ab|\nx", [](LineBuffer& b) { EXPECT_FALSE(b.line_up()); }), "ab|\nx");
  EXPECT_EQ(after("ab\n|x", [](LineBuffer& b) { EXPECT_FALSE(b.line_down()); }), "ab\n|x");
  EXPECT_EQ(after("ab\ncd|\nef", [](LineBuffer& b) { b.home(); }), "ab\n|cd\nef");
  EXPECT_EQ(after("ab\n|cd\nef", [](LineBuffer& b) { b.end(); }), "ab\ncd|\nef");
  EXPECT_EQ(after("ab|\ncd", [](LineBuffer& b) { b.kill_to_end(); }), "ab|cd");
}

TEST(LineLayout, WrapsAtTheWidth) {
  const LineLayout layout = lay_out("> ", "abcdefgh", 8, 5);
  EXPECT_EQ(layout.rows, (std::vector<std::string>{"> abc", "defgh", ""}));
  EXPECT_EQ(layout.cursor_row, 2U);
  EXPECT_EQ(layout.cursor_column, 0);
  const LineLayout inside = lay_out("> ", "abcdefgh", 3, 5);  // before d: the beginning of its row
  EXPECT_EQ(inside.rows, (std::vector<std::string>{"> abc", "defgh"}));
  EXPECT_EQ(inside.cursor_row, 1U);
  EXPECT_EQ(inside.cursor_column, 0);
}

TEST(LineLayout, AWideCharacterIsNotCut) {
  const LineLayout layout = lay_out("> ", "ab\u4e16c", 2, 5);
  EXPECT_EQ(layout.rows, (std::vector<std::string>{"> ab", "\u4e16c"}));
  EXPECT_EQ(layout.cursor_row, 1U);
  EXPECT_EQ(layout.cursor_column, 0);
  EXPECT_EQ(lay_out("", "abcde\u0301", 0, 5).rows, (std::vector<std::string>{"abcde\u0301"}));
  EXPECT_EQ(lay_out("", "\u4e16\u4e16", 0, 1).rows.size(), 2U);  // a screen too narrow for any of it
}

TEST(LineLayout, LineBreaksAndTabs) {
  const LineLayout layout = lay_out("> ", "a\n\tb\n", 6, 20);
  EXPECT_EQ(layout.rows, (std::vector<std::string>{"> a", "    b", ""}));
  EXPECT_EQ(layout.cursor_row, 2U);
  const LineLayout full = lay_out("", "abcde\nx", 5, 5);  // on the line break after a full row
  EXPECT_EQ(full.cursor_row, 0U);
  EXPECT_EQ(full.cursor_column, 4);
}

std::string keys_of(KeyDecoder& decoder) {
  std::string out;
  while (const auto key = decoder.next()) {
    out += key->key == Key::text ? "'" + key->text + "' " : std::to_string(static_cast<int>(key->key)) + " ";
  }
  return out;
}

std::string keys_of(std::string_view bytes) {
  KeyDecoder decoder;
  decoder.feed(bytes);
  return keys_of(decoder);
}

std::string key(Key k) {
  return std::to_string(static_cast<int>(k)) + " ";
}

TEST(KeyDecoder, KnowsTheSequencesOfCommonTerminals) {
  EXPECT_EQ(keys_of("ab\x1b[D\x1bOC\x1b[1;5D\x1b[3~"),
            "'ab' " + key(Key::left) + key(Key::right) + key(Key::word_left) + key(Key::del));
  EXPECT_EQ(keys_of("\x1b[H\x1b[F\x1b[1~\x1b[4~\x1bOH"),
            key(Key::home) + key(Key::end) + key(Key::home) + key(Key::end) + key(Key::home));
  EXPECT_EQ(keys_of("\x1b"
                    "b\x1b"
                    "f\x1b\x7f\x1b\r"),
            key(Key::word_left) + key(Key::word_right) + key(Key::kill_word_left) + "'\n' ");
  EXPECT_EQ(keys_of("\x01\x05\x0b\x15\x17\x19\x03\x04\x1a\r"),
            key(Key::home) + key(Key::end) + key(Key::kill_to_end) + key(Key::kill_to_start) +
                key(Key::kill_word_left) + key(Key::yank) + key(Key::interrupt) + key(Key::end_of_file) +
                key(Key::suspend) + key(Key::enter));
}

TEST(KeyDecoder, SwallowsWhatItDoesNotKnow) {
  EXPECT_EQ(keys_of("\x1b[99;99;99~a"), "'a' ");
  EXPECT_EQ(keys_of("\x1b[[Aa"), "'a' ");
  EXPECT_EQ(keys_of("\x1b[?1;2ca"), "'a' ");
  EXPECT_EQ(keys_of(std::string("\0\x02", 2) + "a"), key(Key::left) + "'a' ");
  EXPECT_EQ(keys_of("a\xff\xfe\x80z\xc0\xaf"), "'az' ");
  EXPECT_EQ(keys_of("\xc2\x9bx"), "'x' ");  // a control character of two bytes
}

TEST(KeyDecoder, PiecesAreJoined) {
  const std::string bytes = "\u4e16\x1b[1;5C\x1b[200~p\r\nq\rr\x1b[201~\U0001F600\x1b[A";
  KeyDecoder decoder;
  std::string keys;
  for (const char c : bytes) {
    decoder.feed({&c, 1});
    keys += keys_of(decoder);
  }
  EXPECT_EQ(keys, "'\u4e16' " + key(Key::word_right) + "'p\nq\nr' '\U0001F600' " + key(Key::up));
}

TEST(KeyDecoder, APasteIsTextWhateverItHolds) {
  EXPECT_EQ(keys_of("\x1b[200~a\x03\x04\x1b[Ab\tc\xff\n\x1b[201~z"), "'a[Ab\tc\n' 'z' ");
  EXPECT_EQ(keys_of("\x1b[200~\x1b[201~z"), "'z' ");
}

TEST(KeyDecoder, EscapeAloneIsForgotten) {
  KeyDecoder decoder;
  decoder.feed("\x1b");
  EXPECT_FALSE(decoder.next().has_value());
  EXPECT_TRUE(decoder.escape_pending());
  decoder.drop_escape();
  EXPECT_FALSE(decoder.escape_pending());
  decoder.feed("[A");
  EXPECT_EQ(keys_of(decoder), "'[A' ");
}

}  // namespace
}  // namespace conclave
