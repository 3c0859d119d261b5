#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__APPLE__)
#include <sys/sysctl.h>
#include <sys/types.h>
#endif

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>

#include "base/file_text.h"

namespace conclave {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestText =
    16 << 10;                       // of a file in /proc or /sys; /proc/cpuinfo is cut, its first CPU counts
constexpr int kLargestCpu = 65535;  // a list that names higher ones is not a list of CPUs

// The file's text, or "" where it cannot be read.
std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestText, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank(" \t\r\n\0", 5);
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// The text before `separator`, which is taken off `text` with it; all of it where there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

template <class Number = std::int64_t>
std::optional<Number> whole_number(std::string_view text) {
  text = trimmed(text);
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

#if defined(__x86_64__)
// Not <immintrin.h>'s _xgetbv: that one needs the file to be compiled for a CPU that has it.
std::uint64_t read_xcr0() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

constexpr unsigned kOsxsave = 1U << 27;

X86Cpuid read_cpuid() {
  X86Cpuid words;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return words;
  words.leaf1_ecx = ecx;
  if ((ecx & kOsxsave) != 0) words.xcr0 = read_xcr0();
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return words;
  words.leaf7_ebx = ebx;
  words.leaf7_ecx = ecx;
  words.leaf7_edx = edx;
  if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) words.leaf7_1_eax = eax;
  return words;
}

std::string brand_string() {
  std::array<unsigned, 12> words{};
  for (unsigned i = 0; i < 3; ++i) {
    unsigned* const four = words.data() + 4 * i;
    if (__get_cpuid(0x80000002U + i, four, four + 1, four + 2, four + 3) == 0) return {};
  }
  std::array<char, sizeof(words) + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof(words));
  return text.data();
}
#elif defined(__APPLE__)
std::string brand_string() {
  std::array<char, 256> text{};
  std::size_t size = text.size() - 1;
  if (::sysctlbyname("machdep.cpu.brand_string", text.data(), &size, nullptr, 0) != 0) return {};
  return text.data();
}
#else
std::string brand_string() {
  return {};
}
#endif

// The directories whose limits hold for the process: its own cgroup, and each one above it up to the mount.
std::vector<fs::path> up_to_mount(const fs::path& mount, std::string_view cgroup) {
  std::vector<fs::path> folders{mount};
  while (!cgroup.empty()) {
    const std::string_view part = take_until(cgroup, '/');
    if (part == "..") return {mount};  // a cgroup outside our namespace: not to be seen from here
    if (!part.empty()) folders.push_back(folders.back() / part);
  }
  return folders;
}

