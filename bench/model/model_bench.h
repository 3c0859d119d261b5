// conclave bench -m FILE: how fast a model runs, and how much of what this machine can read that is.
#pragma once

#include <filesystem>
#include <vector>

#include "bench/kernels/kernel_bench.h"
#include "conclave/session.h"

namespace conclave::bench {

struct ModelBenchOptions {
  std::filesystem::path model;
  ModelOptions device;
  std::vector<std::int32_t> prompts = {512};    // prefills of so many tokens; 0: none
  std::vector<std::int32_t> generated = {128};  // decodes of so many tokens; 0: none
  std::vector<std::int32_t> batches = {1};      // sequences that are decoded together
  std::vector<std::int32_t> depths = {0};       // tokens of each sequence before a decode begins
  std::int64_t repetitions = 5;
  std::int64_t context = 0;  // tokens of a sequence; 0: what the work needs
  std::int64_t chunk = 0;    // as SessionOptions has it
  KvType kv_type = KvType::f16;
  bool exact_prompts = false;
  bool json = false;
};

// Throws an Error where it cannot be done, and where the output is wrong: there is no speed without right output.
void run_model_bench(const ModelBenchOptions& options, const BenchOutput& output);

}  // namespace conclave::bench
