#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>

namespace conclave {
namespace {

using Strides = std::array<std::int64_t, kMaxRank>;
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

class TensorTest : public testing::Test {
 protected:
  std::shared_ptr<HostBuffer> buffer_ = HostBuffer::make(1000);

  Tensor made(DType type, std::initializer_list<std::int64_t> dims, std::int64_t offset = 0) const {
    return dense(*buffer_, offset, type, dims);
  }

  std::string fault(Tensor t, const std::function<void(Tensor&)>& edit) const {
    edit(t);
    return fault_of_view(t);
  }
};

TEST_F(TensorTest, WithoutABufferIsNotDefined) {
  EXPECT_FALSE(Tensor{}.defined());
  EXPECT_TRUE(made(DType::f32, {1}).defined());
}

TEST_F(TensorTest, DenseHasNoGaps) {
  const Tensor t = made(DType::f32, {2, 3, 5}, 8);
  EXPECT_EQ(t.buffer, buffer_.get());
  EXPECT_EQ(t.byte_offset, 8);
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.strides, (Strides{60, 20, 4, 0}));
  EXPECT_EQ(t.inner(), 5);
  EXPECT_EQ(element_count(t), 30);
  EXPECT_EQ(row_count(t), 6);
  EXPECT_EQ(row_bytes(t), 20);
  EXPECT_EQ(shape_text(t.shape()), "[2,3,5]");
}

TEST_F(TensorTest, DenseCountsTheInnermostDimensionInBlocks) {
  const Tensor t = made(DType::q4_0, {3, 64});
  EXPECT_EQ(t.strides, (Strides{36, 18, 0, 0}));
  EXPECT_EQ(row_bytes(t), 36);
  EXPECT_EQ(element_count(t), 192);
  EXPECT_EQ(dense_bytes(DType::q4_0, t.shape()), 108);
  EXPECT_EQ(byte_range(t).end, 108);
}

TEST_F(TensorTest, DenseOfOneDimension) {
  const Tensor t = made(DType::f16, {7});
  EXPECT_EQ(t.strides, (Strides{2, 0, 0, 0}));
  EXPECT_EQ(row_count(t), 1);
}

TEST_F(TensorTest, SliceOfAnOuterDimensionMovesTheStart) {
  const Tensor t = made(DType::f32, {4, 3, 5}, 8);
  const Tensor part = slice(t, 0, 1, 2);
  EXPECT_EQ(part.byte_offset, 8 + 60);
  EXPECT_EQ(shape_text(part.shape()), "[2,3,5]");
  EXPECT_EQ(part.strides, t.strides);
  EXPECT_EQ(slice(t, 1, 2, 1).byte_offset, 8 + 40);
  EXPECT_EQ(slice(t, 0, 4, 0).dim(0), 0);
  EXPECT_EQ(slice(t, 0, 0, 4), t);
}

TEST_F(TensorTest, SliceOfTheInnermostDimensionTakesWholeBlocks) {
  const Tensor numbers = slice(made(DType::f16, {4, 9}), 1, 2, 3);
  EXPECT_EQ(numbers.byte_offset, 4);
  EXPECT_EQ(numbers.inner(), 3);
  EXPECT_EQ(fault_of_view(numbers), "");
  const Tensor blocks = slice(made(DType::q8_0, {2, 96}), 1, 32, 64);
  EXPECT_EQ(blocks.byte_offset, 34);
  EXPECT_EQ(blocks.stride(0), 102);
  EXPECT_EQ(row_bytes(blocks), 68);
}

TEST_F(TensorTest, SelectOuterDropsADimension) {
  const Tensor t = made(DType::f32, {4, 3, 5}, 8);
  const Tensor part = select_outer(t, 2);
  EXPECT_EQ(part.byte_offset, 8 + 120);
  EXPECT_EQ(part.rank, 2);
  EXPECT_EQ(shape_text(part.shape()), "[3,5]");
  EXPECT_EQ(part.strides, (Strides{20, 4, 0, 0}));
  EXPECT_EQ(part, dense(*buffer_, 128, DType::f32, {3, 5}));
}

TEST_F(TensorTest, ByteRangeReachesTheLastElementOnly) {
  Tensor t = made(DType::f32, {3, 2}, 4);
  EXPECT_EQ(byte_range(t).begin, 4);
  EXPECT_EQ(byte_range(t).end, 28);
  t.strides[0] = 100;  // padding after the last row is not part of it
  EXPECT_EQ(byte_range(t).end, 4 + 200 + 8);
  t.strides[0] = 0;
  EXPECT_EQ(byte_range(t).end, 4 + 8);
}

TEST_F(TensorTest, ByteRangeIsEmptyWhereADimensionIsZero) {
  for (const auto& dims : {std::array<std::int64_t, 3>{0, 2, 2}, {2, 0, 2}, {2, 2, 0}}) {
    EXPECT_TRUE(byte_range(dense(*buffer_, 4, DType::f32, dims)).empty());
  }
}

TEST(ByteRangeTest, OverlapsWhereAByteIsShared) {
  const ByteRange range{10, 20};
  EXPECT_TRUE(range.overlaps({19, 30}));
  EXPECT_TRUE(range.overlaps({0, 11}));
  EXPECT_TRUE(range.overlaps({12, 13}));
  EXPECT_TRUE(range.overlaps({0, 100}));
  EXPECT_FALSE(range.overlaps({20, 30}));
  EXPECT_FALSE(range.overlaps({0, 10}));
  EXPECT_FALSE(range.overlaps({15, 15})) << "an empty range shares nothing";
  EXPECT_FALSE(ByteRange({15, 15}).overlaps(range));
}

TEST_F(TensorTest, AViewInsideItsBufferHasNoFault) {
  EXPECT_EQ(fault_of_view(made(DType::f32, {250})), "");
  EXPECT_EQ(fault_of_view(made(DType::f32, {1, 1, 1, 1}, 996)), "");
  EXPECT_EQ(fault_of_view(made(DType::q8_0, {29, 32}, 14)), "");
}

TEST_F(TensorTest, ZeroDimensionsAreLegal) {
  EXPECT_EQ(fault_of_view(made(DType::f32, {0})), "");
  EXPECT_EQ(fault_of_view(made(DType::f32, {0, 1000000})), "");
  EXPECT_EQ(fault_of_view(made(DType::f32, {1000000, 0})), "");
  EXPECT_EQ(fault_of_view(made(DType::q4_k, {5, 0})), "");
  EXPECT_EQ(fault_of_view(made(DType::f32, {0}, 1000)), "") << "at the end of the buffer";
  EXPECT_EQ(fault(made(DType::f32, {0, 4}), [](Tensor& t) { t.strides[0] = -3; }), "") << "a stride nobody walks";
}

TEST_F(TensorTest, AStrideOfADimensionOfOneIsNotLookedAt) {
  EXPECT_EQ(fault(made(DType::f32, {1, 4}), [](Tensor& t) { t.strides[0] = kMost; }), "");
}

TEST_F(TensorTest, RowsMayBeReadMoreThanOnce) {
  EXPECT_EQ(fault(made(DType::f32, {100000, 4}), [](Tensor& t) { t.strides[0] = 0; }), "");
}

TEST_F(TensorTest, FaultsAreTold) {
  const Tensor t = made(DType::f32, {3, 4});
  EXPECT_EQ(fault(t, [](Tensor& v) { v.rank = 0; }), "has rank 0, expected 1 to 4");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.rank = 5; }), "has rank 5, expected 1 to 4");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.dims[0] = -3; }), "is [-3,4]: a dimension is negative");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.dims[1] = -1; }), "is [3,-1]: a dimension is negative");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.strides[1] = 8; }), "has an inner stride of 8 bytes, expected 4 (dense rows)");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.byte_offset = -4; }), "starts at byte -4");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.byte_offset = 6; }), "starts at byte 6, which is not a multiple of 4");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.strides[0] = -16; }), "has a stride of -16 bytes in dimension 0");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.strides[0] = 18; }), "has a stride of 18 bytes in dimension 0");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.byte_offset = 956; }),
            "is [3,4] of f32 and ends at byte 1004 of a buffer of 1000");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.strides[0] = 496; }),
            "is [3,4] of f32 and ends at byte 1008 of a buffer of 1000");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.byte_offset = 1004, v.dims[0] = 0; }),
            "is [0,4] of f32 and ends at byte 1004 of a buffer of 1000");
  EXPECT_EQ(fault(made(DType::q8_0, {3, 64}), [](Tensor& v) { v.dims[1] = 65; }),
            "is [3,65]: rows of q8_0 come in blocks of 32");
  EXPECT_EQ(fault(made(DType::q8_0, {3, 64}), [](Tensor& v) { v.byte_offset = 1; }),
            "starts at byte 1, which is not a multiple of 2");
  EXPECT_EQ(fault(made(DType::mxfp4, {3, 64}), [](Tensor& v) { v.byte_offset = 1, v.strides[0] = 35; }), "")
      << "blocks of 17 bytes stand anywhere";
}

