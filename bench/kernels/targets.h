// The speeds the project wants to reach on one layer of Qwen3-30B-A3B, each measured beside what it is told against.
#pragma once

#include <string>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "bench/kernels/report.h"

namespace conclave::bench {

struct Target {
  std::string what;
  double reached = 0;
  std::string_view unit;  // "%", "x", "ms"
  double wanted = 0;
  bool at_most = false;  // `wanted` is the most, not the least
  bool applies = true;   // it is told for this kind of machine

  bool met() const;  // to the two digits that are shown
};

// The times that targets are made of, in microseconds of one layer; 0 where it was not measured.
struct LayerTimes {
  double one_token = 0;
  double eight_tokens = 0;
  double prefill = 0;  // 512 tokens
  double prefill_one_thread = 0;
  double prefill_two_threads = 0;
  double one_token_generic = 0;
  double prefill_generic = 0;
  // The machine's peaks in the same turns, the median of many.
  double read_gbps = 0;
  double int8_gops = 0;
};
// The work of the three rows.
struct LayerWork {
  Work one_token;
  Work eight_tokens;
  Work prefill;
};
std::vector<Target> targets_of(const LayerTimes& times, const LayerWork& work, const RunFacts& facts);

// The rows that are measured: their weights are what a pile must hold.
std::vector<RowKey> target_rows();

struct TargetRun {
  LayerTimes times;
  LayerWork work;
  std::string wrong;  // not empty: a device computed something else than the reference, and there are no times
};
TargetRun run_targets(CpuDevice& device, const WeightPile& pile, const RotationRule& rule);

std::string target_table(const std::vector<Target>& targets);
std::string target_json(const Target& target, const RunFacts& facts);
std::string wrong_json(const std::string& message);  // in place of the targets

}  // namespace conclave::bench
