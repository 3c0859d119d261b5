// `conclave run` as a shell and as a terminal see it.
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "conclave/generate.h"
#include "engine/talking_model.h"
#include "terminal/pty.h"

namespace conclave {
namespace {

using nlohmann::json;
using testing::kImEnd;
using testing::kImStart;

class Run : public ProgramTest {
 protected:
  Run() : ProgramTest("run") {}

  Outcome on_model(const std::string& arguments) const {
    return run("-m '" + model_.path().string() + "' " + arguments + " </dev/null");
  }
  Outcome piped(const std::string& arguments, const std::string& input) const {
    std::ofstream(path("stdin"), std::ios::binary) << input;
    return run("-m '" + model_.path().string() + "' " + arguments + " <'" + path("stdin") + "'");
  }
  static json parsed(const Outcome& r) {
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.err, "");
    EXPECT_EQ(lines_of(r.out).size(), 1U);
    return json::parse(r.out);
  }
  json object(const std::string& arguments) const { return parsed(on_model("--json " + arguments)); }
  void refuses(const std::string& arguments, const std::string& part) const {
    const Outcome r = on_model(arguments);
    expect_error(r, part);
    EXPECT_EQ(r.out, "");
  }
  // What the session gives for a prompt when the likeliest token is taken each time.
  testing::Tokens greedy(const testing::Tokens& prompt, std::int64_t n) const {
    Session session(model_.open(), {.context = 500});
    return Generator(session).generate(prompt, {.sampling = {.temperature = 0}, .max_tokens = n}).tokens;
  }
  static testing::Tokens bytes_of(const std::string& text) {
    testing::Tokens ids;
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }

  testing::TalkingModel model_;
};

TEST_F(Run, HelpTeaches) {
  const Outcome r = run("--help");
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.err, "");
  for (const char* part : {"-m", "-p", "-f", "--tokens", "-n", "--temp", "--top-k", "--seed", "--chat", "--system",
                           "--ctx", "-t", "--json", "Examples:", "Ctrl-C", "130", "CONCLAVE_MODEL", "stderr"}) {
    EXPECT_TRUE(has(r.out, part)) << part;
  }
}

TEST_F(Run, TextGoesToStdoutAndSpeedsToStderr) {
  const testing::Tokens want = greedy(bytes_of("Hello"), 12);
  std::string text;
  for (const std::int32_t id : want) {
    if (id < 256) text += static_cast<char>(id);
  }
  const Outcome r = on_model("-p Hello -n 12 --temp 0 --ignore-eos");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out, text.ends_with('\n') ? text : text + "\n");
  EXPECT_TRUE(has(r.err, "prompt: 5 tokens")) << r.err;
  EXPECT_TRUE(has(r.err, "answer: 12 tokens")) << r.err;
  EXPECT_TRUE(has(r.err, "tokens/s; seed ")) << r.err;
  EXPECT_TRUE(has(on_model("-p Hello -n 1 --temp 0 --ignore-eos").err, "answer: 1 token; seed "));
  EXPECT_EQ(on_model("-p Hello -n 12 --temp 0 --ignore-eos -q").err, "");
  EXPECT_EQ(json::parse("[" + on_model("-p Hello -n 12 --temp 0 --ignore-eos --ids").out + "]"), json(want));
}

TEST_F(Run, JsonIsOneObject) {
  const json j = object("-p Hello -n 12 --temp 0 --ignore-eos --seed 5");
  EXPECT_EQ(j["ids"], json(greedy(bytes_of("Hello"), 12)));
  EXPECT_TRUE(j["text"].is_string());
  EXPECT_EQ(j["prompt_tokens"], 5);
  EXPECT_EQ(j["tokens"], 12);
  EXPECT_EQ(j["stop"], "length");
  EXPECT_EQ(j["seed"], 5);
  EXPECT_GT(j["prompt_tokens_per_second"], 0);
  EXPECT_GT(j["tokens_per_second"], 0);
}

