// conclave bench: every op at the shapes of real models, against this machine's own peaks.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "bench/kernels/row_plan.h"

namespace conclave::bench {

struct BenchOptions {
  bool kernels = false;  // the table
  bool targets = false;  // the speeds to reach
  RowFilter rows;
  bool json = false;
  int threads = 0;                // 0: the physical cores
  std::string cpu_row;            // of the kernel table; empty: the best that runs here
  std::filesystem::path scratch;  // where the file of weights is made
  std::int64_t memory_limit = std::int64_t{4} << 30;
};

struct BenchOutput {
  std::function<void(std::string_view text)> print;
  std::function<void(std::string_view text)> progress;  // what is being done now
};

// Gives the exit code: 1 where a result was wrong. Throws an Error where it cannot be done.
int run_bench(const BenchOptions& options, const BenchOutput& output);

// Half of the machine's memory at most: weights that do not stay in the page cache would come from the disk.
std::int64_t held_to_memory(std::int64_t memory_limit);

}  // namespace conclave::bench
