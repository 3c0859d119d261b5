// This machine's peaks, measured with a device's own threads and kernels.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "bench/kernels/bound.h"

namespace conclave::bench {

// Best of several passes over `mapped` (what the weights lie in; touched before), and of several runs on registers.
Peaks measure_peaks(CpuDevice& device, std::span<const std::byte> mapped);

// The same in pieces of a few milliseconds, for comparisons in turns: a machine that others use has another peak every
// second. Reads go on where the last one stopped; of each kind the median counts.
class PeakSampler {
 public:
  PeakSampler(CpuDevice& device, std::span<const std::byte> mapped) : device_(device), mapped_(mapped) {}
  void sample();
  void forget();  // what was measured so far: the next medians are of what comes
  double read_gbps() const;
  double int8_gops() const;

 private:
  CpuDevice& device_;
  std::span<const std::byte> mapped_;
  std::size_t at_ = 0;
  std::vector<double> read_;
  std::vector<double> int8_;
};

// What a quiet machine of 2 cores with AVX-512 VNNI reaches at least; below it the run is noisy.
inline constexpr double kQuietReadGbps = 17;
inline constexpr double kQuietInt8Gops = 1200;
// A peak that was measured this much lower at another time of the run: something else was running.
inline constexpr double kQuietSpread = 0.85;

// Why the run is to be repeated, from the best and the worst peaks measured in it; empty where it looks quiet.
std::string noise_of(const Peaks& best, const Peaks& worst, int threads, std::string_view kernels);

}  // namespace conclave::bench