std::optional<double> smaller(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

std::optional<double> cpus_of(std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// The same for all the siblings of one core, and different for different cores.
using CoreKey = std::tuple<int, std::int64_t, std::int64_t>;

CoreKey core_of(const fs::path& root, int cpu) {
  const fs::path topology = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
  for (const char* name : {"core_cpus_list", "thread_siblings_list"}) {  // the second: its name before Linux 5.3
    const std::vector<int> siblings = parse_cpu_list(text_of(topology / name));
    if (std::binary_search(siblings.begin(), siblings.end(), cpu)) return {0, siblings.front(), 0};
  }
  const auto package = whole_number(text_of(topology / "physical_package_id"));
  const auto core = whole_number(text_of(topology / "core_id"));
  if (core && *core >= 0) return {1, package.value_or(0), *core};
  return {2, cpu, 0};
}

// One entry per core, in the order of its first CPU.
std::vector<std::vector<int>> group_by_core(const fs::path& root, std::span<const int> cpus) {
  std::map<CoreKey, std::size_t> index;
  std::vector<std::vector<int>> cores;
  for (const int cpu : cpus) {
    const auto [entry, added] = index.try_emplace(core_of(root, cpu), cores.size());
    if (added) cores.emplace_back();
    cores[entry->second].push_back(cpu);
  }
  return cores;
}

std::vector<int> every_cpu() {
  std::vector<int> cpus(std::max(1U, std::thread::hardware_concurrency()));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

}  // namespace

CpuFeatures features_of(const X86Cpuid& cpuid) {
  const auto has = [](std::uint64_t word, std::initializer_list<int> bits) {
    return std::all_of(bits.begin(), bits.end(), [&](int bit) { return ((word >> bit) & 1) != 0; });
  };
  // XCR0: 1 xmm, 2 ymm, 5 mask registers, 6 upper halves of zmm0-15, 7 zmm16-31, 17 tile configuration, 18 tile data.
  const bool ymm = has(cpuid.xcr0, {1, 2});
  const bool zmm = ymm && has(cpuid.xcr0, {5, 6, 7});
  const bool tiles = has(cpuid.xcr0, {17, 18});
  CpuFeatures features;
  // Leaf 1 ECX: 12 FMA, 27 OSXSAVE, 28 AVX, 29 F16C. Leaf 7 EBX: 5 AVX2.
  features.avx2 = ymm && has(cpuid.leaf1_ecx, {12, 27, 28, 29}) && has(cpuid.leaf7_ebx, {5});
  // Leaf 7 EBX: 16 F, 17 DQ, 30 BW, 31 VL. ECX: 11 VNNI.
  features.avx512 = features.avx2 && zmm && has(cpuid.leaf7_ebx, {16, 17, 30, 31}) && has(cpuid.leaf7_ecx, {11});
  features.avx512_bf16 = features.avx512 && has(cpuid.leaf7_1_eax, {5});
  // Leaf 7 EDX: 22 AMX-BF16, 24 AMX-TILE, 25 AMX-INT8.
  features.amx = tiles && has(cpuid.leaf7_edx, {22, 24, 25});
  return features;
}

#if defined(__x86_64__)
CpuFeatures detect_cpu_features() {
  return features_of(read_cpuid());
}
#elif defined(__aarch64__) && defined(__linux__)
CpuFeatures detect_cpu_features() {
  const unsigned long capabilities = ::getauxval(AT_HWCAP);
  CpuFeatures features;
  features.neon = (capabilities & HWCAP_ASIMD) != 0;
  features.dotprod = (capabilities & HWCAP_ASIMDDP) != 0;
  return features;
}
#elif defined(__aarch64__) && defined(__APPLE__)
CpuFeatures detect_cpu_features() {
  int dotprod = 0;
  std::size_t size = sizeof(dotprod);
  CpuFeatures features;
  features.neon = true;
  features.dotprod = ::sysctlbyname("hw.optional.arm.FEAT_DotProd", &dotprod, &size, nullptr, 0) == 0 && dotprod != 0;
  return features;
}
#else
CpuFeatures detect_cpu_features() {
  return {};
}
#endif

#if defined(__x86_64__) && defined(__linux__)
bool request_amx() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  return detect_cpu_features().amx && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool request_amx() {
  return false;
}
#endif

std::string cpu_name() {
  std::string name(trimmed(brand_string()));
  if (name.empty()) name = name_in_cpuinfo(text_of("/proc/cpuinfo"));
  return name.empty() ? "unknown CPU" : printable(name);
}

std::string name_in_cpuinfo(std::string_view text) {
  std::map<std::string_view, std::string_view> first;  // of each name, its first value
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    const std::string_view name = trimmed(take_until(line, ':'));
    if (!trimmed(line).empty()) first.try_emplace(name, trimmed(line));
  }
  for (const char* name : {"model name", "Model", "Hardware", "cpu model"}) {
    if (first.count(name) > 0) return std::string(first[name]);
  }
  // What Linux tells of most aarch64 servers: Arm's numbers for the maker and the core.
  if (first.count("CPU implementer") == 0 || first.count("CPU part") == 0) return {};
  return "CPU implementer " + std::string(first["CPU implementer"]) + " part " + std::string(first["CPU part"]);
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    std::string_view range = take_until(text, ',');
    const bool single = range.find('-') == std::string_view::npos;
    const auto first = whole_number<int>(take_until(range, '-'));
    const auto last = single ? first : whole_number<int>(range);
    if (!first || !last || *first < 0 || *last < *first || *last > kLargestCpu) continue;
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::optional<std::int64_t> parse_cache_size(std::string_view text) {
  text = trimmed(text);
  if (text.empty()) return std::nullopt;
  const std::size_t unit = std::string_view("KMG").find(text.back());
  if (unit != std::string_view::npos) text.remove_suffix(1);
  const auto count = whole_number(text);
  constexpr std::int64_t kLargestCount = 1 << 30;
  if (!count || *count <= 0 || *count > kLargestCount) return std::nullopt;
  return unit == std::string_view::npos ? *count : *count << (10 * (unit + 1));
}

CacheSizes cache_sizes(const fs::path& root) {
  CacheSizes sizes;
  constexpr int kMostCaches = 16;
  for (int i = 0; i < kMostCaches; ++i) {
    const fs::path cache = root / "sys/devices/system/cpu/cpu0/cache" / ("index" + std::to_string(i));
    const auto level = whole_number(text_of(cache / "level"));
    const auto size = parse_cache_size(text_of(cache / "size"));
    if (!level || !size || trimmed(text_of(cache / "type")) == "Instruction") continue;
    if (*level == 1) sizes.l1d = *size;
    if (*level == 2) sizes.l2 = *size;
    if (*level == 3) sizes.l3 = *size;
  }
  return sizes;
}

CacheSizes cache_sizes() {
  return cache_sizes("/");
}

#if defined(__linux__)
std::vector<int> allowed_cpus() {
  // The kernel refuses a set smaller than its own, and does not tell how large that is.
  for (std::size_t n_cpus = CPU_SETSIZE; n_cpus <= kLargestCpu + 1; n_cpus *= 2) {
    std::vector<cpu_set_t> sets(n_cpus / CPU_SETSIZE);
    const std::size_t bytes = sets.size() * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, sets.data()) != 0) continue;
    std::vector<int> cpus;
    for (std::size_t cpu = 0; cpu < n_cpus; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, sets.data())) cpus.push_back(static_cast<int>(cpu));
    }
    if (!cpus.empty()) return cpus;
  }
  return every_cpu();
}
#else
std::vector<int> allowed_cpus() {
  return every_cpu();
}
#endif

