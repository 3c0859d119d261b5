// What `convert` and `quantize` share: threads, the bar, interruption, and the line at the end.
#pragma once

#include <functional>
#include <string>

#include "base/thread_pool.h"
#include "convert/model_output.h"

namespace conclave {

struct ModelJob {
  std::string label;   // of the bar: "converting"
  std::string target;  // as the user named it
  int threads = 0;     // 0: the physical cores
  std::function<WrittenModel(ThreadPool&, const WriteProgress&)> work;
};

// Runs it, prints what was written, and gives the exit code. Throws Error, but for an interruption.
int run_model_job(const ModelJob& job);

}  // namespace conclave
