#include "base/cpu.h"

#include <gtest/gtest.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/wait.h>
#endif
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include "base/file_text.h"

namespace conclave {
namespace {

namespace fs = std::filesystem;
using Cpus = std::vector<int>;

// A made-up "/".
class CpuTreeTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(root_); }

  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void write_topology(int cpu, const std::string& name, const std::string& text) {
    write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/" + name, text);
  }
  void write_cache(int index, const std::string& level, const std::string& type, const std::string& size) {
    const fs::path cache = "sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    write(cache / "level", level + "\n");
    write(cache / "type", type + "\n");
    write(cache / "size", size + "\n");
  }

  fs::path root_ = [] {
    std::string pattern = (fs::temp_directory_path() / "conclave-cpu-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    return fs::path(pattern);
  }();
};

constexpr std::uint32_t bits(std::initializer_list<int> places) {
  std::uint32_t word = 0;
  for (const int place : places) word |= std::uint32_t{1} << place;
  return word;
}

const X86Cpuid kSapphireRapids{
    .leaf1_ecx = bits({12, 27, 28, 29}),
    .leaf7_ebx = bits({5, 16, 17, 30, 31}),
    .leaf7_ecx = bits({11}),
    .leaf7_edx = bits({22, 24, 25}),
    .leaf7_1_eax = bits({5}),
    .xcr0 = 0x602E7,
};

TEST(CpuFeatures, FollowCpuidAndTheStateTheSystemSaves) {
  X86Cpuid cpuid = kSapphireRapids;
  EXPECT_EQ(features_of(cpuid), (CpuFeatures{.avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx = true}));
  cpuid.xcr0 = 0xE7;  // no tiles
  EXPECT_EQ(features_of(cpuid), (CpuFeatures{.avx2 = true, .avx512 = true, .avx512_bf16 = true}));
  for (const std::uint64_t lacking : {0x07, 0x27, 0x67, 0xA7, 0xC7}) {
    cpuid.xcr0 = lacking;
    EXPECT_EQ(features_of(cpuid), CpuFeatures{.avx2 = true}) << lacking;
  }
  for (const std::uint64_t lacking : {0x0, 0x3, 0x5, 0xE3, 0xE1}) {
    cpuid.xcr0 = lacking;
    EXPECT_EQ(features_of(cpuid), CpuFeatures{}) << lacking;
  }
  EXPECT_EQ(features_of({}), CpuFeatures{});
}

TEST(CpuFeatures, NeedEachOfTheirBits) {
  for (const int bit : {12, 27, 28, 29}) {
    X86Cpuid cpuid = kSapphireRapids;
    cpuid.leaf1_ecx &= ~bits({bit});
    EXPECT_EQ(features_of(cpuid), CpuFeatures{.amx = true}) << "leaf 1 ECX " << bit;
  }
  for (const int bit : {16, 17, 30, 31}) {
    X86Cpuid cpuid = kSapphireRapids;
    cpuid.leaf7_ebx &= ~bits({bit});
    EXPECT_EQ(features_of(cpuid), (CpuFeatures{.avx2 = true, .amx = true})) << "leaf 7 EBX " << bit;
  }
  for (const int bit : {22, 24, 25}) {
    X86Cpuid cpuid = kSapphireRapids;
    cpuid.leaf7_edx &= ~bits({bit});
    EXPECT_FALSE(features_of(cpuid).amx) << "leaf 7 EDX " << bit;
  }
  X86Cpuid cpuid = kSapphireRapids;
  cpuid.leaf7_ecx = 0;
  EXPECT_EQ(features_of(cpuid), (CpuFeatures{.avx2 = true, .amx = true}));
  cpuid = kSapphireRapids;
  cpuid.leaf7_1_eax = 0;
  EXPECT_EQ(features_of(cpuid), (CpuFeatures{.avx2 = true, .avx512 = true, .amx = true}));
}

TEST(CpuFeatures, OfThisMachine) {
  const CpuFeatures features = detect_cpu_features();
  EXPECT_EQ(features, detect_cpu_features());
#if defined(__x86_64__)
  EXPECT_FALSE(features.neon || features.dotprod);
  EXPECT_EQ(features.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));  // none lacks just F16C
  EXPECT_EQ(features.avx512_bf16, features.avx512 && __builtin_cpu_supports("avx512bf16"));
#elif defined(__aarch64__)
  EXPECT_TRUE(features.neon);
  EXPECT_FALSE(features.avx2 || features.avx512 || features.avx512_bf16 || features.amx);
#endif
  EXPECT_TRUE(features.amx || !request_amx());
  EXPECT_EQ(request_amx(), request_amx());
}

TEST(CpuName, IsOneLine) {
  const std::string name = cpu_name();
  EXPECT_FALSE(name.empty());
  EXPECT_TRUE(is_printable_utf8(name)) << name;
  EXPECT_EQ(name.find_first_of("\n\t"), std::string::npos);
}

