// The packings that encoders and decoders share, and the sizes that dtype.h promises.
#include <gtest/gtest.h>

#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/k_scales.h"
#include "quant/mxfp4.h"
#include "quant/nibbles.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "tensor/dtype.h"

namespace conclave {
namespace {

template <class Block>
void expect_layout(DType type) {
  const DTypeInfo& info = dtype_info(type);
  EXPECT_EQ(sizeof(Block), static_cast<std::size_t>(info.bytes)) << info.name;
  EXPECT_EQ(Block::kValues, static_cast<std::size_t>(info.per_block)) << info.name;
  EXPECT_EQ(alignof(Block), static_cast<std::size_t>(info.alignment)) << info.name;
}

TEST(Layout, BlocksAreWhatDtypeInfoSays) {
  expect_layout<BlockQ4_0>(DType::q4_0);
  expect_layout<BlockQ4_1>(DType::q4_1);
  expect_layout<BlockQ5_0>(DType::q5_0);
  expect_layout<BlockQ5_1>(DType::q5_1);
  expect_layout<BlockQ8_0>(DType::q8_0);
  expect_layout<BlockQ2_K>(DType::q2_k);
  expect_layout<BlockQ3_K>(DType::q3_k);
  expect_layout<BlockQ4_K>(DType::q4_k);
  expect_layout<BlockQ5_K>(DType::q5_k);
  expect_layout<BlockQ6_K>(DType::q6_k);
  expect_layout<BlockIq4_NL>(DType::iq4_nl);
  expect_layout<BlockIq4_XS>(DType::iq4_xs);
  expect_layout<BlockMxfp4>(DType::mxfp4);
}

// One field at a time, every value: no field leaks into another.
TEST(KScalesPacking, RoundTrips) {
  for (std::size_t g = 0; g < 8; ++g) {
    for (int value = 0; value < 64; ++value) {
      KScales scales{};
      scales.scale.fill(0x2A);
      scales.min.fill(0x15);
      scales.scale[g] = static_cast<std::uint8_t>(value);
      scales.min[7 - g] = static_cast<std::uint8_t>(63 - value);
      const KScales back = unpack(pack(scales));
      EXPECT_EQ(back.scale, scales.scale);
      EXPECT_EQ(back.min, scales.min);
    }
  }
}

TEST(KScalesPacking, EveryBitIsUsed) {
  KScales all{};
  all.scale.fill(63);
  all.min.fill(63);
  for (const std::uint8_t byte : pack(all)) EXPECT_EQ(byte, 0xFF);
}

TEST(Nibbles, RoundTrip) {
  std::array<std::uint8_t, 16> qs{};
  for (std::size_t i = 0; i < 32; ++i) set_nibble(qs, i, static_cast<std::uint8_t>((i * 7) % 16));
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(get_nibble(qs, i), (i * 7) % 16);
}

}  // namespace
}  // namespace conclave
