#include "convert/recode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "quant/codec.h"

namespace conclave {
namespace {

std::vector<float> numbers(std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = std::sin(static_cast<float>(i) * 0.7F) * static_cast<float>(i % 13);
  return values;
}

std::vector<std::byte> recode(const RecodeJob& job, int threads = 1) {
  ThreadPool pool(threads);
  std::vector<std::byte> out;
  Recoder(pool).run(job, [&](std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
  return out;
}

TEST(Recode, EncodesAsTheCodecDoesWhateverTheThreads) {
  constexpr std::size_t kRows = 300;
  constexpr std::size_t kRow = 256;
  const std::vector<float> values = numbers(kRows * kRow);
  for (const DType to : {DType::f16, DType::bf16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q6_k, DType::mxfp4}) {
    const DTypeInfo& info = dtype_info(to);
    std::vector<std::byte> expected(values.size() / static_cast<std::size_t>(info.per_block) *
                                    static_cast<std::size_t>(info.bytes));
    encode(to, values, expected);
    const RecodeJob whole{.name = "w",
                          .pieces = {{DType::f32, std::as_bytes(std::span(values))}},
                          .piece_elements = static_cast<std::int64_t>(values.size()),
                          .to = to};
    RecodeJob rows{.name = "w", .piece_elements = kRow, .to = to};
    for (std::size_t i = 0; i < kRows; ++i) {
      rows.pieces.push_back({DType::f32, std::as_bytes(std::span(values).subspan(i * kRow, kRow))});
    }
    for (const int threads : {1, 2, 3}) {
      EXPECT_EQ(recode(whole, threads), expected) << info.name;
      EXPECT_EQ(recode(rows, threads), expected) << info.name;
    }
  }
}

TEST(Recode, DecodesBlocksAndCopiesWhatStays) {
  const std::vector<float> values = numbers(1024);
  std::vector<std::byte> blocks(1024 / 32 * 34);
  encode(DType::q8_0, values, blocks);
  std::vector<float> decoded(1024);
  decode(DType::q8_0, blocks, decoded);
  RecodeJob job{.name = "w", .pieces = {{DType::q8_0, blocks}}, .piece_elements = 1024, .to = DType::f32};
  const auto plain = recode(job);
  EXPECT_EQ(std::memcmp(plain.data(), decoded.data(), 4096), 0);
  job.to = DType::q8_0;
  EXPECT_EQ(recode(job), blocks);
}

std::string refusal(std::vector<float> values, DType to) {
  try {
    recode({.name = "the tensor",
            .pieces = {{DType::f32, std::as_bytes(std::span(values))}},
            .piece_elements = static_cast<std::int64_t>(values.size()),
            .to = to},
           2);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Recode, RefusesWhatTheFormatCannotHold) {
  std::vector<float> values(40000, 1.0F);
  values[33000] = NAN;
  values[39000] = INFINITY;
  EXPECT_EQ(refusal(values, DType::q8_0), "tensor the tensor: element 33000 is nan, which q8_0 cannot hold");
  EXPECT_EQ(refusal(values, DType::bf16), "");
  EXPECT_EQ(refusal(values, DType::f16), "");
  values[33000] = -65520.0F;
  EXPECT_EQ(refusal(values, DType::f16), "tensor the tensor: element 33000 is -65520, which f16 cannot hold");
  values[33000] = 65504.0F;
  EXPECT_EQ(refusal(values, DType::f16), "");
}

}  // namespace
}  // namespace conclave
