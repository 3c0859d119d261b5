#include "base/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace conclave {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kMiB = 1 << 20;

// A made-up "/".
class MemoryTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(root_); }
  void write(const fs::path& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  fs::path root_ = [] {
    std::string pattern = (fs::temp_directory_path() / "conclave-memory-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    return fs::path(pattern);
  }();
};

TEST_F(MemoryTest, IsWhatTheSystemSays) {
  EXPECT_EQ(available_memory(root_), std::nullopt);
  write("proc/meminfo", "MemTotal:       24689764 kB\nMemFree:         100 kB\nMemAvailable:     102400 kB\n");
  EXPECT_EQ(available_memory(root_), 100 * kMiB);
}

TEST_F(MemoryTest, ResidentMemoryIsWhatTheSystemSays) {
  EXPECT_FALSE(resident_memory(root_));
  write("proc/self/status", "Name:\tx\nVmRSS:\t  3072 kB\n");
  EXPECT_FALSE(resident_memory(root_));
  write("proc/self/status", "Name:\tx\nVmRSS:\t  3072 kB\nRssAnon:\t  1024 kB\nRssFile:\t 2048 kB\n");
  const auto resident = resident_memory(root_);
  ASSERT_TRUE(resident);
  EXPECT_EQ(resident->total, 3 * kMiB);
  EXPECT_EQ(resident->own, kMiB);
}

TEST_F(MemoryTest, IsHeldToTheCgroupAndThoseAboveIt) {
  write("proc/meminfo", "MemAvailable:     1024000 kB\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/memory.max", "104857600\n");     // 100 MiB
  write("sys/fs/cgroup/a/memory.current", "62914560\n");  // 60 MiB, 20 of them cached files
  write("sys/fs/cgroup/a/memory.stat", "anon 41943040\nfile 20971520\nfile_mapped 1\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "62914560\n");
  EXPECT_EQ(available_memory(root_), 60 * kMiB);
}

TEST_F(MemoryTest, ReadsVersion1Too) {
  write("proc/meminfo", "MemAvailable:     1024000 kB\n");
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/box\n");
  write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "10485760\n");
  write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", "4194304\n");
  write("sys/fs/cgroup/memory/box/memory.stat", "total_cache 0\n");
  EXPECT_EQ(available_memory(root_), 6 * kMiB);
}

TEST_F(MemoryTest, OddContentCountsAsAbsent) {
  write("proc/meminfo", "MemAvailable: lots\nMemAvailableX: 5 kB\n");
  write("proc/self/cgroup", "nonsense\n::\n0::/../..\n");
  write("sys/fs/cgroup/memory.max", "-5\n");
  EXPECT_EQ(available_memory(root_), std::nullopt);
}

TEST(SizeText, HasThreeDigitsBeforeThePointAtMost) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(1536), "1.50 KiB");
  EXPECT_EQ(size_text(std::uint64_t{17} << 30), "17.00 GiB");
  EXPECT_EQ(size_text(UINT64_MAX), "16.00 EiB");
}

}  // namespace
}  // namespace conclave