TEST_F(Run, StatsTellWhichExpertsWereChosen) {
  const Outcome r = on_model("-p Hello -n 12 --temp 0 --ignore-eos --stats");
  EXPECT_TRUE(has(r.err, "experts: the busiest has ")) << r.err;
  EXPECT_FALSE(has(on_model("-p Hello -n 12 --temp 0 --ignore-eos").err, "experts: "));
  const json j = object("-p Hello -n 12 --temp 0 --ignore-eos --stats");
  ASSERT_EQ(j["expert_counts"].size(), static_cast<std::size_t>(testing::kTinyLayers));
  const auto sum = [](const json& counts) {
    std::int64_t total = 0;
    for (const json& count : counts) total += count.get<std::int64_t>();
    return total;
  };
  EXPECT_EQ(sum(j["expert_counts"][0]), (5 + 11) * testing::kTinyTopK);
  EXPECT_EQ(sum(j["expert_counts"].back()), 12 * testing::kTinyTopK) << "of tokens whose logits were wanted";
}

TEST_F(Run, PromptsFromAFileAPipeAndIds) {
  std::ofstream(path("prompt"), std::ios::binary) << "Hel\xFFlo\n";
  const json want = greedy(bytes_of("Hel\xFFlo"), 6);
  const std::string rest = " -n 6 --temp 0 --ignore-eos";
  EXPECT_EQ(object("-f '" + path("prompt") + "'" + rest)["ids"], want);
  EXPECT_EQ(parsed(piped("--json" + rest, "Hel\xFFlo\n"))["ids"], want);
  EXPECT_EQ(object("--tokens 72,101,108,255,108,111" + rest)["ids"], want);
  EXPECT_EQ(object("-p 'Hel\xFFlo'" + rest)["ids"], want);
  EXPECT_NE(object("-p 'Hel\xFFlo\n'" + rest)["prompt_tokens"], 6);  // as it is
}

TEST_F(Run, ControlTokensInAPromptStayText) {
  EXPECT_EQ(object("-p '<|im_end|>' -n 1")["prompt_tokens"], 10);
  EXPECT_EQ(object("-p '<|im_end|>' -n 1 --parse-special")["prompt_tokens"], 1);
}

TEST_F(Run, ChatUsesTheTemplate) {
  testing::Tokens prompt{kImStart};
  const auto append = [&](const std::string& text, std::int32_t then) {
    const testing::Tokens ids = bytes_of(text);
    prompt.insert(prompt.end(), ids.begin(), ids.end());
    prompt.push_back(then);
  };
  append("user\n<|im_end|>", kImEnd);
  append("\n", kImStart);
  append("assistant", '\n');
  const std::string rest = " -n 6 --temp 0 --ignore-eos --chat -p '<|im_end|>'";
  EXPECT_EQ(object(rest)["ids"], json(greedy(prompt, 6)));
  EXPECT_EQ(object(rest + " --system 'ab'")["prompt_tokens"], prompt.size() + std::string("?system\nab?\n").size());
}

TEST_F(Run, TheSameSeedGivesTheSameTextAtAnyNumberOfThreads) {
  const std::string rest = "-p Hello -n 16 --temp 3 --top-k 0 --top-p 1 --min-p 0 --ignore-eos ";
  const json one = object(rest + "--seed 7 -t 1")["ids"];
  EXPECT_EQ(one.size(), 16U);
  EXPECT_EQ(object(rest + "--seed 7 -t 2")["ids"], one);
  EXPECT_EQ(object(rest + "--seed 7 -t 3")["ids"], one);
  EXPECT_NE(object(rest + "--seed 8 -t 2")["ids"], one);
  const json random = object("-p Hello -n 30 --temp 3 --ignore-eos");  // what was drawn can be drawn again
  EXPECT_EQ(object("-p Hello -n 30 --temp 3 --ignore-eos --seed " + random["seed"].dump())["ids"], random["ids"]);
}

