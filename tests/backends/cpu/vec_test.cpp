// Every row's Vec against Generic, bit for bit.
#include "backends/cpu/vec_test.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <cstring>
#include <string>
#include <vector>

namespace conclave {
namespace {

// Pages that may be used, and one after them that may not.
class EdgeMemory {
 public:
  EdgeMemory() : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    pages_ =
        static_cast<std::byte*>(mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (pages_ != MAP_FAILED) usable_ = mprotect(pages_ + page_, page_, PROT_NONE) == 0;
  }
  ~EdgeMemory() {
    if (pages_ != MAP_FAILED) munmap(pages_, 2 * page_);
  }
  EdgeMemory(const EdgeMemory&) = delete;
  EdgeMemory& operator=(const EdgeMemory&) = delete;
  bool usable() const { return usable_; }
  std::byte* end() const { return pages_ + page_; }

 private:
  std::size_t page_;
  std::byte* pages_;
  bool usable_ = false;
};

using RunVec = void (*)(const VecRun& run);

std::vector<VecResult> results(RunVec row, const EdgeMemory& memory) {
  std::vector<VecResult> all;
  const auto take = [](void* self, const VecResult& result) {
    static_cast<std::vector<VecResult>*>(self)->push_back(result);
  };
  row({.sink = {.self = &all, .take = take}, .end = memory.end()});
  return all;
}

bool is_nan(std::uint32_t bits) {
  return (bits & 0x7FFFFFFFU) > 0x7F800000U;
}

// Empty where there is none.
std::string first_difference(const std::vector<VecResult>& want, const std::vector<VecResult>& got) {
  if (want.size() != got.size()) return fmt::format("{} results, not {}", got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    const VecResult& w = want[i];
    const VecResult& g = got[i];
    if (std::strcmp(w.function, g.function) != 0 || w.input != g.input) return fmt::format("result {} is another's", i);
    for (int lane = 0; lane < 16; ++lane) {
      const std::uint32_t a = w.lanes[lane];
      const std::uint32_t b = g.lanes[lane];
      if (a == b || (w.arithmetic && is_nan(a) && is_nan(b))) continue;
      return fmt::format("{}, input {}, lane {}: {:#010x}, not {:#010x}", g.function, g.input, lane, b, a);
    }
  }
  return {};
}

void check_vec(RunVec row) {
  const EdgeMemory memory;
  ASSERT_TRUE(memory.usable());
  const std::vector<VecResult> want = results(run_generic_vec, memory);
  EXPECT_GT(want.size(), 100000U);
  EXPECT_EQ(first_difference(want, results(row, memory)), "");
}

TEST(Vec, TheTestItselfSeesOneBit) {
  const VecResult one{"max", 3, false, {0x7FC00000U, 5}};
  VecResult other = one;
  EXPECT_EQ(first_difference({one}, {other}), "");
  other.lanes[0] ^= 1U;
  EXPECT_EQ(first_difference({one}, {other}), "max, input 3, lane 0: 0x7fc00001, not 0x7fc00000");
  other.arithmetic = true;
  EXPECT_EQ(first_difference({other}, {one}), "");
  other.lanes[1] ^= 1U;
  EXPECT_EQ(first_difference({other}, {one}), "max, input 3, lane 1: 0x00000005, not 0x00000004");
  EXPECT_NE(first_difference({one}, {}), "");
}

// FNV-1a over every result, each NaN of arithmetic taken as the same one.
std::uint64_t digest(const std::vector<VecResult>& all) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const VecResult& result : all) {
    for (const std::uint32_t lane : result.lanes) {
      hash = (hash ^ (result.arithmetic && is_nan(lane) ? 0x7FC00000U : lane)) * 0x100000001B3U;
    }
  }
  return hash;
}

// What makes two machines with different rows agree. The number changes with the inputs of vec_test.h, not with a row.
TEST(Vec, GenericIsTheSameOnEveryMachine) {
  const EdgeMemory memory;
  ASSERT_TRUE(memory.usable());
  EXPECT_EQ(digest(results(run_generic_vec, memory)), 0xCCC616BD62E02E26U);
}

#if defined(__x86_64__)
TEST(Vec, Avx2IsGeneric) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    GTEST_SKIP() << "this machine has no AVX2 with FMA";
  }
  check_vec(run_avx2_vec);
}

TEST(Vec, Avx512IsGeneric) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vnni")) {
    GTEST_SKIP() << "this machine has no AVX-512 with BW, VL, DQ and VNNI";
  }
  check_vec(run_avx512_vec);
}
#elif defined(__aarch64__)
TEST(Vec, NeonIsGeneric) {
  check_vec(run_neon_vec);
}

TEST(Vec, NeonDotprodIsGeneric) {
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) == 0) GTEST_SKIP() << "this machine has no dot product instructions";
  check_vec(run_neon_dotprod_vec);
}
#endif

}  // namespace
}  // namespace conclave
