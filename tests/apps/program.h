// Runs `conclave COMMAND ...` as a shell would: exit codes, what goes to stdout and what to stderr.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace conclave {

struct Outcome {
  int exit_code = -1;  // -1 where a signal ended it
  std::string out;
  std::string err;
};

inline std::string read_all(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ProgramTest : public testing::Test {
 protected:
  explicit ProgramTest(const std::string& command) : command_(command) {
    std::string pattern = (std::filesystem::temp_directory_path() / "conclave-test-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    folder_ = pattern;
  }
  ~ProgramTest() override { std::filesystem::remove_all(folder_); }

  // `arguments` as a shell takes them; `environment` as in "NAME=value".
  Outcome run(const std::string& arguments, const std::string& environment = "") const {
    const std::string line = "env -u CONCLAVE_CPU -u CONCLAVE_MOE_DUMP -u CONCLAVE_MOE_DUMP_PAIRS " + environment +
                             " '" CONCLAVE_BIN_DIR "/conclave' " + command_ + " " + arguments + " >'" + path("stdout") +
                             "' 2>'" + path("stderr") + "'";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_all(path("stdout")), read_all(path("stderr"))};
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // Exit code 1 and one line on stderr.
  static void expect_error(const Outcome& outcome, const std::string& part) {
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(outcome.err.starts_with("error: ")) << outcome.err;
    EXPECT_EQ(lines_of(outcome.err).size(), 1U) << outcome.err;
    EXPECT_TRUE(has(outcome.err, part)) << outcome.err;
  }

  // Exit code 2, nothing on stdout, one line that says what is wrong and one that says where to look.
  void expect_wrong_usage(const std::string& arguments) const {
    const Outcome r = run(arguments);
    EXPECT_EQ(r.exit_code, 2) << arguments << r.err;
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(r.err.starts_with("error: ")) << r.err;
    EXPECT_TRUE(has(r.err, "Try: conclave " + command_ + " --help\n")) << r.err;
    EXPECT_EQ(lines_of(r.err).size(), 2U) << r.err;
  }

  std::string command_;
  std::filesystem::path folder_;
};

}  // namespace conclave
