// The devices of this machine by their names.
#pragma once

#include <memory>
#include <string_view>

#include "backends/cpu/cpu_device.h"
#include "ops/device.h"

namespace conclave {

// CONCLAVE_CPU names the kernels, CONCLAVE_MOE_DUMP asks for a routing dump. threads = 0: the physical cores.
std::unique_ptr<CpuDevice> make_cpu_device(int threads);

// "cpu", "ref" or "auto". Throws Error(invalid_argument) for a name that is none.
std::unique_ptr<Device> make_device(std::string_view name, int threads);

}  // namespace conclave
