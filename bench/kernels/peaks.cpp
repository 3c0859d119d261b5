#include "bench/kernels/peaks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <vector>

#include "base/cpu.h"
#include "base/fail.h"
#include "bench/kernels/fma_peak.h"

namespace conclave::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kReadPasses = 6;
constexpr int kPeakPasses = 20;
constexpr std::int64_t kReadPart = 1 << 20;                 // what a thread takes at a time
constexpr std::int64_t kMinPass = 16 << 20;                 // of one pass
constexpr std::int64_t kMinRead = std::int64_t{512} << 20;  // of the mapping, and at least four times the L3
constexpr double kPeakSeconds = 0.004;  // of one run on registers: short ones find the quiet moments

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One pass over `mapped`, all threads; over and over where it is small, so that starting the threads is not what is
// measured. As wide as the kernels themselves read, a page ahead. Lost: 64-bit words, which are as fast on 2 cores of Zen 4
// and half as fast on 16 of Emerald Rapids.
double read_pass(CpuDevice& device, std::span<const std::byte> mapped) {
  constexpr std::int64_t kLine = 64;
  std::atomic<std::uint64_t> sink = 0;
  const auto size = static_cast<std::int64_t>(mapped.size());
  const std::int64_t part = std::min(kReadPart, std::max(size / kLine * kLine, kLine));
  const std::int64_t parts = size / part;
  if (parts == 0) return 0;
  const std::int64_t reads = std::max(kMinPass / (parts * part), std::int64_t{1}) * parts;
  const auto start = Clock::now();
  device.pool().run([&](int rank) {
    const Region region(device.pool(), rank);
    std::uint64_t sum = 0;
    region.for_each(reads, [&](std::int64_t i) {
      sum += static_cast<std::uint32_t>(device.kernels().product.read(mapped.data() + i % parts * part, part));
    });
    sink += sum;
  });
  return static_cast<double>(reads * part) / seconds_since(start) * 1e-9;
}

double read_gbps(CpuDevice& device, std::span<const std::byte> mapped) {
  const std::int64_t enough = std::max(kMinRead, 4 * cache_sizes().l3);
  const auto part = mapped.first(std::min(mapped.size(), static_cast<std::size_t>(enough)));
  double best = 0;
  for (int pass = 0; pass < kReadPasses; ++pass) best = std::max(best, read_pass(device, part));
  return best;
}

// rounds(n) does n rounds on every thread at once and returns how many operations one thread did.
template <class Rounds>
double register_gops(ThreadPool& pool, Rounds&& rounds) {
  std::vector<double> done(static_cast<std::size_t>(pool.size()));
  const auto run = [&](std::int64_t n) {
    const auto start = Clock::now();
    pool.run([&](int rank) { done[static_cast<std::size_t>(rank)] = rounds(n); });
    const double seconds = seconds_since(start);
    double all = 0;
    for (const double ops : done) all += ops;
    return std::pair(all, seconds);
  };
  std::int64_t n = 1024;
  for (auto [ops, seconds] = run(n); seconds < kPeakSeconds && ops > 0 && n < (std::int64_t{1} << 40);) {
    n *= 2;
    std::tie(ops, seconds) = run(n);
  }
  double best = 0;
  for (int pass = 0; pass < kPeakPasses; ++pass) {
    const auto [ops, seconds] = run(n);
    best = std::max(best, ops / seconds * 1e-9);
  }
  return best;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void PeakSampler::sample() {
  constexpr std::size_t kPart = std::size_t{128} << 20;
  if (at_ + kPart > mapped_.size()) at_ = 0;
  read_.push_back(read_pass(device_, mapped_.subspan(at_, std::min(kPart, mapped_.size()))));
  at_ += kPart;
  const auto start = Clock::now();
  std::atomic<std::int64_t> done = 0;
  device_.pool().run([&](int) {
    std::int32_t words[2] = {0x01020304, 0x05060708};
    done += static_cast<std::int64_t>(device_.kernels().product.dot_peak(1 << 20, words));
  });
  int8_.push_back(static_cast<double>(done.load()) / seconds_since(start) * 1e-9);
}

void PeakSampler::forget() {
  read_.clear();
  int8_.clear();
}

double PeakSampler::read_gbps() const {
  return median(read_);
}

double PeakSampler::int8_gops() const {
  return median(int8_);
}

Peaks measure_peaks(CpuDevice& device, std::span<const std::byte> mapped) {
  ThreadPool& pool = device.pool();
  const auto dot_peak = device.kernels().product.dot_peak;
  return {.read_gbps = read_gbps(device, mapped),
          .int8_gops = register_gops(pool,
                                     [&](std::int64_t n) {
                                       std::int32_t words[2] = {0x01020304, 0x05060708};
                                       return dot_peak(n, words);
                                     }),
          .f32_gops = register_gops(pool, [](std::int64_t n) {
            float sink = 1;
            return fma_peak(n, &sink);
          })};
}

std::string noise_of(const Peaks& best, const Peaks& worst, int threads, std::string_view kernels) {
  const bool known = threads == 2 && kernels == "avx512";
  if (known && (best.read_gbps < kQuietReadGbps || best.int8_gops < kQuietInt8Gops)) {
    return fmt::format(
        "noisy run: repeat it (read {:.1f} GB/s, int8 {:.2f} TOP/s; below {} or {} something else is running, or the "
        "machine is a slower one)",
        best.read_gbps, best.int8_gops * 1e-3, kQuietReadGbps, kQuietInt8Gops * 1e-3);
  }
  if (worst.read_gbps < kQuietSpread * best.read_gbps || worst.int8_gops < kQuietSpread * best.int8_gops) {
    return fmt::format("noisy run: repeat it (read from {:.1f} to {:.1f} GB/s, int8 from {:.2f} to {:.2f} TOP/s)",
                       worst.read_gbps, best.read_gbps, worst.int8_gops * 1e-3, best.int8_gops * 1e-3);
  }
  return {};
}

}  // namespace conclave::bench
