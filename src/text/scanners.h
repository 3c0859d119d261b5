// The steps that pre-tokenisers are made of. Each cuts a stretch of characters into pieces, in one pass: time is linear
// whatever the text holds. The regular expression that a step stands for is written beside it, with \s, \p{L}, ... by
// CharClass.
//
// A step sees nothing outside its stretch: look-ahead at its end finds no character.
#pragma once

#include <cstdint>
#include <vector>

#include "text/unicode.h"

namespace conclave {

struct Stretch {
  std::uint32_t first;
  std::uint32_t last;  // one past
};

// The end of each piece, ascending; the last one is the end of what was cut. Character indices.
using Cuts = std::vector<std::uint32_t>;

// Appends the cuts of `stretch`, which is not empty.
using Step = void (*)(const Chars& chars, Stretch stretch, Cuts& cuts);

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
void cut_words(const Chars& chars, Stretch stretch, Cuts& cuts);

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,K}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
void cut_words_and_lines_1(const Chars& chars, Stretch stretch, Cuts& cuts);  // K = 1
void cut_words_and_lines_3(const Chars& chars, Stretch stretch, Cuts& cuts);  // K = 3

// The rest find what they name and cut it out; what lies between is left whole.
void cut_out_newlines(const Chars& chars, Stretch stretch, Cuts& cuts);               // [\r\n]
void cut_out_numbers(const Chars& chars, Stretch stretch, Cuts& cuts);                // \p{N}
void cut_out_number_runs(const Chars& chars, Stretch stretch, Cuts& cuts);            // \p{N}+
void cut_out_digit_triples(const Chars& chars, Stretch stretch, Cuts& cuts);          // [0-9][0-9][0-9]
void cut_out_punctuation_runs(const Chars& chars, Stretch stretch, Cuts& cuts);       // [\p{P}$+<=>^~|]+
void cut_out_punctuation_and_ticks(const Chars& chars, Stretch stretch, Cuts& cuts);  // [\p{P}$+<=>^~|`]+
void cut_out_spaced_letters(const Chars& chars, Stretch stretch, Cuts& cuts);         // \s?\p{L}+
void cut_out_spaced_punctuation(const Chars& chars, Stretch stretch, Cuts& cuts);     // \s?\p{P}+
void cut_out_final_space(const Chars& chars, Stretch stretch, Cuts& cuts);            // \s+$

// Of the DeepSeek vocabularies. Their sets are lists of code points, from which white space is taken out.
void cut_out_cased_letters(const Chars& chars, Stretch stretch, Cuts& cuts);  // \s?[letters of scripts that have case]+
void cut_out_ascii_and_wide_marks(const Chars& chars, Stretch stretch,
                                  Cuts& cuts);                             // \s?[!-/:-~ and their wide forms]+
void cut_out_east_asian(const Chars& chars, Stretch stretch, Cuts& cuts);  // [U+0800 to U+9FA5 and U+AC00 to U+D7FF]+

}  // namespace conclave
