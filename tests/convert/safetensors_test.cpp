#include "convert/safetensors.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "convert/checkpoint_fixture.h"
#include "model/model_fixture.h"

namespace conclave {
namespace {

using testing::put_file;
using testing::safetensors_of;
using testing::TempDir;

// The message of the refusal, or "" where the header was taken.
std::string refusal(const std::string& header, std::uint64_t data_bytes = 64) {
  try {
    parse_safetensors_header(header, data_bytes, "file");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_file);
    return error.what();
  }
  return "";
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, ReadsNamesTypesShapesAndPlaces) {
  const std::string header = R"({"b":)" + entry("BF16", "[2,3]", "[4,16]") + R"(,"__metadata__":{"format":"pt"},"a":)" +
                             entry("F32", "[]", "[0,4]") + R"(,"none":)" + entry("F16", "[0,7]", "[16,16]") +
                             R"(,"eight":)" + entry("F8_E4M3", "[4]", "[20,24]") + "}   ";
  const auto tensors = parse_safetensors_header(header, 24, "file");
  ASSERT_EQ(tensors.size(), 4U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].type, DType::f32);
  EXPECT_TRUE(tensors[0].dims.empty());
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].type, DType::bf16);
  EXPECT_EQ(tensors[1].dims, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(tensors[1].offset, 4U);
  EXPECT_EQ(tensors[1].bytes, 12U);
  EXPECT_EQ(tensors[2].bytes, 0U);
  EXPECT_EQ(tensors[3].dtype, "F8_E4M3");
  EXPECT_FALSE(tensors[3].type.has_value());
}

TEST(Safetensors, RefusesHeadersThatContradictThemselves) {
  const std::string good = entry("F32", "[2]", "[0,8]");
  EXPECT_EQ(refusal(R"({"a":)" + good + "}"), "");
  const std::pair<std::string, std::string> cases[] = {
      {"", "not a JSON object"},
      {"[]", "not a JSON object"},
      {R"({"a":)" + good, "not JSON"},
      {R"({"a":5})", "a number stands where none may be"},
      {R"({"a":[]})", "an array stands where none may be"},
      {R"({"a":null})", "a value of a type that none has"},
      {R"({"a":)" + good + R"(,"a":)" + good + "}", "it is there twice"},
      {R"({"a":{"dtype":"F32"}})", "must have a dtype, a shape and two data_offsets"},
      {R"({"a":{"dtype":"F32","dtype":"F32"}})", "dtype is there twice"},
      {R"({"a":{"colour":1}})", "'colour' is unknown"},
      {R"({"a":)" + entry("F33", "[2]", "[0,8]") + "}", "dtype 'F33' is unknown"},
      {R"({"a":)" + entry("F32", "[2]", "[0,9]") + "}", "take 8 bytes, but its data has 9"},
      {R"({"a":)" + entry("F32", "[2]", "[8,0]") + "}", "ends at 0 before it begins at 8"},
      {R"({"a":)" + entry("F32", "[2]", "[0,8,16]") + "}", "two data_offsets"},
      {R"({"a":)" + entry("F32", "[-2]", "[0,8]") + "}", "a value of a type that none has"},
      {R"({"a":)" + entry("F32", "[2.5]", "[0,8]") + "}", "a value of a type that none has"},
      {R"({"a":)" + entry("F32", "[[2]]", "[0,8]") + "}", "an array stands where none may be"},
      {R"({"a":)" + entry("F32", "[{}]", "[0,8]") + "}", "an object stands where none may be"},
      {R"({"a":)" + entry("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", "more than 8 numbers"},
      {R"({"a":)" + entry("F32", "[4294967296,4294967296]", "[0,8]") + "}", "more elements than 64 bits"},
      {R"({"a":)" + entry("F32", "[18446744073709551615]", "[0,8]") + "}", "more elements than 64 bits"},
      {R"({"a":)" + entry("F4", "[3]", "[0,1]") + "}", "take 2 bytes"},
      {R"({"a":)" + entry("F32", "[2]", "[60,68]") + "}", "only 64: the file is cut short"},
      {R"({"a":)" + entry("F32", "[2]", "[18446744073709551608,18446744073709551616]") + "}", ""},
      {R"({"a":)" + good + R"(,"b":)" + entry("F32", "[2]", "[4,12]") + "}", "tensors a and b overlap"},
  };
  for (const auto& [header, part] : cases) {
    const std::string said = refusal(header);
    EXPECT_NE(said, "") << header;
    EXPECT_NE(said.find(part), std::string::npos) << header << "\n" << said;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
}

TEST(Safetensors, DeepNestingEndsAtTheFirstLevelThatMayNotBe) {
  EXPECT_NE(refusal("{\"a\":" + std::string(1'000'000, '[')), "");
  std::string objects = "{";
  for (int i = 0; i < 200'000; ++i) objects += "\"a\":{";
  EXPECT_NE(refusal(objects), "");
}

TEST(Safetensors, OpensAFileAndRefusesShortOnes) {
  const TempDir dir;
  const std::string bytes = safetensors_of({{"w", {"F32", {3, 5}}}});
  put_file(dir.path() / "good", bytes);
  const SafetensorsFile file = SafetensorsFile::open(dir.path() / "good");
  ASSERT_EQ(file.tensors().size(), 1U);
  const auto data = file.data(file.tensors()[0]);
  ASSERT_EQ(data.size(), 60U);
  float value = 0;
  std::memcpy(&value, data.data() + 56, sizeof value);
  EXPECT_EQ(value, testing::element_of("w", 14));

  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{40}, bytes.size() - 1}) {
    put_file(dir.path() / "short", bytes.substr(0, size));
    EXPECT_THROW(SafetensorsFile::open(dir.path() / "short"), Error) << size;
  }
  const std::uint64_t huge = 1ULL << 60;  // must not be allocated
  put_file(dir.path() / "huge", std::string(reinterpret_cast<const char*>(&huge), 8) + "{}");
  EXPECT_THROW(SafetensorsFile::open(dir.path() / "huge"), Error);
}

}  // namespace
}  // namespace conclave
