#include "base/thread_pool.h"

#include <gtest/gtest.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <numeric>
#include <set>
#include <string>

#include "base/cpu.h"
#include "base/error.h"

namespace conclave {
namespace {

class ThreadPoolOfSize : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolOfSize, testing::Values(1, 2, 3, 7),
                         [](const auto& size) { return std::to_string(size.param); });

TEST_P(ThreadPoolOfSize, RunsTheBodyOnceOnEveryRankAndRankZeroOnTheCaller) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  std::vector<std::thread::id> ids(static_cast<std::size_t>(pool.size()));
  std::vector<int> calls(ids.size());
  for (int run = 0; run < 3; ++run) {
    pool.run([&](int rank) {
      ids[static_cast<std::size_t>(rank)] = std::this_thread::get_id();
      ++calls[static_cast<std::size_t>(rank)];
    });
  }
  EXPECT_EQ(calls, std::vector<int>(ids.size(), 3));
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(ids.begin(), ids.end()).size(), ids.size());
}

TEST_P(ThreadPoolOfSize, TakesBodiesOfEveryKind) {
  ThreadPool pool(GetParam());
  static std::atomic<int> calls;
  calls = 0;
  const auto constant = [](int) { ++calls; };
  auto counting = [own = std::atomic<int>(0)](int) mutable { calls += ++own > 0 ? 1 : 0; };
  pool.run(constant);
  pool.run(counting);
  pool.run(+constant);
  pool.run(*+constant);
  EXPECT_EQ(calls, 4 * pool.size());
}

TEST_P(ThreadPoolOfSize, ForEachVisitsEachItemOnce) {
  ThreadPool pool(GetParam());
  for (const std::int64_t n : {-3, 0, 1, 2, 3, 6, 7, 8, 100, 1000}) {
    std::vector<int> visits(static_cast<std::size_t>(std::max<std::int64_t>(n, 0)));
    pool.run([&](int rank) {
      const Region region(pool, rank);
      ASSERT_EQ(region.rank(), rank);
      ASSERT_EQ(region.size(), pool.size());
      for (int call = 0; call < 5; ++call) {  // the barrier in between makes the plain ints safe
        region.for_each(n, [&](std::int64_t i) { ++visits[static_cast<std::size_t>(i)]; });
      }
    });
    EXPECT_EQ(visits, std::vector<int>(visits.size(), 5)) << n << " items";
  }
}

TEST_P(ThreadPoolOfSize, ForEachChunkedCoversTheItemsWithoutOverlap) {
  ThreadPool pool(GetParam());
  struct Shape {
    std::int64_t n, grain;
  };
  for (const auto& [n, grain] : {Shape{100, 7}, {100, 10}, {5, 100}, {100, 1}, {7, 0}, {0, 4}, {-1, 4}}) {
    std::vector<int> visits(static_cast<std::size_t>(std::max<std::int64_t>(n, 0)));
    std::atomic<int> bad = 0;
    pool.run([&, n = n, grain = grain](int rank) {
      Region(pool, rank).for_each_chunked(n, grain, [&](std::int64_t begin, std::int64_t end) {
        const bool whole = end - begin == std::max<std::int64_t>(grain, 1) || end == n;
        if (begin >= end || end > n || !whole) ++bad;
        for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
      });
    });
    EXPECT_EQ(visits, std::vector<int>(visits.size(), 1)) << n << " items by " << grain;
    EXPECT_EQ(bad, 0) << n << " items by " << grain;
  }
}

TEST_P(ThreadPoolOfSize, SingleItemIsRankZeros) {
  ThreadPool pool(GetParam());
  pool.run([&](int rank) {
    for (int call = 0; call < 20; ++call) {
      Region(pool, rank).for_each(1, [&](std::int64_t) { EXPECT_EQ(rank, 0); });
    }
  });
}

