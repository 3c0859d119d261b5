#include "model/page_book.h"

#include <algorithm>

#include "base/fail.h"

namespace conclave {

PageBook::PageBook(const Shape& shape)
    : shape_(shape),
      lengths_(static_cast<std::size_t>(shape.n_seqs), -1),
      table_(static_cast<std::size_t>(shape.n_pages()), -1),
      users_(static_cast<std::size_t>(shape.n_pages()), 0) {
  free_.reserve(users_.size());
  for (std::int64_t page = shape.n_pages() - 1; page >= 0; --page) free_.push_back(static_cast<std::int32_t>(page));
}

void PageBook::require(std::int32_t seq) const {
  if (seq >= 0 && seq < shape_.n_seqs && lengths_[static_cast<std::size_t>(seq)] >= 0) return;
  fail(ErrorCode::invalid_argument, "sequence {} does not exist", seq);
}

std::int32_t PageBook::unused_seq() const {
  const auto found = std::find(lengths_.begin(), lengths_.end(), -1);
  if (found == lengths_.end()) {
    fail(ErrorCode::invalid_argument, "no more than {} sequences can exist at a time", shape_.n_seqs);
  }
  return static_cast<std::int32_t>(found - lengths_.begin());
}

std::int32_t PageBook::take() {
  CONCLAVE_CHECK(!free_.empty(), "a sequence within its context always finds a page");
  const std::int32_t page = free_.back();
  free_.pop_back();
  users_[static_cast<std::size_t>(page)] = 1;
  return page;
}

void PageBook::release(std::int32_t page) {
  if (--users_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

std::int32_t PageBook::create() {
  const std::int32_t seq = unused_seq();
  lengths_[static_cast<std::size_t>(seq)] = 0;
  return seq;
}

std::int32_t PageBook::fork(std::int32_t seq) {
  require(seq);
  const std::int32_t other = unused_seq();
  const std::int64_t length = lengths_[static_cast<std::size_t>(seq)];
  lengths_[static_cast<std::size_t>(other)] = length;
  for (std::int64_t i = 0; i < pages_for(length); ++i) {
    const std::int32_t page = row(seq)[i];
    row(other)[i] = page;
    ++users_[static_cast<std::size_t>(page)];
  }
  return other;
}

void PageBook::drop(std::int32_t seq) {
  cut(seq, 0);
  lengths_[static_cast<std::size_t>(seq)] = -1;
}

void PageBook::cut(std::int32_t seq, std::int64_t n_tokens) {
  require(seq);
  std::int64_t& length = lengths_[static_cast<std::size_t>(seq)];
  if (n_tokens < 0 || n_tokens > length) {
    fail(ErrorCode::invalid_argument, "sequence {} has {} tokens and cannot be cut to {}", seq, length, n_tokens);
  }
  for (std::int64_t i = pages_for(n_tokens); i < shape_.max_pages && row(seq)[i] >= 0; ++i) {
    release(row(seq)[i]);
    row(seq)[i] = -1;
  }
  length = n_tokens;
}

std::int64_t PageBook::length(std::int32_t seq) const {
  require(seq);
  return lengths_[static_cast<std::size_t>(seq)];
}

std::optional<PageBook::PageCopy> PageBook::make_room(std::int32_t seq, std::int64_t count) {
  require(seq);
  const std::int64_t length = lengths_[static_cast<std::size_t>(seq)];
  CONCLAVE_CHECK(count >= 0 && pages_for(length + count) <= shape_.max_pages, "room beyond the context");
  std::int32_t* pages = row(seq);
  std::optional<PageCopy> copy;
  const std::int64_t n_slots = length % shape_.page_size;
  if (count > 0 && n_slots > 0) {
    std::int32_t& last = pages[length / shape_.page_size];
    if (users_[static_cast<std::size_t>(last)] > 1) {
      copy = PageCopy{.from = last, .to = take(), .n_slots = n_slots};
      release(last);
      last = copy->to;
    }
  }
  for (std::int64_t i = pages_for(length); i < pages_for(length + count); ++i) {
    if (pages[i] < 0) pages[i] = take();
  }
  return copy;
}

void PageBook::advance(std::int32_t seq, std::int64_t count) {
  require(seq);
  lengths_[static_cast<std::size_t>(seq)] += count;
}

}  // namespace conclave
