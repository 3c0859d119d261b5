#include "model/page_book.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/error.h"
#include "support/rng.h"

namespace conclave {
namespace {

using Pages = std::vector<std::int32_t>;

Pages pages_of(const PageBook& book, std::int32_t seq, std::int64_t max_pages) {
  const auto row = book.table().subspan(static_cast<std::size_t>(seq * max_pages), static_cast<std::size_t>(max_pages));
  return {row.begin(), row.end()};
}

TEST(PageBook, GivesAPageForEveryRunOfPositions) {
  PageBook book({.n_seqs = 2, .max_pages = 3, .page_size = 4});
  const std::int32_t a = book.create();
  EXPECT_EQ(book.length(a), 0);
  EXPECT_FALSE(book.make_room(a, 5));
  EXPECT_EQ(book.length(a), 0);
  book.advance(a, 5);
  EXPECT_EQ(book.length(a), 5);
  EXPECT_EQ(pages_of(book, a, 3), (Pages{0, 1, -1}));
  book.make_room(a, 3);
  EXPECT_EQ(book.free_pages(), 4);
  book.make_room(a, 4);
  EXPECT_EQ(pages_of(book, a, 3), (Pages{0, 1, 2}));
  book.cut(a, 4);
  EXPECT_EQ(pages_of(book, a, 3), (Pages{0, -1, -1}));
  book.drop(a);
  EXPECT_EQ(book.free_pages(), 6);
}

TEST(PageBook, AForkSharesPagesUntilItWritesIntoOne) {
  PageBook book({.n_seqs = 3, .max_pages = 3, .page_size = 4});
  const std::int32_t a = book.create();
  book.make_room(a, 6);
  book.advance(a, 6);
  const std::int32_t b = book.fork(a);
  EXPECT_EQ(pages_of(book, b, 3), (Pages{0, 1, -1}));
  EXPECT_EQ(book.free_pages(), 7);
  const auto copy = book.make_room(b, 1);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->from, 1);
  EXPECT_EQ(copy->to, 2);
  EXPECT_EQ(copy->n_slots, 2);
  EXPECT_EQ(pages_of(book, b, 3), (Pages{0, 2, -1}));
  EXPECT_FALSE(book.make_room(b, 1));  // it is its own now
  EXPECT_FALSE(book.make_room(a, 1));  // and so is the other
}

TEST(PageBook, AFullPageThatIsSharedIsCopiedOnceASequenceIsCutIntoIt) {
  PageBook book({.n_seqs = 2, .max_pages = 2, .page_size = 4});
  const std::int32_t a = book.create();
  book.make_room(a, 4);
  book.advance(a, 4);
  const std::int32_t b = book.fork(a);
  EXPECT_FALSE(book.make_room(b, 1));  // a page of its own follows the full one
  book.cut(b, 3);
  const auto copy = book.make_room(b, 1);
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->from, 0);
  EXPECT_EQ(copy->n_slots, 3);
}

TEST(PageBook, RefusesSequencesThatAreNotThere) {
  PageBook book({.n_seqs = 1, .max_pages = 1, .page_size = 4});
  EXPECT_THROW(book.length(0), Error);
  EXPECT_THROW(book.fork(-1), Error);
  const std::int32_t a = book.create();
  EXPECT_THROW(book.create(), Error);
  EXPECT_THROW(book.fork(a), Error);
  EXPECT_THROW(book.cut(a, 1), Error);
  EXPECT_THROW(book.drop(1), Error);
}

// Every position remembers who wrote it; sharing must never show.
TEST(PageBook, RandomUseNeverMixesSequences) {
  constexpr PageBook::Shape kShape{.n_seqs = 4, .max_pages = 5, .page_size = 3};
  PageBook book(kShape);
  std::vector<std::vector<int>> memory(static_cast<std::size_t>(kShape.n_pages()), std::vector<int>(3, -1));
  std::map<std::int32_t, std::vector<int>> sequences;
  const auto slot = [&](std::int32_t seq, std::size_t position) -> int& {
    const std::int32_t page = book.table()[static_cast<std::size_t>(seq) * 5 + position / 3];
    return memory.at(static_cast<std::size_t>(page))[position % 3];
  };
  test::Rng rng(11);
  int stamp = 0;
  for (int turn = 0; turn < 4000; ++turn) {
    const auto seq = static_cast<std::int32_t>(rng.integer(0, 3));
    const bool exists = sequences.contains(seq);
    switch (rng.integer(0, 5)) {
      case 0:
        if (sequences.size() < 4) sequences[book.create()] = {};
        break;
      case 1:
        if (exists && sequences.size() < 4) sequences[book.fork(seq)] = sequences.at(seq);
        break;
      case 2:
        if (exists && rng.chance(0.3)) {
          book.drop(seq);
          sequences.erase(seq);
        }
        break;
      case 3:
        if (exists) {
          const std::int64_t n = rng.integer(0, book.length(seq));
          book.cut(seq, n);
          sequences[seq].resize(static_cast<std::size_t>(n));
        }
        break;
      default:
        if (exists) {
          const std::int64_t n = rng.integer(0, 15 - book.length(seq));
          if (const auto copy = book.make_room(seq, n)) {
            for (std::int64_t i = 0; i < copy->n_slots; ++i) {
              memory[static_cast<std::size_t>(copy->to)][static_cast<std::size_t>(i)] =
                  memory[static_cast<std::size_t>(copy->from)][static_cast<std::size_t>(i)];
            }
          }
          for (std::int64_t i = 0; i < n; ++i) {
            sequences[seq].push_back(++stamp);
            slot(seq, sequences[seq].size() - 1) = stamp;
          }
          book.advance(seq, n);
        }
    }
    for (const auto& [id, stamps] : sequences) {
      ASSERT_EQ(book.length(id), static_cast<std::int64_t>(stamps.size()));
      for (std::size_t i = 0; i < stamps.size(); ++i) ASSERT_EQ(slot(id, i), stamps[i]) << turn;
    }
  }
  for (const auto& [id, stamps] : sequences) book.drop(id);
  EXPECT_EQ(book.free_pages(), kShape.n_pages());
}

}  // namespace
}  // namespace conclave
