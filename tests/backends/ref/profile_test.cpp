// What a profile holds after programs ran on the reference, and what ops cost.
#include "ops/profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "backends/ref/ref_device.h"
#include "ops/op_test_support.h"

namespace conclave::test {
namespace {

struct Lines {
  std::vector<std::string> lines;
  Profile profile{[this](const std::string& line) { lines.push_back(line); }};
};

TEST(Profile, HasOneEventPerOpInOrder) {
  Host b;
  const Tensor x = b.f32({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  Program program;
  program.softmax({.x = x, .out = x});
  program.matmul({.x = x, .w = b.values(DType::f16, {3, 4}), .out = b.out_f32({2, 3})});
  RefDevice device;
  const auto executable = device.compile(program);
  Lines seen;
  executable->run(&seen.profile);
  ASSERT_EQ(seen.lines.size(), 2U);
  const auto first = nlohmann::json::parse(seen.lines[0]);
  EXPECT_EQ(first["op"], "softmax");
  EXPECT_EQ(first["bytes"], 2 * 2 * 4 * 4) << "x is read and written";
  EXPECT_EQ(first["flops"], 0);
  const auto second = nlohmann::json::parse(seen.lines[1]);
  EXPECT_EQ(second.size(), 6U);
  EXPECT_EQ(second["event"], "op");
  EXPECT_EQ(second["op"], "matmul");
  EXPECT_EQ(second["backend"], "ref");
  EXPECT_EQ(second["bytes"], 2 * 4 * 4 + 3 * 4 * 2 + 2 * 3 * 4);
  EXPECT_EQ(second["flops"], 2 * 2 * 3 * 4);
  EXPECT_TRUE(second["us"].is_number());
  EXPECT_GE(second["us"], 0.0);
  EXPECT_LT(second["us"], 60e6);
  executable->run(&seen.profile);
  EXPECT_EQ(seen.lines.size(), 4U);
  executable->run();
  EXPECT_EQ(seen.lines.size(), 4U) << "no profile, no event";
}

TEST(Profile, LinesHoldNoLineBreak) {
  Host b;
  Lines seen;
  RefDevice().run(Argmax{.x = b.values(DType::f32, {2, 4}), .ids = b.out_i32({2})}, &seen.profile);
  ASSERT_EQ(seen.lines.size(), 1U);
  EXPECT_EQ(seen.lines[0].find('\n'), std::string::npos);
}

class ProfileFile : public testing::Test {
 protected:
  ProfileFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "conclave-profile-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    folder_ = pattern;
  }
  ~ProfileFile() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(ProfileFile, IsAppendedToLineByLine) {
  const auto path = folder_ / "profile.jsonl";
  Profile::to_file(path).event("first");
  Profile::to_file(path).event("second");
  std::ifstream in(path);
  std::string a, b, more;
  EXPECT_TRUE(std::getline(in, a) && std::getline(in, b));
  EXPECT_EQ(a, "first");
  EXPECT_EQ(b, "second");
  EXPECT_FALSE(std::getline(in, more));
}

TEST_F(ProfileFile, IsThereAsSoonAsAnEventIs) {
  const auto path = folder_ / "profile.jsonl";
  Profile profile = Profile::to_file(path);
  profile.event("now");
  EXPECT_EQ(std::filesystem::file_size(path), 4U);
}

TEST_F(ProfileFile, ThatCannotBeOpenedIsAnError) {
  for (const std::filesystem::path& path : {folder_ / "none" / "profile.jsonl", folder_, std::filesystem::path()}) {
    try {
      Profile::to_file(path);
      ADD_FAILURE() << path << " was opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_EQ(error.what(), "profile " + path.string() + ": cannot be opened for writing");
    }
  }
}

TEST_F(ProfileFile, ThatCannotBeWrittenIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  Profile profile = Profile::to_file("/dev/full");
  EXPECT_THROW(profile.event("x"), Error);
}

TEST(Cost, OfAMatmulIsItsProductsAndItsTensors) {
  Host b;
  const Cost cost = cost_of(Matmul{.x = b.values(DType::bf16, {7, 512}),
                                   .w = b.weights(DType::q4_k, {5, 512}),
                                   .bias = b.values(DType::f32, {5}),
                                   .out = b.out_f32({7, 5})});
  EXPECT_EQ(cost.flops, 2 * 7 * 5 * 512);
  EXPECT_EQ(cost.bytes, 7 * 512 * 2 + 5 * 2 * 144 + 5 * 4 + 7 * 5 * 4);
}

TEST(Cost, CountsRowsThatExistNotTheirPadding) {
  Host dense_host(1, Layout::dense);
  Host padded_host(1, Layout::padded);
  const auto cost = [](Host& b) {
    return cost_of(
        Matmul{.x = b.values(DType::f32, {7, 31}), .w = b.values(DType::f32, {5, 31}), .out = b.out_f32({7, 5})});
  };
  EXPECT_EQ(cost(padded_host).bytes, cost(dense_host).bytes);
}

TEST(Cost, OfAnEmbeddingIsTheRowsItReads) {
  Host b;
  const Cost cost =
      cost_of(Embed{.ids = b.integers({3}, 0, 99), .table = b.values(DType::f16, {100, 8}), .out = b.out_f32({3, 8})});
  EXPECT_DOUBLE_EQ(cost.bytes, 3 * 4 + 3 * 8 * 2 + 3 * 8 * 4);
  EXPECT_EQ(cost.flops, 0);
  const Cost many = cost_of(
      Embed{.ids = b.integers({300}, 0, 99), .table = b.values(DType::f16, {100, 8}), .out = b.out_f32({300, 8})});
  EXPECT_DOUBLE_EQ(many.bytes, 300 * 4 + 100 * 8 * 2 + 300 * 8 * 4) << "no more than the table";
}

TEST(Cost, OfAttentionIsEveryCachedPosition) {
  Host b;
  const Attention op{.q = b.values(DType::f32, {2, 4, 8}),
                     .kv = {.k = b.values(DType::f32, {5, 16, 2, 8}),
                            .v = b.values(DType::f32, {5, 16, 2, 6}),
                            .pages = b.integers({1, 3}, 0, 4)},
                     .lengths = b.i32({1}, {40}),
                     .seqs = b.i32({2}, {0, 0}),
                     .positions = b.i32({2}, {38, 39}),
                     .out = b.out_f32({2, 4, 6})};
  EXPECT_EQ(cost_of(op).flops, 2.0 * 2 * 4 * (8 + 6) * 3 * 16);
}

TEST(Cost, OfAnExpertProductIsNoMoreExpertsThanPairs) {
  Host b;
  const auto cost = [&](std::int64_t n_tokens) {
    const MoeMatmul op{
        .x = b.values(DType::f32, {n_tokens, 1, 8}),
        .w = b.values(DType::f32, {10, 4, 8}),
        .rows = GroupedRows{.offsets = b.integers({11}, 0, 0), .row_pair = b.integers({n_tokens * 2}, 0, 0)},
        .out = b.out_f32({n_tokens, 2, 4})};
    const double rest = static_cast<double>(n_tokens) * (8 * 4 + 2 * 4 + 2 * 4 * 4) + 11 * 4;
    EXPECT_EQ(cost_of(op).flops, static_cast<double>(2 * n_tokens * 2 * 4 * 8));
    return cost_of(op).bytes - rest;
  };
  EXPECT_DOUBLE_EQ(cost(3), 6 * 4 * 8 * 4) << "six pairs: six experts at most";
  EXPECT_DOUBLE_EQ(cost(50), 10 * 4 * 8 * 4) << "all ten";
}

}  // namespace
}  // namespace conclave::test
