#include "text/scanners.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace conclave {
namespace {

// Reads past the end of the stretch give `end`, which is of no class that any rule asks for.
class Reader {
 public:
  Reader(const Chars& chars, Stretch stretch) : chars_(&chars), last_(stretch.last) {}

  bool inside(std::uint32_t i) const { return i < last_; }
  bool is(std::uint32_t i, char32_t code) const { return inside(i) && chars_->code[i] == code; }
  bool is(std::uint32_t i, CharClass kind) const { return inside(i) && chars_->kind[i] == kind; }
  bool letter(std::uint32_t i) const { return is(i, CharClass::letter); }
  bool number(std::uint32_t i) const { return is(i, CharClass::number); }
  bool space(std::uint32_t i) const { return is(i, CharClass::space); }
  bool line_end(std::uint32_t i) const { return is(i, U'\r') || is(i, U'\n'); }
  bool rest(std::uint32_t i) const { return inside(i) && !letter(i) && !number(i) && !space(i); }

  // The end of the run that starts at i; i itself where there is none.
  template <class Belongs>
  std::uint32_t run(std::uint32_t i, Belongs&& belongs) const {
    while (inside(i) && belongs(i)) ++i;
    return i;
  }

  // The end of 's, 't, 're, 've, 'm, 'll or 'd at i; i where there is none.
  std::uint32_t contraction(std::uint32_t i, bool any_case) const {
    if (!is(i, U'\'') || !inside(i + 1)) return i;
    const char32_t one = folded(i + 1, any_case);
    if (one == U's' || one == U't' || one == U'm' || one == U'd') return i + 2;
    if (!inside(i + 2)) return i;
    const char32_t two = folded(i + 2, any_case);
    const bool found = (one == U'r' && two == U'e') || (one == U'v' && two == U'e') || (one == U'l' && two == U'l');
    return found ? i + 3 : i;
  }

  // \s+(?!\S)|\s+ for white space from i to `end`, at least one: what follows other text keeps its last space.
  std::uint32_t spaces(std::uint32_t i, std::uint32_t end) const { return end - i > 1 && inside(end) ? end - 1 : end; }

 private:
  char32_t folded(std::uint32_t i, bool any_case) const {
    const char32_t code = chars_->code[i];
    return any_case && code >= U'A' && code <= U'Z' ? code - U'A' + U'a' : code;
  }