TEST_F(TensorTest, SizesThatOverflowAreFaults) {
  const Tensor t = made(DType::f32, {3, 4});
  EXPECT_EQ(fault(t, [](Tensor& v) { v.dims[0] = kMost; }), "is [9223372036854775807,4]: its size overflows");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.strides[0] = kMost - 3; }), "is [3,4]: its size overflows");
  EXPECT_EQ(fault(t, [](Tensor& v) { v.byte_offset = kMost - 3, v.strides[0] = 16; }), "is [3,4]: its size overflows");
  EXPECT_EQ(fault(made(DType::f32, {2, 2, 2}),
                  [](Tensor& v) { v.strides[0] = v.strides[1] = (kMost >> 3 << 2) + 0x1000000000000000; }),
            "is [2,2,2]: its size overflows");
}

// The bytes of one row are a product too.
TEST_F(TensorTest, ARowThatOverflowsIsAFault) {
  for (const std::int64_t inner : {kMost, kMost / 4 + 1, std::int64_t{1} << 62, (std::int64_t{1} << 62) + 1}) {
    const std::string text = fault(made(DType::f32, {4}), [&](Tensor& v) { v.dims[0] = inner; });
    EXPECT_EQ(text, "is [" + std::to_string(inner) + "]: its size overflows");
  }
  EXPECT_NE(fault(made(DType::f32, {1, 4}), [](Tensor& v) { v.dims[1] = std::int64_t{1} << 62; }), "");
  EXPECT_NE(fault(made(DType::q8_0, {32}), [](Tensor& v) { v.dims[0] = std::int64_t{1} << 62; }), "");
}

