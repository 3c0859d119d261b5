// The editor at a real (pseudo-)terminal: what it gives, what it shows, and how it leaves the terminal.
#include "terminal/line_editor.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "base/error.h"
#include "pty.h"

namespace conclave {
namespace {

using test::PtyProgram;

void tell(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) < 0) ::_exit(3);
}

// Reports every line in brackets, and "end".
void read_lines(int report_fd, const std::filesystem::path& history = {}) {
  LineEditor editor({.history_file = history});
  while (const auto line = editor.read_line("> ")) tell(report_fd, "[" + *line + "]");
  tell(report_fd, "end");
}

class LineEditorTest : public testing::Test {
 protected:
  static PtyProgram::Body lines() {
    return [](int fd) { read_lines(fd); };
  }
  // Starts, types `keys`, and gives all that was read.
  static std::string typed(const std::string& keys) {
    PtyProgram program(lines(), 40, 10);
    EXPECT_TRUE(program.until([&] { return program.screen.line(0) == ">"; }));
    program.send(keys);
    EXPECT_TRUE(WIFEXITED(program.finish()));
    EXPECT_FALSE(program.raw());
    return program.report;
  }
};

TEST_F(LineEditorTest, LinesAndTheirEnd) {
  EXPECT_EQ(typed("hello\rworld\r\x04"), "[hello][world]end");
  EXPECT_EQ(typed("\r\x04"), "[]end");
  EXPECT_EQ(typed("caf\u00e9 \u4e16\u754c \U0001F600\r\x04"), "[caf\u00e9 \u4e16\u754c \U0001F600]end");
}

TEST_F(LineEditorTest, Editing) {
  EXPECT_EQ(typed("abd\x1b[Dc\r\x04"), "[abcd]end");
  EXPECT_EQ(typed("bcd\x01"
                  "a\x05"
                  "e\r\x04"),
            "[abcde]end");
  EXPECT_EQ(typed("one two three\x17\x1b[1;5D\x0b\x19\x19\r\x04"), "[one two two ]end");
  EXPECT_EQ(typed("ab\x04\x1b[D\x04\r\x04"), "[a]end");  // Ctrl-D deletes in a line that is not empty
  EXPECT_EQ(typed("\u4e16\u754c\x7f\r\x04"), "[\u4e16]end");
  EXPECT_EQ(typed("one\x1b\rtwo\r\x04"), "[one\ntwo]end");
}

TEST_F(LineEditorTest, History) {
  EXPECT_EQ(typed("one\rtwo\r\x1b[A\x1b[A\r\x04"), "[one][two][one]end");
  EXPECT_EQ(typed("one\rtwo\rnew\x1b[A\x1b[A\x1b[A\x1b[B\x1b[B\x1b[B!\r\x04"), "[one][two][new!]end");
  EXPECT_EQ(typed("one\r\x1b[Ax\r\x1b[A\x1b[A\r\x04"), "[one][onex][one]end");
}

