// Threads that work on one thing at a time: run() starts a body on all of them at once, and inside it barriers divide
// the work into phases.
//
//   pool.run([&](int rank) {
//     Region region(pool, rank);
//     region.for_each(n_rows, [&](std::int64_t row) { quantize(row); });
//     region.for_each(n_tiles, [&](std::int64_t tile) { multiply(tile); });  // sees all rows
//   });
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace conclave {

class ThreadPool {
 public:
  static constexpr int kMaxThreads = 1024;

  // Rank 0 is whoever calls run(); size - 1 workers are started here. Each is pinned to one of the CPUs that the
  // calling thread may use now, distinct cores first (cpus_by_core; the first of them is left to rank 0). The calling
  // thread is not pinned: run() moves it off a worker's CPU, if it stands on one, and leaves its affinity as it was.
  // With more threads than CPUs nothing is pinned. Two pools are pinned to the same CPUs: one pool per process. Throws
  // Error where `threads` is not in 1..kMaxThreads or a thread cannot be started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return size_; }

  // body(rank) on every rank in 0..size-1 at once; returns when all have returned. A body must not throw (that ends the
  // program) and must not call run() of the same pool (that waits for ever). Calls from several threads are served one
  // after the other. Workers stay awake for a moment after each call and then sleep, so an idle pool costs nothing.
  template <class Body>
  void run(Body&& body) {
    auto call = [&body](int rank) { body(rank); };
    run_erased([](void* erased, int rank) noexcept { (*static_cast<decltype(call)*>(erased))(rank); }, &call);
  }

  // Inside run(), called by every rank equally often: nobody returns before all have come, and what each rank wrote
  // before it is seen by all after it.
  void barrier() {
    if (size_ > 1) meet();
  }

 private:
  friend class Region;
  using Call = void (*)(void* body, int rank) noexcept;

  // Apart by two lines of 64 bytes: x86 fetches them in pairs, and Apple's are that long.
  static constexpr std::size_t kLine = 128;

  void run_erased(Call call, void* body);
  void work(int rank);
  void stop() noexcept;
  void meet() noexcept;
  template <class Done>
  void wait_awake(Done&& done) const noexcept;
  std::uint32_t wait_for_start(std::uint32_t seen) const noexcept;

  const int size_;
  bool crowded_ = false;     // more threads than CPUs: who waits makes way at once
  std::vector<int> pinned_;  // the CPU of each worker; empty where they are not pinned
  std::vector<std::thread> workers_;
  std::mutex one_run_;

  // Written by rank 0 while the workers wait: the counter last, which publishes the others.
  alignas(kLine) std::atomic<std::uint32_t> start_ = 0;
  Call call_ = nullptr;  // null: the workers are to end
  void* body_ = nullptr;

  alignas(kLine) std::atomic<int> finished_ = 0;  // workers whose body has returned

  // The barrier: the last to arrive sets both counters to 0 and then turns the generation. next_ is what for_each hands
  // out; it is on the line of arrived_ because a rank that finds no more items arrives with its next instruction. (A
  // counter that rank 0 clears after the barrier would need a ring of them, and each rank a place in it.)
  alignas(kLine) std::atomic<int> arrived_ = 0;
  std::atomic<std::int64_t> next_ = 0;
  alignas(kLine) std::atomic<std::uint32_t> generation_ = 0;
};

// What code inside run() works with. Every rank makes the same calls with the same sizes in the same order.
class Region {
 public:
  Region(ThreadPool& pool, int rank) : pool_(&pool), rank_(rank) {}
  // A team of one inside run(): the other ranks know nothing of what it does.
  static Region alone(ThreadPool& pool) {
    Region region(pool, 0);
    region.alone_ = true;
    return region;
  }

  int rank() const { return rank_; }
  int size() const { return alone_ ? 1 : pool_->size(); }
  void barrier() const {
    if (!alone_) pool_->barrier();
  }

  // item(i) once for each i in 0..n-1, on whichever rank is free; returns when all items of all ranks are done: with a
  // barrier, also where n <= 0 (n may lie in memory that is written next). Which rank takes an item differs from run to
  // run, except that rank r begins with item r: a single item is rank 0's.
  template <class Item>
  void for_each(std::int64_t n, Item&& item) const {
    for_each_ahead(n, [&](std::int64_t i, std::int64_t) { item(i); });
  }

  // The same with item(i, next): next is the item that this rank will have after i, or n and above where it has none,
  // so that it can be fetched early.
  template <class Item>
  void for_each_ahead(std::int64_t n, Item&& item) const {
    const std::int64_t ranks = size();
    if (ranks == 1) {
      for (std::int64_t i = 0; i < n; ++i) item(i, i + 1);
      return;
    }
    for (std::int64_t i = rank_; i < n;) {
      const std::int64_t next = n > ranks ? ranks + take() : n;
      item(i, next);
      i = next;
    }
    barrier();
  }

  // The same with item(begin, end) for ranges of `grain` items (at least 1), the last one maybe shorter.
  template <class Item>
  void for_each_chunked(std::int64_t n, std::int64_t grain, Item&& item) const {
    const std::int64_t chunk = std::max<std::int64_t>(grain, 1);
    for_each(n / chunk + (n % chunk > 0), [&](std::int64_t i) {
      const std::int64_t begin = i * chunk;
      item(begin, begin + std::min(chunk, n - begin));
    });
  }

 private:
  std::int64_t take() const { return pool_->next_.fetch_add(1, std::memory_order_relaxed); }

  ThreadPool* pool_;
  int rank_;
  bool alone_ = false;
};

}  // namespace conclave
