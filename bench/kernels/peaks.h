// This machine's peaks, measured with a device's own threads and kernels.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "backends/cpu/cpu_device.h"
#include "bench/kernels/bound.h"

namespace conclave::bench {

// Best of several passes over `mapped` (what the weights lie in; touched before), and of several runs on registers.
Peaks measure_peaks(CpuDevice& device, std::span<const std::byte> mapped);

// What a quiet machine of 2 cores with AVX-512 VNNI reaches at least; below it the run is noisy.
inline constexpr double kQuietReadGbps = 17;
inline constexpr double kQuietInt8Gops = 1200;
// A peak that was measured this much lower at another time of the run: something else was running.
inline constexpr double kQuietSpread = 0.85;

// Why the run is to be repeated, from the best and the worst peaks measured in it; empty where it looks quiet.
std::string noise_of(const Peaks& best, const Peaks& worst, int threads, std::string_view kernels);

}  // namespace conclave::bench