TEST_F(LineEditorTest, HistoryIsKeptInItsFile) {
  std::string folder = (std::filesystem::temp_directory_path() / "conclave-test-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::filesystem::path file = folder + "/state/history";
  for (const char* keys : {"first\r\x04", "\x1b[A again\r\x04"}) {
    PtyProgram program([&](int fd) { read_lines(fd, file); }, 40, 10);
    EXPECT_TRUE(program.until([&] { return program.raw(); }));
    program.send(keys);
    program.finish();
    EXPECT_TRUE(program.report == "[first]end" || program.report == "[first again]end") << program.report;
  }
  EXPECT_EQ(History(file).entries(), (std::vector<std::string>{"first", "first again"}));
  std::filesystem::remove_all(folder);
}

TEST_F(LineEditorTest, APasteOfSeveralLinesIsOneText) {
  EXPECT_EQ(typed("\x1b[200~one\r\ntwo\rthree\x1b[201~!\r\x04"), "[one\ntwo\nthree!]end");
}

TEST_F(LineEditorTest, CtrlCClearsAndTwiceQuits) {
  EXPECT_EQ(typed("rubbish\x03good\r\x04"), "[good]end");
  EXPECT_EQ(typed("rubbish\x03\x03"), "end");
  EXPECT_EQ(typed("\x03\x03"), "end");
  EXPECT_EQ(typed("\x03x\x7f\x03"
                  "a\r\x04"),
            "[a]end");  // not in a row
}

TEST_F(LineEditorTest, ShowsWhatItHolds) {
  PtyProgram program(lines(), 10, 6);
  const auto shows = [&](std::initializer_list<const char*> rows, int row, int column) {
    const auto same = [&] {
      int i = 0;
      for (const char* text : rows) {
        if (program.screen.line(i++) != text) return false;
      }
      return program.screen.row() == row && program.screen.column() == column;
    };
    EXPECT_TRUE(program.until(same)) << program.screen.line(0) << "/" << program.screen.line(1) << "/"
                                     << program.screen.line(2) << " " << program.screen.row() << ","
                                     << program.screen.column();
  };
  shows({">"}, 0, 2);
  program.send("abcdefgh");
  shows({"> abcdefgh", ""}, 1, 0);
  program.send("ij");
  shows({"> abcdefgh", "ij"}, 1, 2);
  program.send("\x01\u4e16");
  shows({"> \u4e16abcdef", "ghij"}, 0, 4);
  program.send("\x1b[C\x7f");
  shows({"> \u4e16bcdefg", "hij"}, 0, 4);
  program.send("\x15\x0b");
  shows({">", "", ""}, 0, 2);
  program.send("x\x1b\ry\x1b[A");
  shows({"> x", "y"}, 0, 3);
  program.send("\x03");
  shows({">", ""}, 0, 2);
}

TEST_F(LineEditorTest, TheFirstCtrlCSaysHowToQuit) {
  PtyProgram program(lines(), 40, 6);
  EXPECT_TRUE(program.until([&] { return program.raw(); }));
  program.send("\x03");
  EXPECT_TRUE(program.until([&] { return program.screen.line(2) == ">"; }));
  EXPECT_EQ(program.screen.line(1), "(Ctrl-C again or Ctrl-D quits)");
  program.send("\x03");
  program.finish();
  EXPECT_EQ(program.report, "end");
}

TEST_F(LineEditorTest, FollowsTheWidthOfTheTerminal) {
  PtyProgram program(lines(), 20, 6);
  EXPECT_TRUE(program.until([&] { return program.raw(); }));
  program.send("abcdefghij");
  EXPECT_TRUE(program.until([&] { return program.screen.line(0) == "> abcdefghij"; }));
  program.resize(8, 6);
  EXPECT_TRUE(program.until([&] { return program.screen.line(0) == "> abcdef" && program.screen.line(1) == "ghij"; }));
}

TEST_F(LineEditorTest, ATextHigherThanTheScreenStaysOnIt) {
  PtyProgram program(lines(), 20, 4);
  EXPECT_TRUE(program.until([&] { return program.raw(); }));
  program.send("\x1b[200~1\n2\n3\n4\n5\n6\x1b[201~");
  EXPECT_TRUE(program.until([&] { return program.screen.line(3) == "6" && program.screen.line(0) == "3"; }));
  program.send("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A");
  EXPECT_TRUE(program.until([&] { return program.screen.line(0) == "> 1" && program.screen.line(3) == "4"; }));
  program.send("\r\x04");
  program.finish();
  EXPECT_EQ(program.report, "[1\n2\n3\n4\n5\n6]end");
}

TEST_F(LineEditorTest, TheTerminalIsRawOnlyWhileALineIsRead) {
  PtyProgram program(
      [](int fd) {
        termios before{};
        termios after{};
        ::tcgetattr(STDIN_FILENO, &before);
        LineEditor editor({.history_file = {}});
        editor.read_line("> ");
        ::tcgetattr(STDIN_FILENO, &after);
        const bool same =
            after.c_lflag == before.c_lflag && after.c_iflag == before.c_iflag && after.c_oflag == before.c_oflag;
        tell(fd, same ? "as before" : "changed");
        ::pause();
      },
      40, 10);
  EXPECT_TRUE(program.until([&] { return program.raw(); }));
  program.send("x\r");
  EXPECT_TRUE(program.until([&] { return !program.report.empty(); }));
  EXPECT_EQ(program.report, "as before");
  EXPECT_TRUE(program.until([&] { return program.shown.find("\x1b[?2004l") != std::string::npos; }));
}

TEST_F(LineEditorTest, SignalsGiveTheTerminalBackAndThenEndTheProgram) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    PtyProgram program(lines(), 40, 10);
    EXPECT_TRUE(program.until([&] { return program.raw(); }));
    program.send("half a line");
    EXPECT_TRUE(program.until([&] { return program.screen.line(0) == "> half a line" && program.raw(); }));
    ::kill(program.process(), signal);
    const int status = program.finish();
    EXPECT_TRUE(WIFSIGNALED(status)) << signal;
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_FALSE(program.raw()) << signal;
    EXPECT_EQ(program.report, "");
  }
}

// A signal that the program handles itself is the end of the lines.
TEST_F(LineEditorTest, AHandlerOfTheProgramIsCalled) {
  PtyProgram program(
      [](int fd) {
        struct sigaction action {};
        action.sa_handler = [](int) { [[maybe_unused]] const ssize_t count = ::write(2, "handled", 7); };
        ::sigaction(SIGTERM, &action, nullptr);
        read_lines(fd);
      },
      40, 10);
  EXPECT_TRUE(program.until([&] { return program.raw(); }));
  ::kill(program.process(), SIGTERM);
  EXPECT_TRUE(WIFEXITED(program.finish()));
  EXPECT_EQ(program.report, "end");
  EXPECT_NE(program.shown.find("handled"), std::string::npos);
  EXPECT_FALSE(program.raw());
}

