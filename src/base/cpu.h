// The host CPU: which instructions it has, how large its caches are, and how many threads it is worth starting.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace conclave {

// True only where the operating system also saves the registers: a CPUID bit alone is not enough.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // F, BW, VL, DQ and VNNI; never without avx2
  bool avx512_bf16 = false;  // never without avx512
  bool amx = false;          // tiles and their int8 and bf16 products; request_amx() has to agree before the first one
  bool neon = false;
  bool dotprod = false;

  bool operator==(const CpuFeatures&) const = default;
};

CpuFeatures detect_cpu_features();

// Asks Linux to let this process, all its threads, use tile data. False where there is none or it is refused.
bool request_amx();

// One line for people: "AMD EPYC 9654 96-Core Processor".
std::string cpu_name();

struct CacheSizes {  // in bytes, as one core sees them; these values where nothing is known
  std::int64_t l1d = 32 << 10;
  std::int64_t l2 = 1 << 20;
  std::int64_t l3 = 16 << 20;

  bool operator==(const CacheSizes&) const = default;
};

CacheSizes cache_sizes();

// The CPUs the calling thread may run on, ascending; never empty. Where there is no affinity, all of them.
std::vector<int> allowed_cpus();

// The same CPUs, one of each physical core first, then their second SMT siblings, and so on.
std::vector<int> cpus_by_core();

// The physical cores the calling thread may run on, limited by the CPU quota of its cgroups; at least 1. A quota of 2.5
// CPUs gives 2: with 3 threads that wait for each other, each period would end with all of them held.
int default_threads();

// What the above is made of. `root` stands for "/": /proc and /sys are looked up under it. Nothing here throws on odd
// content: what is not understood counts as absent.

struct X86Cpuid {  // the words of CPUID the features are read from; 0 where the CPU has no such leaf
  std::uint32_t leaf1_ecx = 0;
  std::uint32_t leaf7_ebx = 0;
  std::uint32_t leaf7_ecx = 0;
  std::uint32_t leaf7_edx = 0;
  std::uint32_t leaf7_1_eax = 0;
  std::uint64_t xcr0 = 0;  // 0 without OSXSAVE
};
CpuFeatures features_of(const X86Cpuid& cpuid);

std::vector<int> parse_cpu_list(std::string_view text);               // "0-3,8,10-11", ascending
std::optional<std::int64_t> parse_cache_size(std::string_view text);  // "48K", "2M", in bytes
std::string name_in_cpuinfo(std::string_view text);                   // /proc/cpuinfo; "" where none is told
std::optional<double> parse_cpu_max(std::string_view text);           // "250000 100000" is 2.5 CPUs
std::optional<double> cpu_quota(const std::filesystem::path& root);   // in CPUs; cgroup v2 and v1
CacheSizes cache_sizes(const std::filesystem::path& root);
std::vector<int> cpus_by_core(const std::filesystem::path& root, std::span<const int> allowed);
int default_threads(const std::filesystem::path& root, std::span<const int> allowed);

}  // namespace conclave