std::vector<int> cpus_by_core(const fs::path& root, std::span<const int> allowed) {
  const std::vector<std::vector<int>> cores = group_by_core(root, allowed);
  std::vector<int> ordered;
  ordered.reserve(allowed.size());
  for (std::size_t sibling = 0; ordered.size() < allowed.size(); ++sibling) {
    for (const std::vector<int>& core : cores) {
      if (sibling < core.size()) ordered.push_back(core[sibling]);
    }
  }
  return ordered;
}

std::vector<int> cpus_by_core() {
  return cpus_by_core("/", allowed_cpus());
}

std::optional<double> parse_cpu_max(std::string_view text) {
  text = trimmed(text);
  const auto quota = whole_number(take_until(text, ' '));  // "max" is no number: no limit
  constexpr std::int64_t kDefaultPeriod = 100000;
  return cpus_of(quota, text.empty() ? kDefaultPeriod : whole_number(text));
}

std::optional<double> cpu_quota(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  const std::string cgroups = text_of(root / "proc/self/cgroup");  // lines of number:controllers:path
  std::optional<double> quota;
  for (std::string_view rest = cgroups; !rest.empty();) {
    std::string_view line = take_until(rest, '\n');
    take_until(line, ':');
    const std::string_view controllers = take_until(line, ':');
    const std::string_view cgroup = trimmed(line);
    if (controllers.empty()) {  // version 2; "unified" beside version 1
      for (const fs::path& mount : {mounts, mounts / "unified"}) {
        for (const fs::path& folder : up_to_mount(mount, cgroup)) {
          quota = smaller(quota, parse_cpu_max(text_of(folder / "cpu.max")));
        }
      }
      continue;
    }
    bool names_cpu = false;
    for (std::string_view names = controllers; !names.empty();) names_cpu |= take_until(names, ',') == "cpu";
    if (!names_cpu) continue;
    for (const fs::path& mount : {mounts / "cpu", mounts / controllers}) {
      for (const fs::path& folder : up_to_mount(mount, cgroup)) {
        quota = smaller(quota, cpus_of(whole_number(text_of(folder / "cpu.cfs_quota_us")),
                                       whole_number(text_of(folder / "cpu.cfs_period_us"))));
      }
    }
  }
  return quota;
}

int default_threads(const fs::path& root, std::span<const int> allowed) {
  const auto n_cores = static_cast<int>(group_by_core(root, allowed).size());
  const std::optional<double> quota = cpu_quota(root);
  const int limit = quota && *quota < n_cores ? static_cast<int>(*quota) : n_cores;
  return std::max(limit, 1);
}

int default_threads() {
  return default_threads("/", allowed_cpus());
}

}  // namespace conclave