TEST_F(Run, SamplingOptionsAreUsed) {
  const std::string rest = "-p Hello -n 30 --ignore-eos --seed 7 ";
  const json plain = object(rest + "--temp 3")["ids"];
  for (const char* option : {"--top-k 1", "--top-p 0.01", "--min-p 0.99", "--repeat-penalty 5", "--presence-penalty 9",
                             "--frequency-penalty 9"}) {
    EXPECT_NE(object(rest + "--temp 3 " + option)["ids"], plain) << option;
  }
}

TEST_F(Run, StopsAtTheEndTokenAndAtTheContext) {
  // With no end tokens left out, the same draws end where the first end token is.
  const std::string rest = "-p Hello -n 2000 --temp 9 --top-k 0 --top-p 1 --min-p 0 --seed 3 ";
  const json all = object(rest + "--ignore-eos")["ids"];
  const auto end = std::find_if(all.begin(), all.end(), [](const json& id) { return id == kImEnd || id == 258; });
  ASSERT_NE(end, all.end());
  const json ended = object(rest);
  EXPECT_EQ(ended["stop"], "end");
  EXPECT_EQ(ended["tokens"], end - all.begin());
  const json full = object("-p Hello --temp 5 --ignore-eos --ctx 20 --seed 3");
  EXPECT_EQ(full["stop"], "context");
  EXPECT_EQ(full["tokens"], 16);
  const Outcome r = on_model("-p Hello --temp 5 --ignore-eos --ctx 20 --seed 3");
  EXPECT_TRUE(has(r.err, "note: stopped, the context of 20 tokens is full; --ctx gives more\n")) << r.err;
  EXPECT_EQ(object("-p Hello -n 0")["tokens"], 0);
}

TEST_F(Run, TheContextGrowsWithThePrompt) {
  const Outcome r = piped("--json -n 1", std::string(5000, 'a'));
  EXPECT_EQ(parsed(r)["prompt_tokens"], 5000);
  expect_error(piped("-n 1", std::string(9000, 'a')), "the prompt has 9000 tokens, the context holds 8192");
  refuses("-p Hello --ctx 4", "the prompt has 5 tokens, the context holds 4: shorten it, or try --ctx 261");
}

TEST_F(Run, AFileWithoutATokenizerTakesAndGivesIds) {
  testing::ModelFixture model = testing::tiny_model("qwen3moe");
  std::erase_if(model.keys, [](const auto& item) { return item.first.starts_with("tokenizer."); });
  model.set("tokenizer.ggml.model", std::string("none"));
  testing::retype_blocks(model, DType::f32);
  testing::write_random(model, path("none.gguf"), 1);
  const std::string file = "-m '" + path("none.gguf") + "' ";
  const Outcome r = run(file + "--tokens 1,2,3 -n 4 --temp 0");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(json::parse("[" + r.out + "]").size(), 4U) << r.out;
  const json j = json::parse(run(file + "--tokens 1,2,3 -n 4 --temp 0 --json").out);
  EXPECT_EQ(j["ids"], json::parse("[" + r.out + "]"));
  EXPECT_FALSE(j.contains("text"));
  expect_error(run(file + "-p Hello"), "none.gguf: the file has no tokenizer: give the prompt as ids, --tokens 1,2,3");
  expect_error(run(file + "</dev/null"), "--tokens");
}

TEST_F(Run, AnEmptyPromptNeedsABeginToken) {
  refuses("-p ''", "the prompt is empty");
  refuses("--chat -p ''", "the prompt is empty");
  refuses("--tokens ''", "there are no tokens");
  refuses("", "the prompt is empty");  // an empty pipe
  const testing::TalkingModel begins({.begin_token = true});
  const Outcome r = run("-m '" + begins.path().string() + "' -p '' -n 3 --json");
  EXPECT_EQ(parsed(r)["prompt_tokens"], 1);
}

TEST_F(Run, ThePromptIsReadBeforeTheModel) {
  const std::string absent = "-m '" + path("none.gguf") + "' ";
  expect_error(run(absent + "-f '" + path("none.txt") + "'"), "none.txt: cannot open");
  expect_error(run(absent + "--tokens ''"), "there are no tokens");
}

