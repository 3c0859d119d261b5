#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace conclave {
namespace {

struct Row {
  DType type;
  std::string_view name;
  std::int64_t per_block;
  std::int64_t bytes;
};

// From the formats' definitions: a scale of 2 bytes and so on.
constexpr Row kRows[] = {
    {DType::f32, "f32", 1, 4},
    {DType::f16, "f16", 1, 2},
    {DType::bf16, "bf16", 1, 2},
    {DType::i32, "i32", 1, 4},
    {DType::u32, "u32", 1, 4},
    {DType::q4_0, "q4_0", 32, 2 + 16},
    {DType::q4_1, "q4_1", 32, 2 + 2 + 16},
    {DType::q5_0, "q5_0", 32, 2 + 4 + 16},
    {DType::q5_1, "q5_1", 32, 2 + 2 + 4 + 16},
    {DType::q8_0, "q8_0", 32, 2 + 32},
    {DType::q2_k, "q2_k", 256, 16 + 64 + 2 + 2},
    {DType::q3_k, "q3_k", 256, 32 + 64 + 12 + 2},
    {DType::q4_k, "q4_k", 256, 2 + 2 + 12 + 128},
    {DType::q5_k, "q5_k", 256, 2 + 2 + 12 + 32 + 128},
    {DType::q6_k, "q6_k", 256, 128 + 64 + 16 + 2},
    {DType::iq4_nl, "iq4_nl", 32, 2 + 16},
    {DType::iq4_xs, "iq4_xs", 256, 2 + 2 + 4 + 128},
    {DType::mxfp4, "mxfp4", 32, 1 + 16},
};

TEST(DTypeTable, HasEveryTypeOnce) {
  EXPECT_EQ(std::size(kRows), static_cast<std::size_t>(kDTypeCount));
  EXPECT_EQ(all_dtypes().size(), static_cast<std::size_t>(kDTypeCount));
  std::set<DType> seen(all_dtypes().begin(), all_dtypes().end());
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kDTypeCount));
}

TEST(DTypeTable, KnowsTheSizeOfABlock) {
  for (const Row& row : kRows) {
    const DTypeInfo& info = dtype_info(row.type);
    EXPECT_EQ(info.name, row.name);
    EXPECT_EQ(info.per_block, row.per_block) << row.name;
    EXPECT_EQ(info.bytes, row.bytes) << row.name;
  }
}

TEST(DTypeTable, AlignsBlocksToWhatDividesThem) {
  for (const DType type : all_dtypes()) {
    const DTypeInfo& info = dtype_info(type);
    EXPECT_EQ(info.bytes % info.alignment, 0) << info.name;
    const std::int64_t widest = !is_block(type)        ? info.bytes
                                : type == DType::mxfp4 ? 1
                                                       : 2;  // an element, or f16 scales
    EXPECT_EQ(info.alignment, widest) << info.name;
  }
}

TEST(DTypeNames, LeadBackToTheirType) {
  for (const DType type : all_dtypes()) {
    std::string name(dtype_info(type).name);
    EXPECT_EQ(dtype_from_name(name), type) << name;
    for (char& c : name) c = static_cast<char>(std::toupper(c));
    EXPECT_EQ(dtype_from_name(name), type) << name;
  }
}

TEST(DTypeNames, AreWholeNames) {
  for (const char* name : {"", "f", "f3", "f322", "q4", "q4_", "q4_kk", " f32", "q4-k", "Q4_K_M"}) {
    EXPECT_EQ(dtype_from_name(name), std::nullopt) << name;
  }
}

TEST(DTypeKinds, AreFloatIntegerOrBlock) {
  for (const DType type : all_dtypes()) {
    EXPECT_EQ(is_float(type) + is_integer(type) + is_block(type), 1) << dtype_info(type).name;
    EXPECT_EQ(is_block(type), dtype_info(type).per_block > 1) << dtype_info(type).name;
  }
  EXPECT_TRUE(is_float(DType::f32) && is_float(DType::f16) && is_float(DType::bf16));
  EXPECT_TRUE(is_integer(DType::i32) && is_integer(DType::u32));
}

}  // namespace
}  // namespace conclave
