// The devices of this machine, as the subcommands make them.
#pragma once

#include <memory>

#include "backends/cpu/cpu_device.h"

namespace conclave {

// CONCLAVE_CPU names the kernels, CONCLAVE_MOE_DUMP asks for a routing dump. threads = 0: the physical cores.
std::unique_ptr<CpuDevice> make_cpu_device(int threads);

}  // namespace conclave
