#include "terminal/history.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace conclave {
namespace {

namespace fs = std::filesystem;

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() {
    std::string pattern = (fs::temp_directory_path() / "conclave-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    folder_ = pattern;
    file_ = folder_ / "state" / "conclave" / "history";
  }
  ~HistoryTest() override { fs::remove_all(folder_); }

  std::string content() const {
    std::ostringstream text;
    text << std::ifstream(file_, std::ios::binary).rdbuf();
    return text.str();
  }
  void put(const std::string& bytes) const {
    fs::create_directories(file_.parent_path());
    std::ofstream(file_, std::ios::binary) << bytes;
  }

  fs::path folder_;
  fs::path file_;
};

TEST_F(HistoryTest, IsKeptForTheNextTime) {
  {
    History history(file_);
    for (const char* line : {"one", "two\nlines", "back\\slash n", "", "  ", "back\\slash n"}) history.add(line);
    EXPECT_EQ(history.entries(), (std::vector<std::string>{"one", "two\nlines", "back\\slash n"}));
  }
  EXPECT_EQ(content(), "one\ntwo\\nlines\nback\\\\slash n\n");
  EXPECT_EQ(History(file_).entries(), (std::vector<std::string>{"one", "two\nlines", "back\\slash n"}));
}

TEST_F(HistoryTest, IsForItsOwnerAlone) {
  put("old\n");
  fs::permissions(file_, fs::perms::all);
  History(file_).add("secret");
  struct stat facts {};
  ASSERT_EQ(::stat(file_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0600U);
}

TEST_F(HistoryTest, TwoAtOnceKeepBoth) {
  History first(file_);
  History second(file_);
  first.add("a");
  second.add("b");
  first.add("c");
  EXPECT_EQ(content(), "a\nb\nc\n");
}

TEST_F(HistoryTest, StaysShort) {
  std::string bytes;
  for (int i = 0; i < 2500; ++i) bytes += std::to_string(i) + "\n";
  put(bytes);
  History history(file_);
  ASSERT_EQ(history.entries().size(), History::kMaxEntries);
  EXPECT_EQ(history.entries().front(), "1500");
  EXPECT_TRUE(content().starts_with("1500\n"));  // written anew
  history.add("x");
  EXPECT_EQ(history.entries().size(), History::kMaxEntries);
  EXPECT_EQ(history.entries().back(), "x");
}

TEST_F(HistoryTest, ABadFileIsNoError) {
  put(std::string("a\x1b[31m\xff\0b\n\n\\\n", 13));
  EXPECT_EQ(History(file_).entries(), (std::vector<std::string>{"a[31mb", "\\"}));
  EXPECT_NO_THROW(History(folder_).add("x"));  // a folder
  EXPECT_NO_THROW(History("/proc/no/such/place").add("x"));
  EXPECT_NO_THROW(History("/dev/full").add("x"));
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_NO_THROW(History(folder_ / "pipe").add("x"));  // and does not wait
}

TEST_F(HistoryTest, LongEntriesStayInMemory) {
  History history(file_);
  history.add(std::string(100'000, 'x'));
  history.add("short");
  EXPECT_EQ(history.entries().size(), 2U);
  EXPECT_EQ(content(), "short\n");
}

TEST(HistoryFile, IsUnderTheStateFolder) {
  const auto file_with = [](const char* state, const char* home) {
    state == nullptr ? ::unsetenv("XDG_STATE_HOME") : ::setenv("XDG_STATE_HOME", state, 1);
    home == nullptr ? ::unsetenv("HOME") : ::setenv("HOME", home, 1);
    return default_history_file().string();
  };
  EXPECT_EQ(file_with("/s", "/h"), "/s/conclave/history");
  EXPECT_EQ(file_with("relative", "/h"), "/h/.local/state/conclave/history");
  EXPECT_EQ(file_with(nullptr, "/h"), "/h/.local/state/conclave/history");
  EXPECT_EQ(file_with(nullptr, nullptr), "");
}

}  // namespace
}  // namespace conclave