TEST(CpuName, IsFoundInCpuinfo) {
  EXPECT_EQ(name_in_cpuinfo("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654\n\nprocessor\t: 1\n"
                            "model name\t: another\n"),
            "AMD EPYC 9654");
  EXPECT_EQ(name_in_cpuinfo("processor : 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"),
            "CPU implementer 0x41 part 0xd40");
  EXPECT_EQ(name_in_cpuinfo("CPU part: 0xd40"), "");
  EXPECT_EQ(name_in_cpuinfo("model name\t:  \n:::\n\n:"), "");
  EXPECT_EQ(name_in_cpuinfo(""), "");
}

TEST(CpuList, IsParsed) {
  EXPECT_EQ(parse_cpu_list("0-3,8,10-11\n"), (Cpus{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list("5"), Cpus{5});
  EXPECT_EQ(parse_cpu_list(" 2 , 1-1 ,2"), (Cpus{1, 2}));
  EXPECT_EQ(parse_cpu_list("65535"), Cpus{65535});
}

TEST(CpuList, LeavesOutWhatIsNoCpu) {
  for (const char* text : {"", "\n", ",", "-", "a", "1-", "-1", "3-1", "1-2-3", "1x", "0x1", "1.5", "0-4294967295",
                           "0-65536", "99999999999999999999", "0:3"}) {
    EXPECT_EQ(parse_cpu_list(text), Cpus{}) << text;
  }
  EXPECT_EQ(parse_cpu_list("x,4,,7-6,9"), (Cpus{4, 9}));
  EXPECT_EQ(parse_cpu_list(std::string_view("1\0", 2)), Cpus{1});
}

TEST(CacheSize, IsParsed) {
  EXPECT_EQ(parse_cache_size("48K\n"), 48 << 10);
  EXPECT_EQ(parse_cache_size("2M"), 2 << 20);
  EXPECT_EQ(parse_cache_size("1G"), 1 << 30);
  EXPECT_EQ(parse_cache_size("512"), 512);
  for (const char* text : {"", "K", "0K", "-1K", "48KB", "48k", "1 K x", "99999999999999999999M", "4000000000G"}) {
    EXPECT_EQ(parse_cache_size(text), std::nullopt) << text;
  }
}

TEST_F(CpuTreeTest, CachesAreReadLevelByLevel) {
  EXPECT_EQ(cache_sizes(root_), CacheSizes{});
  write_cache(0, "1", "Data", "48K");
  write_cache(1, "1", "Instruction", "64K");
  EXPECT_EQ(cache_sizes(root_), CacheSizes{.l1d = 48 << 10});
  write_cache(2, "2", "Unified", "2048K");
  write_cache(3, "3", "Unified", "105M");
  write_cache(4, "4", "Unified", "1G");
  EXPECT_EQ(cache_sizes(root_), (CacheSizes{.l1d = 48 << 10, .l2 = 2 << 20, .l3 = 105 << 20}));
  write_cache(2, "two", "Unified", "2048K");
  write_cache(3, "3", "Unified", "");
  EXPECT_EQ(cache_sizes(root_), CacheSizes{.l1d = 48 << 10});
}

TEST(CacheSizesTest, OfThisMachineAreSane) {
  const CacheSizes sizes = cache_sizes();
  EXPECT_GE(sizes.l1d, 4 << 10);
  EXPECT_GE(sizes.l2, 64 << 10);
  EXPECT_GT(sizes.l3, 0);
}

TEST_F(CpuTreeTest, CoresComeBeforeTheirSiblings) {
  // Two packages of two cores of two threads, numbered as Intel does: the siblings of 0..3 are 4..7.
  for (int cpu = 0; cpu < 8; ++cpu) {
    write_topology(cpu, "thread_siblings_list", std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4) + "\n");
    write_topology(cpu, "core_id", "0\n");  // not looked at
  }
  EXPECT_EQ(cpus_by_core(root_, Cpus{0, 1, 2, 3, 4, 5, 6, 7}), (Cpus{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(cpus_by_core(root_, Cpus{0, 1, 4, 6}), (Cpus{0, 1, 6, 4}));
  EXPECT_EQ(cpus_by_core(root_, Cpus{5}), Cpus{5});
  EXPECT_EQ(cpus_by_core(root_, Cpus{}), Cpus{});
  EXPECT_EQ(default_threads(root_, Cpus{0, 1, 2, 3, 4, 5, 6, 7}), 4);
  EXPECT_EQ(default_threads(root_, Cpus{0, 4, 1}), 2);
  EXPECT_EQ(default_threads(root_, Cpus{}), 1);
  // The name since Linux 5.3 goes first.
  for (int cpu = 0; cpu < 4; ++cpu) write_topology(cpu, "core_cpus_list", cpu < 2 ? "0-1" : "2-3");
  EXPECT_EQ(cpus_by_core(root_, Cpus{0, 1, 2, 3}), (Cpus{0, 2, 1, 3}));
}

TEST_F(CpuTreeTest, CoresAreToldByTheirNumbersWhereThereAreNoLists) {
  for (int cpu = 0; cpu < 8; ++cpu) {
    write_topology(cpu, "physical_package_id", std::to_string(cpu / 4) + "\n");
    write_topology(cpu, "core_id", std::to_string(cpu / 2 % 2) + "\n");
  }
  EXPECT_EQ(cpus_by_core(root_, Cpus{0, 1, 2, 3, 4, 5, 6, 7}), (Cpus{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(default_threads(root_, Cpus{0, 1, 2, 3, 4, 5, 6, 7}), 4);
  write_topology(3, "core_id", "odd\n");
  write_topology(1, "thread_siblings_list", "6-7\n");  // does not name itself
  EXPECT_EQ(cpus_by_core(root_, Cpus{0, 1, 2, 3}), (Cpus{0, 2, 3, 1}));
}

TEST_F(CpuTreeTest, EachCpuIsACoreWhereNothingIsKnown) {
  EXPECT_EQ(cpus_by_core(root_, Cpus{3, 5, 9}), (Cpus{3, 5, 9}));
  EXPECT_EQ(default_threads(root_, Cpus{3, 5, 9}), 3);
}

TEST(CpuMax, IsParsed) {
  EXPECT_EQ(parse_cpu_max("250000 100000\n"), 2.5);
  EXPECT_EQ(parse_cpu_max("50000 100000"), 0.5);
  EXPECT_EQ(parse_cpu_max("300000"), 3.0);
  for (const char* text : {"", "max 100000", "max", "0 100000", "-1 100000", "100000 0", "100000 -5", "100000 x",
                           "x 100000", "1 2 3", "99999999999999999999 1"}) {
    EXPECT_EQ(parse_cpu_max(text), std::nullopt) << text;
  }
}

TEST_F(CpuTreeTest, QuotaOfVersion2IsTheSmallestUpToTheMount) {
  const Cpus eight{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  write("proc/self/cgroup", "0::/user.slice/session.scope\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  EXPECT_EQ(default_threads(root_, eight), 8);
  write("sys/fs/cgroup/user.slice/session.scope/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/user.slice/cpu.max", "350000 100000\n");
  write("sys/fs/cgroup/other/cpu.max", "100000 100000\n");  // not above us
  EXPECT_EQ(cpu_quota(root_), 3.5);
  EXPECT_EQ(default_threads(root_, eight), 3);
  EXPECT_EQ(default_threads(root_, Cpus{0, 1}), 2);
  write("sys/fs/cgroup/cpu.max", "20000 100000\n");  // a container sees its own limit at the mount
  EXPECT_EQ(default_threads(root_, eight), 1);
  write("sys/fs/cgroup/cpu.max", "9999999999 100000\n");
  EXPECT_EQ(default_threads(root_, eight), 3);
}

TEST_F(CpuTreeTest, QuotaOfACgroupThatCannotBeSeenIsTheMounts) {
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  write("sys/cpu.max", "100000 100000\n");
  for (const char* line : {"0::/../../sibling\n", "0::/not/there\n", "0::/\n", "0::\n", "0::/"}) {
    write("proc/self/cgroup", line);
    EXPECT_EQ(cpu_quota(root_), 2.0) << line;
  }
  const std::vector<std::string> odd{"", "\n\n", "0", "no colons\n", std::string(20000, 'x')};
  for (const std::string& line : odd) {
    write("proc/self/cgroup", line);
    EXPECT_NO_THROW(cpu_quota(root_)) << line;
  }
}

TEST_F(CpuTreeTest, QuotaOfVersion1) {
  write("proc/self/cgroup", "12:cpuset:/a\n4:cpu,cpuacct:/docker/b\n1:name=systemd:/\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/b/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/b/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpuset/a/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpuset/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  write("sys/fs/cgroup/cpu,cpuacct/docker/b/cpu.cfs_quota_us", "500000\n");
  EXPECT_EQ(cpu_quota(root_), 5.0);
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "80000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "20000\n");
  EXPECT_EQ(cpu_quota(root_), 4.0);
  write("sys/fs/cgroup/unified/cpu.max", "300000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 3.0);
}

TEST(Cpus, OfThisMachineAreOrderedWithoutLoss) {
  Cpus ordered = cpus_by_core();
  std::sort(ordered.begin(), ordered.end());
  const Cpus allowed = allowed_cpus();
  ASSERT_FALSE(allowed.empty());
  EXPECT_EQ(ordered, allowed);
  EXPECT_GE(default_threads(), 1);
  EXPECT_LE(default_threads(), static_cast<int>(allowed.size()));
}

#if defined(__linux__)
TEST(Cpus, FollowTheAffinityOfTheProcess) {
  const int cpu = allowed_cpus().back();
  const pid_t child = ::fork();  // the child's own affinity, and only system calls and files in it
  ASSERT_GE(child, 0);
  if (child == 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(cpu), &one);
    if (::sched_setaffinity(0, sizeof(one), &one) != 0) ::_exit(2);
    if (allowed_cpus() != Cpus{cpu} || cpus_by_core() != Cpus{cpu}) ::_exit(3);
    ::_exit(default_threads() == 1 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

}  // namespace
}  // namespace conclave
