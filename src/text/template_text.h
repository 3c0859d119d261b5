// Text that knows where its characters came from.
//
// A chat template mixes its own literals, which may spell control tokens, with what people typed, which must never
// become one. So every text inside the interpreter is bytes plus runs: a run is trusted (from the template itself) or
// not. Every operation is built of append and slice, and those keep the runs.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace conclave::jinja {

struct TextRun {
  std::size_t end;  // one past the last byte; a run starts where the one before ends
  bool trusted;
};

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, bool trusted) { append(bytes, trusted); }

  std::string_view view() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<TextRun>& runs() const { return runs_; }

  // The origin of the byte at `at`; false for an empty text, past the end that of the last byte.
  bool trusted_at(std::size_t at) const;
  // No byte is from outside. An empty text is trusted.
  bool all_trusted() const;

  void append(std::string_view bytes, bool trusted);
  void append(const Text& other) { append(other, 0, other.size()); }
  // Bytes [from, to) of another text.
  void append(const Text& other, std::size_t from, std::size_t to);
  Text slice(std::size_t from, std::size_t to) const;

  // What `safe` and `escape` mark: it counts as HTML, and what is added to it is escaped. Slices inherit the mark.
  bool is_markup() const { return is_markup_; }
  Text as_markup(bool is_markup = true) const;

 private:
  std::size_t run_at(std::size_t at) const;  // index of the run that holds the byte

  std::string bytes_;
  bool is_markup_ = false;
  std::vector<TextRun> runs_;  // neighbours differ in `trusted`, none is empty
};

using TextPtr = std::shared_ptr<const Text>;

// Code points of UTF-8. A byte that is not part of a valid sequence counts as one code point of its own, so that any
// bytes can be walked, sliced and put together again.
struct CodePoint {
  char32_t value;
  std::size_t bytes;
};
CodePoint code_point_at(std::string_view bytes, std::size_t at);
// Where the code point that ends at `end` (> 0) starts.
std::size_t previous_code_point(std::string_view bytes, std::size_t end);
std::size_t count_code_points(std::string_view bytes);
void append_utf8(std::string& out, char32_t value);

// Linear in both, whatever they hold; npos if it is not there.
std::size_t find_bytes(std::string_view in, std::string_view what, std::size_t from);

// & < > ' " as HTML entities, unless it is markup already; the result is.
Text html_escaped(const Text& text);

bool is_space(char32_t value);       // what Python's str.isspace() says
bool is_line_break(char32_t value);  // what Python's str.splitlines() splits at
bool is_cased(char32_t value);
std::string to_upper(char32_t value);
std::string to_lower(char32_t value);

}  // namespace conclave::jinja
