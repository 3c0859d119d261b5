#include "backends/cpu/kernels.h"

#include <array>
#include <string>

#include "backends/cpu/isa/rows.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {
namespace {

bool always() {
  return true;
}

#if defined(__x86_64__)
bool has_avx2() {
  return detect_cpu_features().avx2;
}
bool has_avx512() {
  return detect_cpu_features().avx512;
}
bool has_amx() {
  const CpuFeatures cpu = detect_cpu_features();
  return cpu.avx512 && cpu.amx && request_amx();
}
constexpr std::array<CpuRow, 4> kRows = {
    {{&kAmxKernels, has_amx}, {&kAvx512Kernels, has_avx512}, {&kAvx2Kernels, has_avx2}, {&kGenericKernels, always}}};
#elif defined(__aarch64__)
bool has_dotprod() {
  return detect_cpu_features().dotprod;
}
constexpr std::array<CpuRow, 3> kRows = {
    {{&kNeonDotprodKernels, has_dotprod}, {&kNeonKernels, always}, {&kGenericKernels, always}}};
#else
constexpr std::array<CpuRow, 1> kRows = {{{&kGenericKernels, always}}};
#endif

}  // namespace

std::span<const CpuRow> cpu_rows() {
  return kRows;
}

const CpuKernels& choose_cpu_kernels(std::string_view forced) {
  std::string names;
  for (const CpuRow& row : kRows) {
    const std::string_view name = row.kernels->name;
    if ((forced.empty() || name == forced) && row.runs_here()) return *row.kernels;
    if (name == forced) fail(ErrorCode::unsupported, "CONCLAVE_CPU: this machine cannot run '{}'", forced);
    names += names.empty() ? "" : ", ";
    names += name;
  }
  fail(ErrorCode::invalid_argument, "CONCLAVE_CPU: there is no '{}'; there is: {}", printable(forced), names);
}

}  // namespace conclave