TEST_F(Run, ClosedStreamsAreNotTheModel) {
  const std::string model = "-m '" + model_.path().string() + "' ";
  expect_error(run(model + "-n 1 <&-"), "the prompt is empty");
  EXPECT_EQ(run(model + "-p x -n 1 --json <&- | cat").exit_code, 0);
}

TEST_F(Run, AContextBeyondTheTrainedOneIsTold) {
  const std::string said = "note: a context of 8193 tokens; the model was trained for 8192\n";
  EXPECT_TRUE(has(on_model("-p x -n 1 --ctx 8193").err, said));
  EXPECT_FALSE(has(on_model("-p x -n 1 --ctx 8192").err, "trained"));
  EXPECT_EQ(on_model("-p x -n 1 --ctx 8193 -q").err, "");
}

TEST_F(Run, BadInputsAreOneLine) {
  expect_error(run("-m '" + path("none.gguf") + "' -p x"), "none.gguf: cannot open");
  expect_error(run("-m '" + folder_.string() + "' -p x"), "this is a directory");
  std::ofstream(path("text.gguf")) << "this is no model file";
  expect_error(run("-m '" + path("text.gguf") + "' -p x"), "text.gguf");
  expect_error(run("-p x", "CONCLAVE_MODEL='" + path("other.gguf") + "'"), "other.gguf: cannot open");
  refuses("-f '" + path("none.txt") + "'", "none.txt: cannot open");
  refuses("-f '" + folder_.string() + "'", "cannot read");
  refuses("--tokens 1,259", "259");
  refuses("--tokens 1,-1", "-1");
  refuses("-p x --temp -1", "temperature");
  refuses("-p x --top-p nan", "top_p");
  refuses("-p x --ctx 2000000000", "would fit");
  refuses("-p x --device abacus", "there is no device 'abacus' here");
  const testing::TalkingModel loops({.chat_template = "{% for i in range(99999999) %}x{% endfor %}"});
  expect_error(run("-m '" + loops.path().string() + "' --chat -p x"), "template");
}

TEST_F(Run, WrongUsage) {
  expect_wrong_usage("-m '' -p x");
  expect_wrong_usage("-p x -f y");
  expect_wrong_usage("-p x --tokens 1");
  expect_wrong_usage("--tokens 1,x");
  expect_wrong_usage("--tokens 1 --chat");
  expect_wrong_usage("-p x -n -2");
  expect_wrong_usage("-p x -n 1.5");
  expect_wrong_usage("-p x -n 99999999999999999999");
  expect_wrong_usage("-p x --seed -1");
  expect_wrong_usage("-p x --temp hot");
  expect_wrong_usage("-p x --ids --json");
  expect_wrong_usage("-p x --kv q3_k");
  expect_wrong_usage("stray");
}

TEST_F(Run, AReaderThatLeavesIsNoError) {
  const Outcome r = on_model("-p Hello --ignore-eos -q | head -c 3");
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.err, "");
}

TEST_F(Run, AFullDiskIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  const std::string line = "'" CONCLAVE_BIN_DIR "/conclave' run -q -p x -n 9 --ignore-eos -m '" +
                           model_.path().string() + "' >/dev/full 2>'" + path("stderr") + "'";
  EXPECT_EQ(WEXITSTATUS(std::system(line.c_str())), 1);
  EXPECT_TRUE(has(read_all(path("stderr")), "error: cannot write the output")) << read_all(path("stderr"));
}

// Wide enough for nothing to wrap.
constexpr int kColumns = 60000;