  const Chars* chars_;
  std::uint32_t last_;
};

std::uint32_t word_end(const Reader& r, std::uint32_t i) {
  if (const std::uint32_t end = r.contraction(i, false); end > i) return end;
  const std::uint32_t body = i + (r.is(i, U' ') ? 1 : 0);
  if (r.letter(body)) return r.run(body, [&](std::uint32_t k) { return r.letter(k); });
  if (r.number(body)) return r.run(body, [&](std::uint32_t k) { return r.number(k); });
  if (r.rest(body)) return r.run(body, [&](std::uint32_t k) { return r.rest(k); });
  return r.spaces(i, r.run(i, [&](std::uint32_t k) { return r.space(k); }));
}

std::uint32_t word_or_line_end(const Reader& r, std::uint32_t i, std::uint32_t max_numbers) {
  if (const std::uint32_t end = r.contraction(i, true); end > i) return end;
  const auto letter = [&](std::uint32_t k) { return r.letter(k); };
  if (r.letter(i)) return r.run(i, letter);
  if (!r.number(i) && !r.line_end(i) && r.letter(i + 1)) return r.run(i + 1, letter);
  if (r.number(i)) return r.run(i, [&](std::uint32_t k) { return k - i < max_numbers && r.number(k); });
  const std::uint32_t body = i + (r.is(i, U' ') ? 1 : 0);
  if (r.rest(body)) {
    const std::uint32_t end = r.run(body, [&](std::uint32_t k) { return r.rest(k); });
    return r.run(end, [&](std::uint32_t k) { return r.line_end(k); });
  }
  std::uint32_t after_line = i;
  const std::uint32_t end = r.run(i, [&](std::uint32_t k) {
    if (r.line_end(k)) after_line = k + 1;
    return r.space(k);
  });
  return after_line > i ? after_line : r.spaces(i, end);
}

template <class End>
void cut_all(const Chars& chars, Stretch stretch, Cuts& cuts, End&& end_of) {
  const Reader reader(chars, stretch);
  for (std::uint32_t i = stretch.first; i < stretch.last;) {
    i = end_of(reader, i);
    cuts.push_back(i);
  }
}

// `end_of(reader, i)` gives the end of what is wanted at i, or i.
template <class End>
void cut_out(const Chars& chars, Stretch stretch, Cuts& cuts, End&& end_of) {
  const Reader reader(chars, stretch);
  std::uint32_t done = stretch.first;  // everything before this is cut
  for (std::uint32_t i = stretch.first; i < stretch.last;) {
    const std::uint32_t end = end_of(reader, i);
    if (end == i) {
      ++i;
      continue;
    }
    if (i > done) cuts.push_back(i);
    cuts.push_back(end);
    done = i = end;
  }
  if (done < stretch.last) cuts.push_back(stretch.last);
}

template <class Belongs>
void cut_out_runs(const Chars& chars, Stretch stretch, Cuts& cuts, Belongs&& belongs) {
  cut_out(chars, stretch, cuts, [&](const Reader& r, std::uint32_t i) { return r.run(i, belongs); });
}

// \s?[...]+ for a set that has no white space.
template <class Belongs>
void cut_out_spaced_runs(const Chars& chars, Stretch stretch, Cuts& cuts, Belongs&& belongs) {
  cut_out(chars, stretch, cuts, [&](const Reader& r, std::uint32_t i) {
    const std::uint32_t body = i + (r.space(i) ? 1 : 0);
    const std::uint32_t end = r.run(body, belongs);
    return end > body ? end : i;
  });
}

bool is_one_of(char32_t code, std::u32string_view set) {
  return set.find(code) != std::u32string_view::npos;
}

struct CodeRange {
  char32_t first;
  char32_t last;  // inclusive
};

constexpr CodeRange kCasedLetters[] = {
    {0x41, 0x5a},       {0x61, 0x7a},       {0xb5, 0xb5},       {0xc0, 0xd6},       {0xd8, 0xf6},
    {0xf8, 0x1ba},      {0x1bc, 0x1bf},     {0x1c4, 0x293},     {0x295, 0x2af},     {0x370, 0x373},
    {0x376, 0x377},     {0x37b, 0x37d},     {0x37f, 0x37f},     {0x386, 0x386},     {0x388, 0x38a},
    {0x38c, 0x38c},     {0x38e, 0x3a1},     {0x3a3, 0x3f5},     {0x3f7, 0x481},     {0x48a, 0x52f},
    {0x531, 0x556},     {0x10a0, 0x10c5},   {0x13a0, 0x13f5},   {0x13f8, 0x13fd},   {0x1c90, 0x1cba},
    {0x1cbd, 0x1cbf},   {0x1d00, 0x1d2b},   {0x1d6b, 0x1d77},   {0x1d79, 0x1d9a},   {0x1e00, 0x1f15},
    {0x1f18, 0x1f1d},   {0x1f20, 0x1f45},   {0x1f48, 0x1f4d},   {0x1f50, 0x1f57},   {0x1f59, 0x1f59},
    {0x1f5b, 0x1f5b},   {0x1f5d, 0x1f5d},   {0x1f5f, 0x1f7d},   {0x1f80, 0x1fb4},   {0x1fb6, 0x1fbc},
    {0x1fbe, 0x1fbe},   {0x1fc2, 0x1fc4},   {0x1fc6, 0x1fcc},   {0x1fd0, 0x1fd3},   {0x1fd6, 0x1fdb},
    {0x1fe0, 0x1fec},   {0x1ff2, 0x1ff4},   {0x1ff6, 0x1ffc},   {0x2102, 0x2102},   {0x2107, 0x2107},
    {0x210a, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211d},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212a, 0x212d},   {0x212f, 0x2134},   {0x2139, 0x2139},   {0x213c, 0x213f},
    {0x2145, 0x2149},   {0x214e, 0x214e},   {0x2183, 0x2184},   {0x2c00, 0x2c7b},   {0x2c7e, 0x2ce4},
    {0x2ceb, 0x2cee},   {0x2cf2, 0x2cf3},   {0xa640, 0xa66d},   {0xa680, 0xa69b},   {0xa722, 0xa76f},
    {0xa771, 0xa787},   {0xa78b, 0xa78e},   {0xab70, 0xabbf},   {0xfb00, 0xfb06},   {0xfb13, 0xfb17},
    {0xff21, 0xff3a},   {0xff41, 0xff5a},   {0x10400, 0x1044f}, {0x104b0, 0x104d3}, {0x104d8, 0x104fb},
    {0x10c80, 0x10cb2}, {0x10cc0, 0x10cf2}, {0x118a0, 0x118df}, {0x1e900, 0x1e943},
};

