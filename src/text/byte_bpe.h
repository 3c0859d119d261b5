// Byte-level BPE: text is cut into words by a pre-tokeniser; within a word, bytes are merged by rank.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/merge.h"
#include "text/pre_tokenizer.h"
#include "text/token_index.h"
#include "text/vocabulary.h"

namespace conclave {

// Two token ids to the Merge they make; open addressing, since it is asked for every pair of neighbours.
class MergeTable {
 public:
  void reserve(std::size_t count);                        // before the first insert
  void insert(TokenId left, TokenId right, Merge merge);  // the first of equal pairs stays
  Merge find(TokenId left, TokenId right) const;

 private:
  struct Entry {
    std::uint64_t key;
    Merge merge;  // order kNoMerge: free
  };
  std::size_t slot(std::uint64_t key) const;

  std::vector<Entry> entries_;
};

class ByteBpe {
 public:
  // Throws Error(bad_file) for a pre-tokeniser that is not known and for a merge that is not of two tokens into one.
  ByteBpe(const Vocabulary& vocabulary, const TokenIndex& index);

  // Appends the ids of `text`. A byte for which there is no token becomes none; one that is not part of valid UTF-8
  // becomes U+FFFD then.
  void encode(std::string_view text, std::vector<TokenId>& ids) const;

  bool has_token(unsigned char byte) const { return byte_token_[byte] >= 0; }

 private:
  void read_merges(const Vocabulary& vocabulary, const TokenIndex& index);
  void read_whole_words(const Vocabulary& vocabulary);
  void encode_word(std::string_view word, Merger& merger, std::vector<TokenId>& ids) const;
  void split(std::string_view word, std::vector<MergeSymbol>& symbols) const;

  const PreTokenizer* pre_;
  std::array<TokenId, 256> byte_token_;
  std::array<bool, 256> stands_for_text_;  // that token is user-defined: it means its text, not the byte
  MergeTable merges_;
  std::unordered_map<std::string, TokenId> whole_words_;  // by bytes; only where the pre-tokeniser asks for it
  std::size_t longest_word_ = 0;                          // of whole_words_, in bytes
};

}  // namespace conclave
