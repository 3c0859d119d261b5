#include "devices.h"

#include <cstdlib>

namespace conclave {

std::unique_ptr<CpuDevice> make_cpu_device(int threads) {
  const char* forced = std::getenv("CONCLAVE_CPU");
  return std::make_unique<CpuDevice>(
      CpuOptions{.threads = threads, .kernels = forced == nullptr ? "" : forced, .dump = moe_dump_from_environment()});
}

}  // namespace conclave