TEST_F(LineEditorTest, AnExceptionGivesTheTerminalBack) {
  PtyProgram program(
      [](int fd) {
        int ends[2];
        if (::pipe(ends) != 0) return;
        LineEditor editor({.history_file = {}});
        ::close(0);  // the terminal is gone: setting it up fails
        try {
          editor.read_line("> ");
        } catch (const Error& error) {
          tell(fd, error.what());
        }
      },
      40, 10);
  program.finish();
  EXPECT_TRUE(program.report.starts_with("cannot set up the terminal: ")) << program.report;
  EXPECT_FALSE(program.raw());
}

// A small shell: it runs the editor as a job, says in which mode the terminal is when that stops, and lets it go on.
TEST_F(LineEditorTest, CtrlZSuspendsWithACookedTerminalAndResumes) {
  PtyProgram program(
      [](int fd) {
        ::signal(SIGTTOU, SIG_IGN);
        const pid_t job = ::fork();
        if (job == 0) {
          ::setpgid(0, 0);
          ::tcsetpgrp(0, ::getpid());
          ::signal(SIGTTOU, SIG_DFL);
          read_lines(fd);
          ::_exit(7);
        }
        ::setpgid(job, job);
        int status = 0;
        ::waitpid(job, &status, WUNTRACED);
        termios modes{};
        ::tcgetattr(0, &modes);
        tell(fd, WIFSTOPPED(status) ? "stopped " : "not stopped ");
        tell(fd, (modes.c_lflag & ICANON) != 0 ? "cooked " : "raw ");
        ::tcsetpgrp(0, job);
        ::kill(-job, SIGCONT);
        ::waitpid(job, &status, 0);
        tell(fd, WIFEXITED(status) && WEXITSTATUS(status) == 7 ? " ended" : " lost");
      },
      40, 10);
  EXPECT_TRUE(program.until([&] { return program.raw(); }));
  program.send("half");
  EXPECT_TRUE(program.until([&] { return program.screen.line(0) == "> half"; }));
  program.send("\x1a");
  EXPECT_TRUE(program.until([&] { return program.report == "stopped cooked "; })) << program.report;
  EXPECT_TRUE(program.until([&] { return program.screen.line(1) == "> half" && program.raw(); }));
  program.send(" line\r\x04");
  program.finish();
  EXPECT_EQ(program.report, "stopped cooked [half line]end ended");
}

TEST_F(LineEditorTest, ALargePasteIsQuick) {
  PtyProgram program(lines(), 80, 24);
  EXPECT_TRUE(program.until([&] { return program.raw(); }));
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i) + " of a text that somebody pastes into the chat\n";
  for (std::size_t at = 0; at < text.size(); at += 1000) {  // in pieces: a terminal's queue is short
    program.send((at == 0 ? "\x1b[200~" : "") + text.substr(at, 1000));
    program.until([n = 0]() mutable { return n++ > 0; });
  }
  program.send("\x1b[201~\r\x04");
  program.finish();
  EXPECT_EQ(program.report, "[" + text + "]end");
}

// Without a terminal: lines as they are.
class PlainInputTest : public testing::Test {
 protected:
  static std::string lines_of(const std::string& input) {
    int in[2];
    if (::pipe(in) != 0) throw std::runtime_error("no pipe");
    const pid_t writer = ::fork();
    if (writer == 0) {
      ::close(in[0]);
      tell(in[1], input);
      ::_exit(0);
    }
    ::close(in[1]);
    LineEditor editor({.in_fd = in[0], .out_fd = in[0], .history_file = {}});
    EXPECT_FALSE(editor.interactive());
    std::string lines;
    while (const auto line = editor.read_line("> ")) lines += "[" + *line + "]";
    EXPECT_FALSE(editor.read_line("> ").has_value());
    ::close(in[0]);
    ::waitpid(writer, nullptr, 0);
    return lines;
  }
};

TEST_F(PlainInputTest, LinesAsTheyAre) {
  EXPECT_EQ(lines_of("one\n\ntwo\n"), "[one][][two]");
  EXPECT_EQ(lines_of("no break at the end"), "[no break at the end]");
  EXPECT_EQ(lines_of(""), "");
  EXPECT_EQ(lines_of("\x03\xff\x1b[A\n"), "[\x03\xff\x1b[A]");
}

TEST_F(PlainInputTest, LongAndManyLines) {
  const std::string line(300'000, 'x');
  EXPECT_EQ(lines_of(line + "\ny"), "[" + line + "][y]");
  std::string input;
  std::string expected;
  for (int i = 0; i < 20000; ++i) {
    input += std::to_string(i) + "\n";
    expected += "[" + std::to_string(i) + "]";
  }
  EXPECT_EQ(lines_of(input), expected);
}

}  // namespace
}  // namespace conclave
