// The ring of a HostStage: what is taken is in one piece, and nobody else's until it is released.
#include "backends/cuda/host_stage.h"

#include <gtest/gtest.h>

#include <deque>

#include "support/rng.h"

namespace conclave::cuda {
namespace {

struct Taken {
  std::size_t begin;
  std::size_t end;
  std::uint64_t until;
};

TEST(HostStage, PiecesThatAreInUseNeverOverlap) {
  HostStage::Ring ring{.size = 1024};
  test::Rng rng(7);
  std::deque<Taken> in_use;
  int full = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto bytes = static_cast<std::size_t>(rng.integer(1, rng.integer(0, 9) == 0 ? 1024 : 300));
    if (!ring.has_room(bytes)) {
      ++full;
      if (in_use.empty() || rng.integer(0, 3) == 0) {
        ring.release_all();
        in_use.clear();
        ASSERT_TRUE(ring.has_room(ring.size));
      } else {
        ring.release(in_use.front().until);
        in_use.pop_front();
      }
      continue;
    }
    const std::size_t begin = ring.take(bytes);
    ASSERT_LE(begin + bytes, ring.size);
    ASSERT_EQ(begin % HostStage::Ring::kAlignment, 0U);
    for (const Taken& other : in_use) ASSERT_TRUE(begin + bytes <= other.begin || other.end <= begin);
    in_use.push_back({begin, begin + bytes, ring.taken});
  }
  EXPECT_GT(full, 1000);
}

TEST(HostStage, ReleasingWhatWasReleasedLongAgoChangesNothing) {
  HostStage::Ring ring{.size = 256};
  ring.take(200);
  const std::uint64_t then = ring.taken;
  ring.release_all();
  ring.take(200);
  ring.release(then);
  EXPECT_FALSE(ring.has_room(100));
}

}  // namespace
}  // namespace conclave::cuda
