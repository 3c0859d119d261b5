// The merging that byte-level BPE and SentencePiece share: of all neighbours that make a token together, the best pair
// becomes one, until none is left. O(n log n) for n symbols: a priority queue over a linked list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "text/vocabulary.h"

namespace conclave {

inline constexpr std::uint32_t kNoMerge = std::numeric_limits<std::uint32_t>::max();

struct Merge {
  std::uint32_t order = kNoMerge;  // lower is merged first; of equals, the left-most
  TokenId result = -1;
};

struct MergeSymbol {
  TokenId id;           // -1: no token
  std::uint32_t begin;  // bytes of the text
  std::uint32_t size;   // 0: merged into the one before
  std::int32_t previous = -1;
  std::int32_t next = -1;
  Merge with_next;
};

// Keeps its memory from one word to the next.
class Merger {
 public:
  std::vector<MergeSymbol>& symbols() { return symbols_; }

  // Merges what symbols() holds, in the order it has there; what is left can be walked from the first by `next`.
  // `pair(left, right)` gives the Merge of two neighbours.
  template <class Pair>
  void run(Pair&& pair) {
    const auto count = static_cast<std::int32_t>(symbols_.size());
    sorted_.clear();
    heap_.clear();
    for (std::int32_t i = 0; i < count; ++i) {
      MergeSymbol& symbol = symbols_[i];
      symbol.previous = i - 1;
      symbol.next = i + 1 < count ? i + 1 : -1;
      symbol.with_next = i + 1 < count ? pair(symbol, symbols_[i + 1]) : Merge{};
      if (symbol.with_next.order != kNoMerge) sorted_.push_back(key(symbol.with_next, i));
    }
    std::sort(sorted_.begin(), sorted_.end());
    next_sorted_ = 0;
    while (const std::optional<std::uint64_t> best = take_best()) {
      const auto left = static_cast<std::int32_t>(*best & 0xFFFFFFFFU);
      // Out of date where either of the two has changed since. (An entry of the same order and place means the same.)
      if (symbols_[left].size == 0 || symbols_[left].with_next.order != *best >> 32) continue;
      join(left);
      refresh(left, pair);
      if (symbols_[left].previous >= 0) refresh(symbols_[left].previous, pair);
    }
  }

 private:
  static std::uint64_t key(const Merge& merge, std::int32_t left) {
    return std::uint64_t{merge.order} << 32 | static_cast<std::uint32_t>(left);
  }

  std::optional<std::uint64_t> take_best() {
    if (next_sorted_ == sorted_.size()) {
      if (heap_.empty()) return std::nullopt;
      std::swap(sorted_, heap_);
      heap_.clear();
      std::sort(sorted_.begin(), sorted_.end());
      next_sorted_ = 0;
    }
    if (heap_.empty() || sorted_[next_sorted_] < heap_.front()) return sorted_[next_sorted_++];
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const std::uint64_t best = heap_.back();
    heap_.pop_back();
    return best;
  }

  void join(std::int32_t left) {
    MergeSymbol& a = symbols_[left];
    MergeSymbol& b = symbols_[a.next];
    a.id = a.with_next.result;
    a.size += b.size;
    b.size = 0;
    a.next = b.next;
    if (a.next >= 0) symbols_[a.next].previous = left;
  }

  template <class Pair>
  void refresh(std::int32_t left, Pair& pair) {
    MergeSymbol& symbol = symbols_[left];
    symbol.with_next = symbol.next >= 0 ? pair(symbol, symbols_[symbol.next]) : Merge{};
    if (symbol.with_next.order == kNoMerge) return;
    heap_.push_back(key(symbol.with_next, left));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  std::vector<MergeSymbol> symbols_;
  // Pairs to try, by order and place. Most merges make pairs of a worse order than those that wait: these gather in the
  // heap, and are sorted when the sorted ones are used up, which is about twice as fast as taking them from a heap.
  std::vector<std::uint64_t> sorted_;
  std::size_t next_sorted_ = 0;
  std::vector<std::uint64_t> heap_;
};

}  // namespace conclave