TEST(ShapeText, ListsTheDimensions) {
  const std::int64_t dims[] = {5, 2048};
  EXPECT_EQ(shape_text(dims), "[5,2048]");
  EXPECT_EQ(shape_text(std::span(dims, 1)), "[5]");
  EXPECT_EQ(shape_text({}), "[]");
}

using TensorDeathTest = TensorTest;

TEST_F(TensorDeathTest, DenseNeedsOneToFourDimensions) {
  EXPECT_DEATH(made(DType::f32, {}), "bug in conclave.*dims");
  EXPECT_DEATH(made(DType::f32, {1, 2, 3, 4, 5}), "\\[1,2,3,4,5\\]");
}

TEST_F(TensorDeathTest, SliceStaysInside) {
  const Tensor t = made(DType::f32, {4, 8});
  EXPECT_DEATH(slice(t, 0, 3, 2), "dimension 0 of \\[4,8\\], 2 from 3");
  EXPECT_DEATH(slice(t, 0, -1, 2), "dimension 0 of \\[4,8\\], 2 from -1");
  EXPECT_DEATH(slice(t, 1, 0, -1), "dimension 1 of \\[4,8\\], -1 from 0");
  EXPECT_DEATH(slice(t, 2, 0, 0), "dimension 2 of \\[4,8\\]");
  EXPECT_DEATH(slice(made(DType::q8_0, {2, 96}), 1, 16, 32), "32 from 16");
  EXPECT_DEATH(slice(made(DType::q8_0, {2, 96}), 1, 32, 16), "16 from 32");
}

TEST_F(TensorDeathTest, SelectOuterNeedsAnIndexAndADimensionToSpare) {
  EXPECT_DEATH(select_outer(made(DType::f32, {4, 8}), 4), "4 of \\[4,8\\]");
  EXPECT_DEATH(select_outer(made(DType::f32, {4, 8}), -1), "-1 of \\[4,8\\]");
  EXPECT_DEATH(select_outer(made(DType::f32, {4}), 0), "0 of \\[4\\]");
}

}  // namespace
}  // namespace conclave
