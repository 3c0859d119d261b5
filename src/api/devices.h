// The devices of this machine by their names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "ops/device.h"

namespace conclave {

// CONCLAVE_CPU names the kernels, CONCLAVE_MOE_DUMP asks for a routing dump. threads = 0: the physical cores.
std::unique_ptr<CpuDevice> make_cpu_device(int threads);

// "cpu", "ref", "metal", "cuda" (the first GPU), "cuda:N" or "auto" (a GPU where there is one with at least `bytes` free, else the
// CPU). CONCLAVE_CUDA=sm80 has GPUs do as those before Hopper. Throws Error(invalid_argument) for a name that is none,
// Error(unsupported) where this machine or this build has no such device.
std::unique_ptr<Device> make_device(std::string_view name, int threads, std::int64_t bytes = 0);

// The names that make_device() takes here: "ref", "cpu", "cuda:0", ...
std::vector<std::string> device_names();
// Why there is no "cuda:N" here; empty where there is one.
std::string cuda_absence_here(int device = 0);
// Why there is no "metal" here; empty where there is one.
std::string metal_absence_here();
// Whether "metal" is a GPU; else it is the executor, which runs its kernels on the CPU, for tests.
bool metal_is_hardware();

}  // namespace conclave
