// Tokens that are found in a text as they are written, before anything else is done with it: user-defined ones always,
// control tokens only where the text is trusted to mean them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace conclave {

// No vocabulary has special tokens of such a length; it bounds the time per character.
inline constexpr std::size_t kMaxSpecialBytes = 4096;

// Bytes first to last (one past) of a text.
struct TextRange {
  std::size_t first;
  std::size_t last;
};

struct SpecialMatch {
  std::size_t position;
  TokenId id;
};

class SpecialTokens {
 public:
  SpecialTokens() = default;
  // Keeps a view of `vocabulary`, which must outlive this and stay where it is. Throws Error(bad_file) for a special
  // token longer than kMaxSpecialBytes.
  explicit SpecialTokens(const Vocabulary& vocabulary);

  // What is found in `text`, ascending, not overlapping. Longer tokens go first, wherever they are; of one length the
  // lower id, then the left-most. Control and unknown tokens are found only inside one of `trusted` (ascending, not
  // touching one another).
  std::vector<SpecialMatch> find(std::string_view text, std::span<const TextRange> trusted) const;

 private:
  // A trie whose children lie side by side: a node's are first_child to the next node's first_child.
  struct Node {
    std::uint32_t first_child = 0;
    std::int32_t rank = -1;          // of the token that ends here, an index into by_rank_
    std::int32_t shorter_rank = -1;  // of the longest token that ends above
    unsigned char label = 0;
  };
  struct Ranked {
    TokenId id;
    std::uint32_t size;
    bool needs_trust;
    std::int32_t shorter_rank;
  };

  std::int32_t longest_at(std::string_view text, std::size_t position) const;

  std::vector<Node> nodes_;  // breadth first, the root at 0; one more at the end for first_child
  std::vector<Ranked> by_rank_;
};

}  // namespace conclave
