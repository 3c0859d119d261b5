#include "model_job.h"

#include <cstdio>

#include "base/cpu.h"
#include "base/file_text.h"
#include "cli.h"
#include "interrupt.h"
#include "progress.h"

namespace conclave {

namespace {

void tell(const ModelJob& job, const WrittenModel& written) {
  for (const std::string& note : written.notes) std::fputs(fmt::format("note: {}\n", note).c_str(), stderr);
  const double bits = 8.0 * static_cast<double>(written.tensor_bytes) / static_cast<double>(written.n_params);
  print(fmt::format("{}: {} tensors, {:.2f} bits per weight, {:.3f} GB\n", printable(job.target, 4096),
                    written.n_tensors, bits, static_cast<double>(written.file_bytes) / 1e9));
}

}  // namespace

int run_model_job(const ModelJob& job) {
  WrittenModel written;
  const int exit_code = run_guarded([&](const InterruptGuard& interrupt) {
    ThreadPool pool(job.threads > 0 ? job.threads : default_threads());
    ProgressBar bar(job.label);
    written = job.work(pool, [&](std::uint64_t done, std::uint64_t total, std::string_view tensor) {
      interrupt.stop_if_interrupted();
      bar.show(done, total, tensor);
    });
    return 0;
  });
  if (exit_code == 0) tell(job, written);
  return exit_code;
}

}  // namespace conclave
