// PageBook: which pages of the key-value cache belong to which sequence. Bookkeeping only: it holds no keys and values.
//
// A page has room for page_size positions. Sequences share pages after a fork; whoever wants to write into a page that
// another one uses too gets a copy first. There are as many pages as all sequences together can ever need, so that a
// sequence within its context never waits for one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace conclave {

class PageBook {
 public:
  struct Shape {
    std::int64_t n_seqs = 1;
    std::int64_t max_pages = 1;  // of a sequence
    std::int64_t page_size = 1;

    std::int64_t n_pages() const { return n_seqs * max_pages; }
  };
  // The first `n_slots` positions of one page are to be copied to another before anything is written.
  struct PageCopy {
    std::int32_t from;
    std::int32_t to;
    std::int64_t n_slots;
  };

  explicit PageBook(const Shape& shape);

  // Sequences are numbered 0 .. n_seqs-1. All throw Error(invalid_argument) for one that does not exist.
  std::int32_t create();
  std::int32_t fork(std::int32_t seq);
  void drop(std::int32_t seq);
  void cut(std::int32_t seq, std::int64_t n_tokens);  // at most its length
  std::int64_t length(std::int32_t seq) const;

  // Gives the next `count` positions of a sequence a place of its own. Its length stays until advance().
  std::optional<PageCopy> make_room(std::int32_t seq, std::int64_t count);
  void advance(std::int32_t seq, std::int64_t count);

  // [n_seqs, max_pages]: page of each run of positions, -1 where there is none.
  std::span<const std::int32_t> table() const { return table_; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

 private:
  std::int32_t* row(std::int32_t seq) { return &table_[static_cast<std::size_t>(seq * shape_.max_pages)]; }
  std::int64_t pages_for(std::int64_t n_tokens) const { return (n_tokens + shape_.page_size - 1) / shape_.page_size; }
  void require(std::int32_t seq) const;
  std::int32_t unused_seq() const;
  std::int32_t take();
  void release(std::int32_t page);

  Shape shape_;
  std::vector<std::int64_t> lengths_;  // [n_seqs], -1 where there is no such sequence
  std::vector<std::int32_t> table_;
  std::vector<std::int32_t> users_;  // [n_pages]
  std::vector<std::int32_t> free_;   // taken from the back
};

}  // namespace conclave