bool is_cased_letter(char32_t code) {
  const auto* range = std::lower_bound(std::begin(kCasedLetters), std::end(kCasedLetters), code,
                                       [](const CodeRange& r, char32_t c) { return r.last < c; });
  return range != std::end(kCasedLetters) && range->first <= code;
}

// ASCII marks, with the letters that lie between them, and the wide forms of both; quotes; the ideographic comma and stop.
bool is_ascii_or_wide_mark(char32_t code) {
  return (code >= U'!' && code <= U'/') || (code >= U':' && code <= U'~') || (code >= 0xff01 && code <= 0xff0f) ||
         (code >= 0xff1a && code <= 0xff5e) || (code >= 0x2018 && code <= 0x201f) || code == 0x3001 || code == 0x3002;
}

bool is_east_asian(char32_t code) {
  return (code >= 0x800 && code <= 0x9fa5) || (code >= 0xac00 && code <= 0xd7ff);
}

}  // namespace

void cut_words(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_all(chars, stretch, cuts, word_end);
}

void cut_words_and_lines_1(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_all(chars, stretch, cuts, [](const Reader& r, std::uint32_t i) { return word_or_line_end(r, i, 1); });
}

void cut_words_and_lines_3(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_all(chars, stretch, cuts, [](const Reader& r, std::uint32_t i) { return word_or_line_end(r, i, 3); });
}

void cut_out_newlines(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out(chars, stretch, cuts, [](const Reader& r, std::uint32_t i) { return i + (r.line_end(i) ? 1 : 0); });
}

void cut_out_numbers(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out(chars, stretch, cuts, [](const Reader& r, std::uint32_t i) { return i + (r.number(i) ? 1 : 0); });
}

void cut_out_number_runs(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out_runs(chars, stretch, cuts, [&](std::uint32_t i) { return chars.kind[i] == CharClass::number; });
}

void cut_out_digit_triples(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out(chars, stretch, cuts, [&](const Reader& r, std::uint32_t i) {
    const std::uint32_t end =
        r.run(i, [&](std::uint32_t k) { return k - i < 3 && chars.code[k] >= U'0' && chars.code[k] <= U'9'; });
    return end - i == 3 ? end : i;
  });
}

void cut_out_punctuation_runs(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out_runs(chars, stretch, cuts, [&](std::uint32_t i) {
    return chars.kind[i] == CharClass::punctuation || is_one_of(chars.code[i], U"$+<=>^~|");
  });
}

void cut_out_punctuation_and_ticks(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out_runs(chars, stretch, cuts, [&](std::uint32_t i) {
    return chars.kind[i] == CharClass::punctuation || is_one_of(chars.code[i], U"$+<=>^~|`");
  });
}

void cut_out_spaced_letters(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out_spaced_runs(chars, stretch, cuts, [&](std::uint32_t i) { return chars.kind[i] == CharClass::letter; });
}

void cut_out_spaced_punctuation(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out_spaced_runs(chars, stretch, cuts, [&](std::uint32_t i) { return chars.kind[i] == CharClass::punctuation; });
}

void cut_out_final_space(const Chars& chars, Stretch stretch, Cuts& cuts) {
  std::uint32_t space = stretch.last;
  while (space > stretch.first && chars.kind[space - 1] == CharClass::space) --space;
  if (space > stretch.first) cuts.push_back(space);
  if (space < stretch.last) cuts.push_back(stretch.last);
}

void cut_out_cased_letters(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out_spaced_runs(chars, stretch, cuts, [&](std::uint32_t i) { return is_cased_letter(chars.code[i]); });
}

void cut_out_ascii_and_wide_marks(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out_spaced_runs(chars, stretch, cuts, [&](std::uint32_t i) { return is_ascii_or_wide_mark(chars.code[i]); });
}

void cut_out_east_asian(const Chars& chars, Stretch stretch, Cuts& cuts) {
  cut_out_runs(chars, stretch, cuts,
               [&](std::uint32_t i) { return is_east_asian(chars.code[i]) && chars.kind[i] != CharClass::space; });
}

}  // namespace conclave
