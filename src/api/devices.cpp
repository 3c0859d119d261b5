#include "api/devices.h"

#include <charconv>
#include <cstdlib>
#include <optional>

#include "backends/ref/ref_device.h"
#include "base/fail.h"
#include "base/file_text.h"
#ifdef CONCLAVE_HAS_CUDA
#include "backends/cuda/cuda_device.h"
#endif
#ifdef CONCLAVE_HAS_METAL
#include "backends/metal/metal_device.h"
#endif

namespace conclave {
namespace {

// The N of "cuda:N", 0 of "cuda".
std::optional<int> cuda_number(std::string_view name) {
  if (name == "cuda") return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  const std::string_view digits = name.substr(5);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size() || number < 0) return std::nullopt;
  return number;
}

std::unique_ptr<Device> make_cuda_device(int number) {
#ifdef CONCLAVE_HAS_CUDA
  const char* path = std::getenv("CONCLAVE_CUDA");
  return std::make_unique<CudaDevice>(
      CudaOptions{.device = number, .path = path == nullptr ? "" : path, .dump = moe_dump_from_environment()});
#else
  fail(ErrorCode::unsupported, "{}", cuda_absence_here(number));
#endif
}

std::unique_ptr<Device> make_metal_device() {
#ifdef CONCLAVE_HAS_METAL
  if (const std::string absence = metal_absence(); !absence.empty()) fail(ErrorCode::unsupported, "{}", absence);
  return std::make_unique<MetalDevice>(MetalOptions{.dump = moe_dump_from_environment()});
#else
  fail(ErrorCode::unsupported, "{}", metal_absence_here());
#endif
}

}  // namespace

std::string metal_absence_here() {
#ifdef CONCLAVE_HAS_METAL
  return metal_absence();
#else
  return "this build has no Metal backend";
#endif
}

bool metal_is_hardware() {
#ifdef __APPLE__
  return metal_absence_here().empty();
#else
  return false;
#endif
}

std::string cuda_absence_here([[maybe_unused]] int device) {
#ifdef CONCLAVE_HAS_CUDA
  return cuda_absence(device);
#else
  return "this build has no CUDA backend";
#endif
}

std::vector<std::string> device_names() {
  std::vector<std::string> names = {"ref", "cpu"};
  for (int n = 0; cuda_absence_here(n).empty(); ++n) names.push_back(fmt::format("cuda:{}", n));
  if (metal_absence_here().empty()) names.emplace_back("metal");
  return names;
}

std::unique_ptr<CpuDevice> make_cpu_device(int threads) {
  const char* forced = std::getenv("CONCLAVE_CPU");
  return std::make_unique<CpuDevice>(
      CpuOptions{.threads = threads, .kernels = forced == nullptr ? "" : forced, .dump = moe_dump_from_environment()});
}

std::unique_ptr<Device> make_device(std::string_view name, int threads, std::int64_t bytes) {
  if (threads < 0 || threads > ThreadPool::kMaxThreads) {
    fail(ErrorCode::invalid_argument, "{} threads were asked for, must be 0 to {}", threads, ThreadPool::kMaxThreads);
  }
  if (name == "auto") {
    for (int n = 0; cuda_absence_here(n).empty(); ++n) {
      auto gpu = make_cuda_device(n);
      if (gpu->available_bytes().value_or(0) >= bytes) return gpu;
    }
    if (metal_is_hardware()) {
      auto gpu = make_metal_device();
      if (gpu->available_bytes().value_or(0) >= bytes) return gpu;
    }
    return make_cpu_device(threads);
  }
  if (name == "cpu") return make_cpu_device(threads);
  if (name == "ref") return std::make_unique<RefDevice>(moe_dump_from_environment());
  if (name == "metal") return make_metal_device();
  if (const auto number = cuda_number(name)) return make_cuda_device(*number);
  fail(ErrorCode::invalid_argument, "there is no device '{}' here; there are: {}", printable(name),
       fmt::join(device_names(), ", "));
}

}  // namespace conclave
