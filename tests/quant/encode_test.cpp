// Encoding: the error against other quantisers' on the same values, and what must hold for every encoder.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "golden_file.h"
#include "quant/codec.h"

namespace conclave {
namespace {

constexpr std::array kEncoded = {DType::f16,  DType::bf16, DType::q4_0, DType::q5_0, DType::q8_0,
                                 DType::q4_k, DType::q5_k, DType::q6_k, DType::mxfp4};
constexpr std::array kEncodedBlocks = {DType::q4_0, DType::q5_0, DType::q8_0, DType::q4_k,
                                       DType::q5_k, DType::q6_k, DType::mxfp4};

std::vector<std::byte> encoded(DType type, const std::vector<float>& values) {
  const DTypeInfo& info = dtype_info(type);
  std::vector<std::byte> blocks(values.size() / static_cast<std::size_t>(info.per_block) *
                                static_cast<std::size_t>(info.bytes));
  encode(type, values, blocks);
  return blocks;
}

std::vector<float> round_trip(DType type, const std::vector<float>& values) {
  std::vector<float> out(values.size());
  decode(type, encoded(type, values), out);
  return out;
}

double rmse(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return std::sqrt(sum / static_cast<double>(a.size()));
}

struct EncodeGolden {
  nlohmann::json json;
  std::size_t count = 0;
  std::vector<std::byte> inputs;

  // The steps of tools/golden_quant.py, in f32.
  std::vector<float> make(const nlohmann::json& how) const {
    const auto bases = json.at("bases").get<std::vector<std::string>>();
    const auto found = std::find(bases.begin(), bases.end(), how.at("base").get<std::string>());
    const auto index = static_cast<std::size_t>(found - bases.begin());
    std::vector<float> x = test::to_floats(inputs.data() + index * count * sizeof(float), count);
    const auto scale = static_cast<float>(how.at("scale").get<double>());
    const auto offset = static_cast<float>(how.value("offset", 0.0));
    for (float& value : x) value = (how.value("abs", false) ? std::abs(value) : value) * scale + offset;
    const std::size_t every = how.value("outlier_every", std::size_t{0});
    for (std::size_t i = 0; every > 0 && i < x.size(); i += every) x[i] = how.at("outlier").get<float>();
    return x;
  }

  std::vector<float> values(const std::string& name) const {
    for (const auto& how : json.at("cases")) {
      if (how.at("name") == name) return make(how);
    }
    throw std::runtime_error("no case " + name);
  }
};

const EncodeGolden& golden() {
  static const EncodeGolden read = [] {
    EncodeGolden out;
    std::ifstream file(test::golden_path("encode_errors.json"));
    out.json = nlohmann::json::parse(file);
    out.count = out.json.at("count").get<std::size_t>();
    out.inputs = test::read_golden("encode_inputs.bin");
    return out;
  }();
  return read;
}

TEST(Encode, GoldenIsComplete) {
  EXPECT_EQ(golden().count, 8192U);
  EXPECT_EQ(golden().inputs.size(), 3 * golden().count * sizeof(float));
  EXPECT_EQ(golden().json.at("cases").size(), 16U);
  EXPECT_EQ(golden().json.at("rmse").size(), kEncoded.size());
}

class EncodeTest : public ::testing::TestWithParam<DType> {};

// The yardstick: gguf-py's quantiser where it has one, llama.cpp's (without importance matrix) for the K formats.
TEST_P(EncodeTest, LosesNoMoreThanTheYardstick) {
  constexpr double kMargin = 1.02;
  const auto& reference = golden().json.at("rmse").at(test::name_of(GetParam()));
  ASSERT_EQ(reference.size(), golden().json.at("cases").size());
  for (const auto& how : golden().json.at("cases")) {
    const auto name = how.at("name").get<std::string>();
    const std::vector<float> x = golden().make(how);
    const double ours = rmse(x, round_trip(GetParam(), x));
    EXPECT_LE(ours, kMargin * reference.at(name).get<double>()) << name;
  }
}

TEST_P(EncodeTest, ZerosStayExactZeros) {
  for (const float value : round_trip(GetParam(), std::vector<float>(512, 0.0F))) EXPECT_EQ(value, 0.0F);
  for (const float value : round_trip(GetParam(), std::vector<float>(512, -0.0F))) EXPECT_EQ(value, 0.0F);
}

TEST_P(EncodeTest, SameInputSameBytes) {
  const std::vector<float> x = golden().values("student_t2");
  EXPECT_EQ(encoded(GetParam(), x), encoded(GetParam(), x));
}

// A block does not know its neighbours: the second half alone gives the second half's bytes.
TEST_P(EncodeTest, BlocksAreIndependent) {
  const std::vector<float> x = golden().values("laplace");
  const std::vector<std::byte> whole = encoded(GetParam(), x);
  const auto middle = static_cast<std::ptrdiff_t>(x.size() / 2);
  const std::vector<std::byte> half = encoded(GetParam(), {x.begin() + middle, x.end()});
  EXPECT_TRUE(std::equal(half.begin(), half.end(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() / 2)));
}

TEST_P(EncodeTest, EmptyIsLegal) {
  encode(GetParam(), {}, {});
}

INSTANTIATE_TEST_SUITE_P(Formats, EncodeTest, ::testing::ValuesIn(kEncoded),
                         [](const auto& param) { return test::name_of(param.param); });

class EncodeBlockTest : public ::testing::TestWithParam<DType> {};

TEST_P(EncodeBlockTest, NonFiniteInputIsRefused) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> x(512, 1.0F);
    x[300] = bad;
    try {
      encoded(GetParam(), x);
      ADD_FAILURE() << "no error for " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      const std::string text = error.what();
      EXPECT_NE(text.find(test::name_of(GetParam())), std::string::npos) << text;
      EXPECT_NE(text.find("value 300"), std::string::npos) << text;
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    }
  }
}

