// Decoding, bit for bit against another implementation: blocks with random bytes in every field, special scales, all
// ones.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "golden_file.h"
#include "quant/codec.h"

namespace conclave {
namespace {

struct Format {
  DType type;
  std::uint32_t n_blocks;  // that the golden file holds
};

// Any NaN equals any NaN; everything else by its bits, so that -0 is not 0.
bool same(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

class DecodeTest : public ::testing::TestWithParam<Format> {};

TEST_P(DecodeTest, IsBitExact) {
  const DType type = GetParam().type;
  const test::DecodeGolden golden = test::read_decode_golden(test::name_of(type));
  ASSERT_EQ(golden.n_blocks, GetParam().n_blocks);
  ASSERT_EQ(golden.block_bytes, dtype_info(type).bytes);
  ASSERT_EQ(golden.per_block, dtype_info(type).per_block);

  std::vector<float> out(golden.values.size(), 12345.0F);
  decode(type, golden.blocks, out);
  int finite = 0;
  int wrong = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    finite += std::isfinite(out[i]) && out[i] != 0 ? 1 : 0;
    if (same(out[i], golden.values[i]) || ++wrong > 5) continue;
    ADD_FAILURE() << "block " << i / golden.per_block << " value " << i % golden.per_block << ": " << out[i] << ", not "
                  << golden.values[i];
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(finite, static_cast<int>(out.size() / 2));  // the file is not all zeros and NaN
}

TEST_P(DecodeTest, BlocksMayLieAtAnyAddress) {
  const DType type = GetParam().type;
  const test::DecodeGolden golden = test::read_decode_golden(test::name_of(type));
  std::vector<std::byte> shifted(golden.blocks.size() + 1);
  std::memcpy(shifted.data() + 1, golden.blocks.data(), golden.blocks.size());
  std::vector<float> out(golden.values.size());
  decode(type, std::span(shifted).subspan(1), out);
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(same(out[i], golden.values[i])) << i;
}

TEST_P(DecodeTest, EmptyIsLegal) {
  decode(GetParam().type, {}, {});
}

INSTANTIATE_TEST_SUITE_P(Formats, DecodeTest,
                         ::testing::Values(Format{DType::f32, 511}, Format{DType::f16, 2014}, Format{DType::bf16, 2011},
                                           Format{DType::q4_0, 48}, Format{DType::q4_1, 48}, Format{DType::q5_0, 48},
                                           Format{DType::q5_1, 48}, Format{DType::q8_0, 48}, Format{DType::q2_k, 26},
                                           Format{DType::q3_k, 26}, Format{DType::q4_k, 26}, Format{DType::q5_k, 26},
                                           Format{DType::q6_k, 26}, Format{DType::iq4_nl, 48},
                                           Format{DType::iq4_xs, 26}, Format{DType::mxfp4, 256}),
                         [](const auto& param) { return test::name_of(param.param.type); });

TEST(DecodeComparator, SeesOneBitAndTheSignOfZero) {
  EXPECT_TRUE(same(1.5F, 1.5F));
  EXPECT_TRUE(same(NAN, -NAN));
  EXPECT_FALSE(same(0.0F, -0.0F));
  EXPECT_FALSE(same(1.0F, std::nextafter(1.0F, 2.0F)));
  EXPECT_FALSE(same(NAN, 1.0F));
}

TEST(DecodeDeath, SizesThatDoNotMatchAreABug) {
  std::vector<std::byte> blocks(18);
  std::vector<float> out(33);
  EXPECT_DEATH(decode(DType::q4_0, blocks, out), "q4_0: 33 values and 18 bytes");
  EXPECT_DEATH(decode(DType::q4_0, std::span(blocks).first(17), std::span(out).first(32)), "32 values and 17 bytes");
  EXPECT_DEATH(decode(DType::i32, std::span(blocks).first(4), std::span(out).first(1)), "i32 is not a weight format");
}

}  // namespace
}  // namespace conclave