TEST_P(ThreadPoolOfSize, BarriersOrderPhases) {
  ThreadPool pool(GetParam());
  const auto n = static_cast<std::size_t>(pool.size());
  constexpr int kPhases = 500;
  std::vector<int> values(n);  // not atomic: the barrier is what makes it visible
  std::vector<int> wrong(n);
  pool.run([&](int rank) {
    const auto self = static_cast<std::size_t>(rank);
    for (int phase = 1; phase <= kPhases; ++phase) {
      values[self] = phase;
      pool.barrier();
      for (const int value : values) wrong[self] += value != phase;
      pool.barrier();
    }
  });
  EXPECT_EQ(wrong, std::vector<int>(n));
}

TEST_P(ThreadPoolOfSize, EachForEachSeesTheOneBefore) {
  ThreadPool pool(GetParam());
  constexpr std::int64_t kItems = 33;
  constexpr int kCalls = 400;
  std::vector<int> from(kItems);
  std::vector<int> to(kItems);
  std::iota(from.begin(), from.end(), 0);
  const std::vector<int> initial = from;
  pool.run([&](int rank) {
    for (int call = 0; call < kCalls; ++call) {  // a Region may be made anew for each call
      const Region region(pool, rank);
      region.for_each(kItems, [&](std::int64_t i) { to[static_cast<std::size_t>(i)] = from[(i + 1) % kItems]; });
      region.for_each_chunked(kItems, 4, [&](std::int64_t begin, std::int64_t end) {
        std::copy(to.begin() + begin, to.begin() + end, from.begin() + begin);
      });
    }
  });
  for (std::int64_t i = 0; i < kItems; ++i) {
    EXPECT_EQ(from[static_cast<std::size_t>(i)], initial[static_cast<std::size_t>((i + kCalls) % kItems)]);
  }
}

TEST_P(ThreadPoolOfSize, ThousandsOfRunsFollowEachOther) {
  ThreadPool pool(GetParam());
  constexpr int kRuns = 3000;
  std::atomic<std::int64_t> sum = 0;
  for (int run = 0; run < kRuns; ++run) {
    const std::int64_t n = run % 20;
    pool.run([&](int rank) {
      const Region region(pool, rank);
      for (int call = 0; call < run % 4; ++call) {
        region.for_each(n, [&](std::int64_t i) { sum.fetch_add(i + 1, std::memory_order_relaxed); });
      }
    });
  }
  std::int64_t expected = 0;
  for (int run = 0; run < kRuns; ++run) expected += (run % 4) * (run % 20) * (run % 20 + 1) / 2;
  EXPECT_EQ(sum, expected);
}

TEST_P(ThreadPoolOfSize, SleepingWorkersWake) {
  ThreadPool pool(GetParam());
  std::atomic<int> calls = 0;
  for (int run = 0; run < 20; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(run % 3));
    pool.run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls, 20 * pool.size());
}

TEST_P(ThreadPoolOfSize, IdlePoolTakesNoCpuTime) {
  ThreadPool pool(GetParam());
  pool.run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::clock_t before = std::clock();  // of the whole process
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
}

TEST_P(ThreadPoolOfSize, RunsFromTwoThreadsAreServedOneAfterTheOther) {
  ThreadPool pool(GetParam());
  constexpr int kRuns = 300;
  std::int64_t plain = 0;  // would be a race if two runs overlapped
  std::atomic<int> inside = 0;
  std::atomic<int> overlaps = 0;
  const auto caller = [&] {
    for (int run = 0; run < kRuns; ++run) {
      pool.run([&](int rank) {
        const Region region(pool, rank);
        region.for_each(1, [&](std::int64_t) { overlaps += inside++ != 0; });
        region.for_each(10, [](std::int64_t) {});
        region.for_each(1, [&](std::int64_t) {
          ++plain;
          --inside;
        });
      });
    }
  };
  std::thread other(caller);
  caller();
  other.join();
  EXPECT_EQ(plain, 2 * kRuns);
  EXPECT_EQ(overlaps, 0);
}

TEST_P(ThreadPoolOfSize, StartsAndEndsWithoutWork) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(GetParam());
    if (i % 2 == 0) pool.run([](int) {});
  }
}

