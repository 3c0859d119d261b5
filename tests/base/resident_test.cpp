#include "base/resident.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace conclave {
namespace {

TEST(Resident, PagesAreThereOnceTheyWereTouched) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t size = 8 * page;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const std::span<const std::byte> all(static_cast<const std::byte*>(memory), size);
  EXPECT_FALSE(is_resident(all));
  const auto some = all.subspan(page + 10, 2 * page);  // begins and ends inside of pages
  read_in(some);
  EXPECT_TRUE(is_resident(some));
  EXPECT_FALSE(is_resident(all));
  read_in(all);
  EXPECT_TRUE(is_resident(all));
  EXPECT_TRUE(is_resident({}));
  read_in({});
  ::munmap(memory, size);
}

}  // namespace
}  // namespace conclave
