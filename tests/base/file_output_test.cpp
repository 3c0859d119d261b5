#include "base/file_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"

namespace conclave {
namespace {

namespace fs = std::filesystem;

class FileOutputTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  static void write(FileOutput& output, std::string_view text) {
    output.write(std::as_bytes(std::span(text.data(), text.size())));
  }
  static void write_whole(const fs::path& target, std::string_view text) {
    FileOutput output(target);
    write(output, text);
    output.commit();
  }
  static std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static std::string refusal(const fs::path& target) {
    try {
      const FileOutput output(target);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_ = [] {
    std::string pattern = (fs::temp_directory_path() / "conclave-output-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    return fs::path(pattern);
  }();
};

TEST_F(FileOutputTest, FollowsLinksToFiles) {
  fs::create_directory(folder_ / "deep");
  std::ofstream(folder_ / "deep" / "file") << "old";
  fs::create_symlink("deep/file", folder_ / "link");
  write_whole(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read(folder_ / "deep" / "file"), "new");
}

TEST_F(FileOutputTest, WritesThroughAFifo) {
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const int reader = ::open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  FileOutput output(fifo);
  EXPECT_EQ(output.temporary_path(), "");
  write(output, "text");
  output.commit();
  output.remove_committed();
  EXPECT_TRUE(fs::is_fifo(fifo));
  std::array<char, 8> got{};
  EXPECT_EQ(::read(reader, got.data(), got.size()), 4);
  EXPECT_STREQ(got.data(), "text");
  ::close(reader);
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileOutputTest, WritesThroughACharacterDevice) {
  fs::create_symlink("/dev/null", folder_ / "null");  // a link: a device that is replaced would be missed
  write_whole(folder_ / "null", "text");
  EXPECT_TRUE(fs::is_character_file(folder_ / "null"));
}

TEST_F(FileOutputTest, RefusesWhatIsNoFile) {
  fs::create_directory(folder_ / "folder");
  EXPECT_NE(refusal(folder_ / "folder").find("folder: is a directory"), std::string::npos);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (folder_ / "socket").native().copy(address.sun_path, sizeof address.sun_path - 1);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_NE(refusal(folder_ / "socket").find("socket: is a block device or a socket"), std::string::npos);
  ::close(listener);
  EXPECT_EQ(entries(), 2U);
}

TEST_F(FileOutputTest, AnInputIsFoundByAnyName) {
  std::ofstream(folder_ / "in") << "text";
  fs::create_symlink("in", folder_ / "link");
  fs::create_hard_link(folder_ / "in", folder_ / "same");
  const std::array inputs = {folder_ / "absent", folder_ / "in"};
  for (const char* name : {"in", "link", "same"}) EXPECT_THROW(require_no_input(folder_ / name, inputs), Error);
  EXPECT_NO_THROW(require_no_input(folder_ / "other", inputs));
  EXPECT_NO_THROW(require_no_input(folder_ / "absent", inputs));
}

}  // namespace
}  // namespace conclave
