#include "chat.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "answer.h"
#include "base/file_text.h"
#include "interrupt.h"
#include "progress.h"
#include "terminal/line_editor.h"
#include "terminal/style.h"

namespace conclave {
namespace {

constexpr const char* kHelp =
    "  /help          this list\n"
    "  /reset         forget the conversation\n"
    "  /undo          forget the last question and its answer\n"
    "  /again         another answer to the last question\n"
    "  /system TEXT   instructions for the model; starts anew. Without TEXT: none\n"
    "  /quit          leave; so does Ctrl-D\n"
    "  //TEXT         says /TEXT\n"
    "Ctrl-C stops an answer. Alt-Enter starts a new line in a message; up and down go through earlier ones.\n";

class Chat {
 public:
  Chat(const RunOptions& options, const Model& model, const ModelText& text)
      : options_(options),
        text_(text),
        session_(model, options.session),
        generator_(session_),
        dim_(terminal_style(STDERR_FILENO).colours != Colours::none) {
    set_system(options.system);
  }

  int talk();

 private:
  // False where the chat is over.
  bool command(const std::string& line);
  void set_system(const std::string& instructions) {
    turns_.clear();
    if (!instructions.empty()) turns_.push_back({"system", instructions});
  }
  bool ends_with(std::string_view role) const { return !turns_.empty() && turns_.back().role == role; }
  void undo();
  void ask();
  Generation generate(const std::vector<std::int32_t>& prompt, const InterruptGuard& interrupt);
  void complain(const std::string& text) const { std::fputs(("error: " + text + "\n").c_str(), stderr); }
  void remark(const std::string& text) const;
  void greet() const;

  const RunOptions& options_;
  const ModelText& text_;
  Session session_;
  Generator generator_;
  AnswerOutput output_;
  std::vector<ChatTurn> turns_;
  std::uint64_t n_answers_ = 0;  // each has a seed of its own, one after the other
  int ending_signal_ = 0;        // one that ends the program came during an answer
  bool dim_;
};

void Chat::remark(const std::string& text) const {
  if (options_.quiet) return;
  std::fputs((dim_ ? "\x1b[2m" + text + "\x1b[0m\n" : text + "\n").c_str(), stderr);
}

void Chat::greet() const {
  const ModelFacts& facts = session_.model().facts();
  const std::string name = facts.name.empty() ? facts.architecture : facts.name;
  remark(fmt::format("{}: {:.3g} million parameters, {:.3g} million for a token; context {} tokens; {}",
                     printable(name), static_cast<double>(facts.n_params) / 1e6,
                     static_cast<double>(facts.n_active_params) / 1e6, session_.context(), facts.device));
  if (const std::string said = long_context_note(session_); !said.empty()) remark(said);
  if (!text_.has_chat_template()) remark("The file has no chat template: ChatML is used.");
  remark("/help lists the commands, Ctrl-D quits.");
}

int Chat::talk() {
  greet();
  LineEditor editor;
  while (ending_signal_ == 0 && output_.open()) {
    const std::optional<std::string> line = editor.read_line("> ");
    if (!line) break;
    if (line->find_first_not_of(" \t\n") == std::string::npos) continue;
    if (line->starts_with('/') && !line->starts_with("//")) {
      if (!command(*line)) break;
      continue;
    }
    turns_.push_back({"user", line->starts_with("//") ? line->substr(1) : *line});
    ask();
  }
  return ending_signal_ == 0 ? 0 : 128 + ending_signal_;
}

bool Chat::command(const std::string& line) {
  const std::size_t space = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string name = line.substr(0, space);
  const std::size_t rest = std::min(line.find_first_not_of(" \t\n", space), line.size());
  if (name == "/quit" || name == "/exit" || name == "/bye") return false;
  if (name == "/help" || name == "/?") {
    output_.write(kHelp);
  } else if (name == "/reset") {
    set_system(!turns_.empty() && turns_[0].role == "system" ? std::string(turns_[0].content) : "");
    remark("The conversation is forgotten.");
  } else if (name == "/system") {
    set_system(line.substr(rest));
    remark(rest < line.size() ? "The model is instructed; the conversation starts anew." : "No instructions any more.");
  } else if (name == "/undo") {
    undo();
  } else if (name == "/again") {
    if (ends_with("assistant")) {
      turns_.pop_back();
      ask();
    } else {
      complain("there is no answer yet");
    }
  } else {
    complain("there is no command " + printable(name) + "; /help lists them, //TEXT says /TEXT");
  }
  return true;
}

void Chat::undo() {
  if (!ends_with("assistant")) return complain("there is nothing to undo");
  turns_.resize(turns_.size() - 2);
  remark("The last question and its answer are forgotten.");
}

// Answers the last turn, which is the user's. Where that cannot be, the turn is taken back.
void Chat::ask() {
  const InterruptGuard interrupt;
  try {
    const std::vector<std::int32_t> prompt = text_.chat_prompt(turns_);
    if (static_cast<std::int64_t>(prompt.size()) >= session_.context()) {
      fail(
          ErrorCode::invalid_argument,
          "the conversation has {} tokens now, the context holds {}: /reset or /undo makes room; --ctx {} at the start "
          "gives more",
          prompt.size(), session_.context(), 2 * prompt.size());
    }
    const Generation g = generate(prompt, interrupt);
    output_.end_line();
    if (g.stop == StopReason::context) {
      remark(fmt::format("The context of {} tokens is full: /reset or /undo makes room.", session_.context()));
    }
    remark(fmt::format("({})", summary(g, options_.sampling.seed + n_answers_)));
    if (options_.stats) remark(fmt::format("({})", load_summary(session_)));
    ++n_answers_;
    if (g.tokens.empty() && g.stop == StopReason::hook) {
      turns_.pop_back();
    } else {
      turns_.push_back({"assistant", text_.decode(g.tokens)});
    }
  } catch (const Error& error) {
    output_.end_line();
    complain(error.what());
    turns_.pop_back();
  }
  if (interrupt.signal() != SIGINT) ending_signal_ = interrupt.signal();
}

Generation Chat::generate(const std::vector<std::int32_t>& prompt, const InterruptGuard& interrupt) {
  ProgressBar bar("reading", ProgressUnit::tokens);
  ModelText::Stream stream(text_);
  SamplerOptions sampling = options_.sampling;
  sampling.seed += n_answers_;
  const GenerateOptions limits{.sampling = sampling,
                               .max_tokens = options_.token_limit(),
                               .end_ids = options_.ignore_eos ? std::vector<std::int32_t>{} : text_.end_ids()};
  const GenerateHooks hooks{
      .token = [&](std::int32_t id) { return output_.write(stream.push(id)) && interrupt.signal() == 0; },
      .prompt = prompt_hook(bar, interrupt)};
  Generation g = generator_.generate(prompt, limits, hooks);
  output_.write(stream.finish());
  return g;
}

}  // namespace

int chat(const RunOptions& options, const Model& model, const ModelText& text) {
  return Chat(options, model, text).talk();
}

}  // namespace conclave
