// How results are shown: a table for people, JSON lines for scripts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/kernels/bench_case.h"
#include "bench/kernels/timing.h"

namespace conclave::bench {

// One row, measured or found wrong.
struct RowResult {
  RowKey key;
  Work work;
  std::int64_t distinct_experts = 0;
  std::int64_t n_experts = 0;  // in memory; 0 where the op has none
  Checked checked;
  Timing timing;  // empty where the result was wrong
};

// What is the same for every row of a run.
struct RunFacts {
  std::string cpu;
  std::string kernels;
  int threads = 0;
  Peaks peaks;
};

std::string facts_text(const RunFacts& facts);
std::string table_header();
std::string table_line(const RowResult& row, const RunFacts& facts);
// What a reader has to know about these rows; empty where there is nothing to say.
std::string table_notes(const std::vector<RowResult>& rows, const RunFacts& facts);
std::string json_line(const RowResult& row, const RunFacts& facts);

}  // namespace conclave::bench
