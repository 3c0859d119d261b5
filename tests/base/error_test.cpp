#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

#include "base/fail.h"

namespace conclave {
namespace {

TEST(Error, CarriesItsCodeAndText) {
  const Error error(ErrorCode::bad_file, "model.gguf: is empty");
  EXPECT_EQ(error.code(), ErrorCode::bad_file);
  EXPECT_STREQ(error.what(), "model.gguf: is empty");
  EXPECT_THROW(throw error, std::runtime_error);
}

TEST(Error, IsThrownFormattedByFail) {
  try {
    fail(ErrorCode::unsupported, "{} of {}", 3, "four");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_STREQ(error.what(), "3 of four");
  }
}

TEST(CheckDeathTest, PrintsPlaceConditionAndValuesAndAborts) {
  const int rows = 7;
  EXPECT_EXIT(CONCLAVE_CHECK(rows == 8, "rows " + std::to_string(rows)), testing::KilledBySignal(SIGABRT),
              "error_test\\.cpp:[0-9]+: bug in conclave: rows == 8 is false: rows 7");
}

TEST(Check, LooksAtItsConditionOnceAndAtItsValuesOnlyInNeed) {
  int looked = 0;
  int told = 0;
  const auto values = [&] {
    ++told;
    return std::string();
  };
  if (looked == 0)
    CONCLAVE_CHECK(++looked == 1, values());
  else
    FAIL() << "the macro is one statement";
  EXPECT_EQ(looked, 1);
  EXPECT_EQ(told, 0);
}

}  // namespace
}  // namespace conclave