// Whatever the magnitude, finite values give finite values, on the right side of zero.
TEST_P(EncodeBlockTest, EveryMagnitudeStaysFinite) {
  const std::vector<float> base = golden().values("normal");
  for (int exponent = -149; exponent <= 127; ++exponent) {
    std::vector<float> x(512);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(std::ldexp(std::clamp(base[i], -1.9F, 1.9F), exponent));
    }
    const std::vector<float> out = round_trip(GetParam(), x);
    const float largest =
        std::abs(*std::max_element(out.begin(), out.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
    ASSERT_TRUE(std::isfinite(largest)) << exponent;
    // No worse than zeros would be.
    EXPECT_LE(rmse(x, out), rmse(x, std::vector<float>(x.size(), 0.0F))) << exponent;
  }
}

TEST_P(EncodeBlockTest, LargestFloatsStayFinite) {
  std::vector<float> x(512, std::numeric_limits<float>::max());
  for (std::size_t i = 0; i < x.size(); i += 3) x[i] = -x[i];
  for (std::size_t i = 1; i < x.size(); i += 5) x[i] = std::numeric_limits<float>::denorm_min();
  for (const float value : round_trip(GetParam(), x)) ASSERT_TRUE(std::isfinite(value));
  const std::vector<float> equal(512, std::numeric_limits<float>::max());
  for (const float value : round_trip(GetParam(), equal)) ASSERT_TRUE(std::isfinite(value) && value > 0);
}

// The scale can follow a constant as far as f16 goes; mxfp4 has one bit of mantissa, so 2.5 becomes 2 or 3.
TEST_P(EncodeBlockTest, ConstantsKeepTheirValue) {
  const double bound = GetParam() == DType::mxfp4 ? 0.2001 : 0x1p-11;
  for (const float value : {1.0F, -1.0F, 0.1F, -0.37F, 3.14159F, 0.6F, 255.5F, -6e4F}) {
    for (const float out : round_trip(GetParam(), std::vector<float>(256, value))) {
      EXPECT_NEAR(out, value, bound * std::abs(value));
    }
  }
}

// What was decoded once is on a grid of the format: encoding it again finds that grid, or in the formats with many
// scales to choose from one that loses far less than the first pass did.
TEST_P(EncodeBlockTest, SecondPassLosesLittle) {
  const DType type = GetParam();
  const double share = dtype_info(type).per_block == 256 ? 0.3 : type == DType::q8_0 ? 0.1 : 0;
  for (const char* name : {"normal", "student_t2", "laplace", "positive"}) {
    const std::vector<float> x = golden().values(name);
    const std::vector<float> once = round_trip(type, x);
    EXPECT_LE(rmse(once, round_trip(type, once)), share * rmse(x, once)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, EncodeBlockTest, ::testing::ValuesIn(kEncodedBlocks),
                         [](const auto& param) { return test::name_of(param.param); });

TEST(Encode, KnowsWhatItCanDo) {
  for (const DType type : all_dtypes()) {
    const bool expected = type == DType::f32 || std::find(kEncoded.begin(), kEncoded.end(), type) != kEncoded.end();
    EXPECT_EQ(can_encode(type), expected) << dtype_info(type).name;
  }
}

TEST(Encode, FloatsTakeWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const std::vector<float> out = round_trip(type, {infinity, -infinity, NAN, 1.0F});
    EXPECT_EQ(out[0], infinity);
    EXPECT_EQ(out[1], -infinity);
    EXPECT_TRUE(std::isnan(out[2]));
    EXPECT_EQ(out[3], 1.0F);
  }
}

TEST(Encode, Q8LevelsCanBeNegated) {
  const std::vector<std::byte> blocks = encoded(DType::q8_0, golden().values("student_t2"));
  for (std::size_t b = 0; b < blocks.size(); b += 34) {
    for (std::size_t i = 2; i < 34; ++i) ASSERT_NE(blocks[b + i], std::byte{0x80});
  }
}

TEST(EncodeDeath, MisuseIsABug) {
  std::vector<float> values(32);
  std::vector<std::byte> blocks(20);
  EXPECT_DEATH(encode(DType::q4_1, values, blocks), "q4_1 has no encoder");
  EXPECT_DEATH(encode(DType::q4_0, values, blocks), "q4_0: 32 values and 20 bytes");
}

}  // namespace
}  // namespace conclave
