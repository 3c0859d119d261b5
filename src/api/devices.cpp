#include "api/devices.h"

#include <cstdlib>

#include "backends/ref/ref_device.h"
#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {

std::unique_ptr<CpuDevice> make_cpu_device(int threads) {
  const char* forced = std::getenv("CONCLAVE_CPU");
  return std::make_unique<CpuDevice>(
      CpuOptions{.threads = threads, .kernels = forced == nullptr ? "" : forced, .dump = moe_dump_from_environment()});
}

std::unique_ptr<Device> make_device(std::string_view name, int threads) {
  if (threads < 0 || threads > ThreadPool::kMaxThreads) {
    fail(ErrorCode::invalid_argument, "{} threads were asked for, must be 0 to {}", threads, ThreadPool::kMaxThreads);
  }
  if (name == "cpu" || name == "auto") return make_cpu_device(threads);
  if (name == "ref") return std::make_unique<RefDevice>(moe_dump_from_environment());
  fail(ErrorCode::invalid_argument, "there is no device '{}' here; there are: ref, cpu", printable(name));
}

}  // namespace conclave
