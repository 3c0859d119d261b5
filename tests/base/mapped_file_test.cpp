#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file_output.h"

namespace conclave {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_ = [] {
    std::string pattern = (std::filesystem::temp_directory_path() / "conclave-base-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    return std::filesystem::path(pattern);
  }();
  std::filesystem::path path_ = folder_ / "file";
};

TEST_F(MappedFileTest, ReadsAndMaps) {
  std::ofstream(path_) << "0123456789";
  MappedFile file = MappedFile::open(path_);
  EXPECT_EQ(file.size(), 10U);
  std::array<std::byte, 4> four{};
  EXPECT_EQ(file.read_at(2, four), 4U);
  EXPECT_EQ(four[3], std::byte{'5'});
  EXPECT_EQ(file.read_at(8, four), 2U);
  EXPECT_EQ(file.read_at(10, four), 0U);
  EXPECT_EQ(file.read_at(~std::uint64_t{0}, four), 0U);
  EXPECT_TRUE(file.mapped().empty());
  EXPECT_EQ(file.map()[9], std::byte{'9'});
  MappedFile other = std::move(file);
  EXPECT_EQ(other.mapped()[0], std::byte{'0'});

  EXPECT_NO_THROW(other.require_not_shrunk());
  std::filesystem::resize_file(path_, 20);
  EXPECT_NO_THROW(other.require_not_shrunk());
  std::filesystem::resize_file(path_, 9);
  EXPECT_THROW(other.require_not_shrunk(), Error);
}

TEST_F(MappedFileTest, EmptyAndAbsent) {
  std::ofstream(path_).close();
  MappedFile file = MappedFile::open(path_);
  EXPECT_EQ(file.size(), 0U);
  EXPECT_TRUE(file.map().empty());
  EXPECT_THROW(MappedFile::open(folder_), Error);
  EXPECT_THROW(MappedFile::open(folder_ / "absent"), Error);
  EXPECT_THROW(MappedFile::open(std::string("a\0b", 3)), Error);
}

TEST_F(MappedFileTest, OutputAppearsWholeOrNotAtAll) {
  const std::string large(1 << 20, 'x');
  {
    FileOutput output(path_);
    output.write(std::as_bytes(std::span(large)));
    output.write(std::as_bytes(std::span("end", 3)));
    EXPECT_FALSE(std::filesystem::exists(path_));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  FileOutput output(path_);
  FileOutput second(path_);  // another temporary name
  output.write(std::as_bytes(std::span("end", 3)));
  output.write(std::as_bytes(std::span(large)));
  output.commit();
  EXPECT_EQ(std::filesystem::file_size(path_), large.size() + 3);
  output.remove_committed();
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_THROW(FileOutput(folder_ / "absent" / "file"), Error);
  EXPECT_THROW(FileOutput(""), Error);
}

}  // namespace
}  // namespace conclave
