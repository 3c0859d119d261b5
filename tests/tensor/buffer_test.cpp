#include "tensor/buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace conclave {
namespace {

TEST(HostBuffer, IsAlignedAndFilledWithZeros) {
  for (const std::int64_t bytes : {1, 3, 64, 65, 4096, 100001}) {
    const auto buffer = HostBuffer::make(bytes);
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->host()) % 64, 0U) << bytes;
    EXPECT_TRUE(std::all_of(buffer->host(), buffer->host() + bytes, [](std::byte b) { return b == std::byte{0}; }))
        << bytes;
  }
}

TEST(HostBuffer, MayBeEmptyAndStillHasAnAddress) {
  const auto buffer = HostBuffer::make(0);
  EXPECT_EQ(buffer->bytes(), 0);
  EXPECT_NE(buffer->host(), nullptr);
}

TEST(HostBuffer, RefusesANegativeSize) {
  try {
    HostBuffer::make(-1);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(), "a buffer of -1 bytes cannot be made");
  }
}

TEST(HostBuffer, SaysWhenThereIsNotEnoughMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the process instead";
#endif
  try {
    HostBuffer::make(std::int64_t{1} << 62);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_STREQ(error.what(), "no host memory for a buffer of 4611686018427387904 bytes");
  }
}

TEST(BorrowedBuffer, IsTheMemoryItWasGiven) {
  std::vector<std::byte> owner(10);
  const BorrowedBuffer buffer(owner.data(), 10);
  EXPECT_EQ(buffer.host(), owner.data());
  EXPECT_EQ(buffer.bytes(), 10);
}

}  // namespace
}  // namespace conclave