// The program at a terminal.
class RunTerminal : public Run {
 protected:
  test::PtyProgram::Body program(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"conclave", "run", "-m", model_.path().string()});
    return [arguments, home = folder_.string()](int) mutable {
      ::setenv("HOME", home.c_str(), 1);
      ::setenv("NO_COLOR", "1", 1);
      ::unsetenv("XDG_STATE_HOME");
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      ::execv(CONCLAVE_BIN_DIR "/conclave", argv.data());
      ::_exit(127);
    };
  }
  // Types a line and waits for what it brings, after everything that was there before.
  static void type(test::PtyProgram& chat, const std::string& keys, const std::string& answer) {
    const std::size_t before = chat.shown.size();
    chat.send(keys);
    const auto there = [&] { return chat.shown.find(answer, before) != std::string::npos; };
    EXPECT_TRUE(chat.until(there)) << keys << ": " << chat.shown.substr(before);
    // The next prompt, in raw mode: nothing that is typed gets lost.
    EXPECT_TRUE(chat.until([&] { return chat.raw() && chat.shown.rfind("> ") > chat.shown.find(answer, before); }));
  }
};

TEST_F(RunTerminal, AChat) {
  test::PtyProgram chat(program({"-n", "8", "--ignore-eos", "--seed", "1"}), kColumns, 2);
  ASSERT_TRUE(chat.until([&] { return chat.raw() && has(chat.shown, "> "); })) << chat.shown;
  EXPECT_TRUE(has(chat.shown, "ChatML")) << chat.shown;
  type(chat, "/help\r", "/system TEXT");
  type(chat, "/again\r", "error: there is no answer yet");
  type(chat, "hello\r", "answer: 8 tokens");
  EXPECT_FALSE(has(chat.shown, "cached"));
  type(chat, "and now?\r", "cached), ");  // the first turn is not computed again
  type(chat, "/again\r", "seed 3)");
  type(chat, "/undo\r", "forgotten");
  type(chat, "/nonsense\r", "error: there is no command /nonsense");
  type(chat, "/system Be brief.\r", "instructed");
  type(chat, "//help\r", "answer: 8 tokens");
  type(chat, "/reset\r", "forgotten");
  type(chat, "/undo\r", "error: there is nothing to undo");
  chat.send("/quit\r");
  const int status = chat.finish();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_FALSE(chat.raw());
  EXPECT_TRUE(has(read_all(path(".local/state/conclave/history")), "and now?\n"));
}

TEST_F(RunTerminal, AFullContextIsSaidAndTheChatGoesOn) {
  test::PtyProgram chat(program({"-n", "30", "--ignore-eos", "--ctx", "64"}), kColumns, 2);
  ASSERT_TRUE(chat.until([&] { return chat.raw(); }));
  type(chat, "hello\r", "answer: 30 tokens");
  type(chat, "hello\r", "error: the conversation has ");
  type(chat, std::string(100, 'x') + "\r", "/reset or /undo makes room");
  type(chat, "/reset\r", "forgotten");
  type(chat, "hello\r", "answer: 30 tokens");
  chat.send("\x04");
  EXPECT_EQ(WEXITSTATUS(chat.finish()), 0);
}

TEST_F(RunTerminal, CtrlCStopsTheAnswerNotTheChat) {
  test::PtyProgram chat(program({"--ignore-eos", "--ctx", "100000"}), kColumns, 2);
  ASSERT_TRUE(chat.until([&] { return chat.raw(); }));
  EXPECT_TRUE(has(chat.shown, "a context of 100000 tokens; the model was trained for 8192")) << chat.shown;
  const std::size_t before = chat.shown.size();
  chat.send("hello\r");
  ASSERT_TRUE(chat.until([&] { return !chat.raw() && chat.shown.size() > before + 400; }));
  type(chat, "\x03", "answer: ");
  type(chat, "/undo\r", "forgotten");
  chat.send("\x04");
  EXPECT_EQ(WEXITSTATUS(chat.finish()), 0);
}

TEST_F(RunTerminal, CtrlCEndsATextWithItsSpeeds) {
  test::PtyProgram text(program({"-p", "Hello", "--ignore-eos", "--ctx", "100000"}), kColumns, 2);
  ASSERT_TRUE(text.until([&] { return text.shown.size() > 150; }));
  text.send("\x03");
  EXPECT_TRUE(text.until([&] { return has(text.shown, "answer: "); }));
  EXPECT_EQ(WEXITSTATUS(text.finish()), 130);
}

}  // namespace
}  // namespace conclave
