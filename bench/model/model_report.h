// How a model's speed is shown: a table for people, JSON lines for scripts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/memory.h"
#include "bench/kernels/bound.h"
#include "bench/model/traffic.h"
#include "bench/model/workload.h"

namespace conclave::bench {

// One repetition, and the peaks that were measured in turns with it.
struct Repetition {
  double seconds = 0;
  double cpu_seconds = 0;
  std::optional<Peaks> peaks;  // nothing where the device is not the CPU
};

struct WorkResult {
  Workload work;
  Traffic traffic;  // of one repetition
  std::vector<Repetition> repetitions;
  SessionMemory memory;
  std::optional<ResidentMemory> resident;
};

// What is the same for every row of a run.
struct ModelRunFacts {
  std::string file;  // its name, without the folder
  ModelFacts model;
  std::string cpu;
  std::string kernels;  // the row of the kernel table; of other devices, their name
  int threads = 1;
  bool fits_cache = false;  // the file is no larger than the caches: the bandwidth measured is theirs
};

// Medians over the repetitions. A share compares a repetition with the peaks measured during it.
struct WorkSummary {
  double tokens_per_second = 0;
  double slowest = 0;
  double fastest = 0;
  double seconds = 0;
  double gbps = 0;   // bytes that must be read, over the time
  double cores = 0;  // of the CPU that were busy
  std::optional<Peaks> peaks;
  double percent_of_read = 0;
  double percent_of_int8 = 0;
  double percent_of_bound = 0;  // the slower of the two
};
WorkSummary summary_of(const WorkResult& result);

std::string model_facts_text(const ModelRunFacts& facts);
std::string work_header();
std::string work_line(const WorkResult& result);
std::string work_notes(const std::vector<WorkResult>& results, const ModelRunFacts& facts);
std::string work_json(const WorkResult& result, const ModelRunFacts& facts);

}  // namespace conclave::bench
