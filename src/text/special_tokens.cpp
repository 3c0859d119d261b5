#include "text/special_tokens.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {
namespace {

bool is_special(TokenType type) {
  return type == TokenType::control || type == TokenType::unknown || type == TokenType::user_defined;
}

bool inside_one(std::span<const TextRange> ranges, std::size_t first, std::size_t last) {
  const auto range = std::upper_bound(ranges.begin(), ranges.end(), first,
                                      [](std::size_t position, const TextRange& r) { return position < r.last; });
  return range != ranges.end() && range->first <= first && last <= range->last;
}

}  // namespace

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) {
  for (std::size_t i = 0; i < vocabulary.types.size(); ++i) {
    const std::string& token = vocabulary.tokens[i];
    if (!is_special(vocabulary.types[i]) || token.empty()) continue;
    if (token.size() > kMaxSpecialBytes) {
      fail(ErrorCode::bad_file, "special token {} is '{}', {} bytes long, at most {} are supported", i,
           printable(token), token.size(), kMaxSpecialBytes);
    }
    by_rank_.push_back({.id = static_cast<TokenId>(i),
                        .size = static_cast<std::uint32_t>(token.size()),
                        .needs_trust = vocabulary.types[i] != TokenType::user_defined,
                        .shorter_rank = -1});
  }
  std::stable_sort(by_rank_.begin(), by_rank_.end(), [](const Ranked& a, const Ranked& b) { return a.size > b.size; });

  // Breadth first over the tokens in alphabetical order: a node is a run of tokens with the same beginning.
  std::vector<std::int32_t> sorted(by_rank_.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  const auto text_of = [&](std::int32_t rank) -> const std::string& { return vocabulary.tokens[by_rank_[rank].id]; };
  std::sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) { return text_of(a) < text_of(b); });
  struct Run {
    std::size_t first;
    std::size_t last;
    std::size_t depth;
  };
  std::vector<Run> runs{{0, sorted.size(), 0}};
  nodes_.emplace_back();
  for (std::size_t node = 0; node < runs.size(); ++node) {
    Run run = runs[node];
    nodes_[node].first_child = static_cast<std::uint32_t>(nodes_.size());
    if (run.first < run.last && text_of(sorted[run.first]).size() == run.depth) {
      nodes_[node].rank = sorted[run.first++];
      by_rank_[nodes_[node].rank].shorter_rank = nodes_[node].shorter_rank;
    }
    const std::int32_t above = nodes_[node].rank >= 0 ? nodes_[node].rank : nodes_[node].shorter_rank;
    while (run.first < run.last) {
      const char label = text_of(sorted[run.first])[run.depth];
      std::size_t end = run.first;
      while (end < run.last && text_of(sorted[end])[run.depth] == label) ++end;
      runs.push_back({run.first, end, run.depth + 1});
      nodes_.push_back({.shorter_rank = above, .label = static_cast<unsigned char>(label)});
      run.first = end;
    }
  }
  nodes_.push_back({.first_child = static_cast<std::uint32_t>(nodes_.size())});
}

// The rank of the longest token that `text` has at `position`, or -1.
std::int32_t SpecialTokens::longest_at(std::string_view text, std::size_t position) const {
  std::uint32_t node = 0;
  for (; position < text.size(); ++position) {
    const auto label = static_cast<unsigned char>(text[position]);
    const Node* first = nodes_.data() + nodes_[node].first_child;
    const Node* last = nodes_.data() + nodes_[node + 1].first_child;
    const Node* child =
        last - first == 1
            ? first
            : std::lower_bound(first, last, label, [](const Node& n, unsigned char c) { return n.label < c; });
    if (child == last || child->label != label) break;
    node = static_cast<std::uint32_t>(child - nodes_.data());
  }
  return nodes_[node].rank >= 0 ? nodes_[node].rank : nodes_[node].shorter_rank;
}

std::vector<SpecialMatch> SpecialTokens::find(std::string_view text, std::span<const TextRange> trusted) const {
  std::vector<SpecialMatch> matches;
  if (by_rank_.empty()) return matches;

  // Candidates are tried by rank, then place. Where the token does not fit, the next shorter one of that place waits for
  // its own turn.
  const auto key = [](std::int32_t rank, std::size_t position) {
    return std::uint64_t{static_cast<std::uint32_t>(rank)} << 32 | static_cast<std::uint32_t>(position);
  };
  std::vector<std::uint64_t> candidates;
  for (std::size_t position = 0; position < text.size(); ++position) {
    const std::int32_t rank = longest_at(text, position);
    if (rank >= 0) candidates.push_back(key(rank, position));
  }
  if (candidates.empty()) return matches;
  std::sort(candidates.begin(), candidates.end());
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> later;

  std::vector<bool> taken(text.size());
  const auto fits = [&](std::int32_t rank, std::size_t position) {
    const Ranked& token = by_rank_[rank];
    // What is placed already is as long or longer: where it overlaps, it covers the first byte or the last.
    if (taken[position] || taken[position + token.size - 1]) return false;
    return !token.needs_trust || inside_one(trusted, position, position + token.size);
  };
  for (auto next = candidates.begin(); next != candidates.end() || !later.empty();) {
    const bool from_later = next == candidates.end() || (!later.empty() && later.top() < *next);
    const std::uint64_t best = from_later ? later.top() : *next;
    if (from_later) {
      later.pop();
    } else {
      ++next;
    }
    auto rank = static_cast<std::int32_t>(best >> 32);
    const std::size_t position = best & 0xFFFFFFFFU;
    if (fits(rank, position)) {
      std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(position), by_rank_[rank].size, true);
      matches.push_back({position, by_rank_[rank].id});
      continue;
    }
    if (taken[position]) continue;
    while (rank >= 0 && !fits(rank, position)) rank = by_rank_[rank].shorter_rank;
    if (rank >= 0) later.push(key(rank, position));
  }
  std::sort(matches.begin(), matches.end(),
            [](const SpecialMatch& a, const SpecialMatch& b) { return a.position < b.position; });
  return matches;
}

}  // namespace conclave