TEST(ThreadPool, RefusesSizesThatCannotBe) {
  for (const int threads : {0, -1, ThreadPool::kMaxThreads + 1}) {
    try {
      ThreadPool pool(threads);
      ADD_FAILURE() << threads;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    }
  }
}

TEST(ThreadPoolDeathTest, BodyThatThrowsEndsTheProgram) {
  EXPECT_DEATH(
      {
        ThreadPool pool(1);
        pool.run([](int) { throw Error(ErrorCode::io, "out of a body"); });
      },
      "");
}

#if defined(__linux__)
TEST(ThreadPool, PinsEachWorkerToACpuOfItsOwnAndLeavesTheCallerAlone) {
  const std::vector<int> before = allowed_cpus();
  const int size = std::min(static_cast<int>(before.size()), 8);
  ThreadPool pool(size);
  std::vector<std::vector<int>> masks(static_cast<std::size_t>(size));
  pool.run([&](int rank) { masks[static_cast<std::size_t>(rank)] = allowed_cpus(); });
  EXPECT_EQ(masks[0], before);
  EXPECT_EQ(allowed_cpus(), before);
  const std::vector<int> order = cpus_by_core();
  for (std::size_t rank = 1; rank < masks.size(); ++rank) EXPECT_EQ(masks[rank], std::vector<int>{order[rank]});

  // From a thread that may only use a worker's CPU, and from one that stands on it but may use others.
  for (const bool confined : {true, false}) {
    std::thread([&] {
      const auto on_last = static_cast<std::size_t>(order[masks.size() - 1]);
      cpu_set_t mask;
      CPU_ZERO(&mask);
      CPU_SET(on_last, &mask);
      ASSERT_EQ(::sched_setaffinity(0, sizeof(mask), &mask), 0);
      for (const int cpu : before) CPU_SET(static_cast<std::size_t>(cpu), &mask);
      ASSERT_TRUE(confined || ::sched_setaffinity(0, sizeof(mask), &mask) == 0);
      const std::vector<int> own = allowed_cpus();
      pool.run([&](int rank) { masks[static_cast<std::size_t>(rank)] = allowed_cpus(); });
      EXPECT_EQ(masks[0], own);
      EXPECT_EQ(allowed_cpus(), own);
    }).join();
  }
}

TEST(ThreadPool, PinsNothingWithMoreThreadsThanCpus) {
  const std::vector<int> before = allowed_cpus();
  const int size = static_cast<int>(before.size()) + 1;
  if (size > 64) GTEST_SKIP() << before.size() << " CPUs";
  ThreadPool pool(size);
  std::vector<std::vector<int>> masks(static_cast<std::size_t>(size));
  pool.run([&](int rank) { masks[static_cast<std::size_t>(rank)] = allowed_cpus(); });
  EXPECT_EQ(masks, std::vector<std::vector<int>>(masks.size(), before));
}
#endif

#if defined(__linux__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
// The sanitizers' own start of a thread ends the program where it fails.
TEST(ThreadPoolDeathTest, ThreadThatCannotBeStartedIsAnErrorAndLeavesNothing) {
  const auto child = [] {
    rlimit limit{};
    // The limit counts a user's threads and does not bind root: so as a user that has no others.
    if (::getuid() == 0 && ::setuid(54321) != 0) ::_exit(0);
    if (::getrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(0);
    const rlimit four{.rlim_cur = std::min<rlim_t>(4, limit.rlim_max), .rlim_max = limit.rlim_max};
    if (::setrlimit(RLIMIT_NPROC, &four) != 0) ::_exit(0);
    try {
      ThreadPool pool(31);
      ::_exit(1);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::io) ::_exit(2);
      std::fprintf(stderr, "%s\n", error.what());
    }
    if (::setrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(3);
    std::atomic<int> calls = 0;
    ThreadPool(3).run([&](int) { ++calls; });
    ::_exit(calls == 3 ? 0 : 4);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace conclave
