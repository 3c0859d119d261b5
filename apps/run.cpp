#include "run.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "answer.h"
#include "base/file_text.h"
#include "base/memory.h"
#include "chat.h"
#include "conclave/text.h"
#include "default_model.h"
#include "engine/model_text.h"
#include "interrupt.h"
#include "progress.h"
#include "run_options.h"
#include "sample/sampler.h"
#include "text_input.h"
#include "token_list.h"

namespace conclave {
namespace {

using Ids = std::vector<std::int32_t>;

void note(const RunOptions& options, const std::string& text) {
  if (!options.quiet) std::fputs((text + "\n").c_str(), stderr);
}

// Nothing where the file has no vocabulary.
std::optional<ModelText> open_text(const Model& model, const std::string& path) {
  if (!model.facts().has_vocabulary) return std::nullopt;
  try {
    return ModelText(model);
  } catch (const Error& error) {  // the file's name, which the reader does not know
    throw Error(error.code(), printable(path, path.size()) + ": " + error.what());
  }
}

std::string prompt_text(const RunOptions& options) {
  if (options.prompt) return *options.prompt;
  std::string text = options.prompt_file ? read_text_file(*options.prompt_file) : read_stdin();
  drop_last_line_break(text);
  return text;
}

// The prompt as it was given: what is wrong with it is told before a model is opened.
struct GivenPrompt {
  Ids ids;           // of --tokens
  std::string text;  // else
};

GivenPrompt given_prompt(const RunOptions& options) {
  if (!options.tokens) return {.ids = {}, .text = prompt_text(options)};
  GivenPrompt given{.ids = *parse_token_list(*options.tokens), .text = {}};
  if (given.ids.empty()) fail(ErrorCode::invalid_argument, "there are no tokens to start from");
  return given;
}

Ids prompt_ids(const RunOptions& options, const GivenPrompt& given, const std::optional<ModelText>& text) {
  if (options.tokens) return given.ids;
  const std::string& typed = given.text;
  if (const std::size_t lost = text->impl().tokenizer.uncovered_bytes(typed); lost > 0) {
    note(options, fmt::format("warning: the vocabulary has no token for {} bytes of the prompt", lost));
  }
  if (options.chat) {
    if (typed.empty()) fail(ErrorCode::invalid_argument, "the prompt is empty");
    std::vector<ChatTurn> turns;
    if (!options.system.empty()) turns.push_back({"system", options.system});
    turns.push_back({"user", typed});
    return text->chat_prompt(turns);
  }
  Ids ids = text->prompt(typed, options.parse_special);
  if (ids.empty()) {
    fail(ErrorCode::invalid_argument, "the prompt is empty, and the model has no token to begin a text with");
  }
  return ids;
}

// Unless it was said: what prompt and answer need, but no more than the model was trained for.
std::int64_t context_for(const RunOptions& options, const ModelFacts& facts, std::size_t n_prompt) {
  constexpr std::int64_t kUsual = 4096;
  const auto n = static_cast<std::int64_t>(n_prompt);
  std::int64_t context = options.session.context;
  if (context == 0) {
    const std::int64_t answer = std::min(options.token_limit().value_or(0), facts.n_context);
    context = std::clamp(n + answer, std::min(kUsual, facts.n_context), facts.n_context);
  }
  if (n > context) {
    fail(ErrorCode::invalid_argument, "the prompt has {} tokens, the context holds {}: shorten it, or try --ctx {}", n,
         context, n + std::min(options.token_limit().value_or(256), std::int64_t{1} << 20));
  }
  return context;
}

std::string json_text(const RunOptions& options, const std::optional<ModelText>& text, const Generation& g,
                      Session& session) {
  using Json = nlohmann::ordered_json;
  Json j;
  if (text) {
    ModelText::Stream stream(*text);
    std::string all;
    for (const std::int32_t id : g.tokens) all += stream.push(id);
    j["text"] = all + stream.finish();
  }
  j["ids"] = g.tokens;
  j["prompt_tokens"] = g.n_prompt;
  j["tokens"] = g.tokens.size();
  j["stop"] = name_of(g.stop);
  j["seed"] = options.sampling.seed;
  j["prompt_tokens_per_second"] = g.prompt_speed();
  j["tokens_per_second"] = g.step_speed();
  if (options.stats) {
    const std::vector<std::int64_t> counts = session.expert_counts();
    const auto n_experts = static_cast<std::size_t>(session.model().facts().n_experts);
    for (std::size_t i = 0; i < counts.size(); ++i) j["expert_counts"][i / n_experts][i % n_experts] = counts[i];
  }
  return j.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Prints tokens as they come: as text, as ids, or not at all where JSON comes at the end.
class TokenPrinter {
 public:
  TokenPrinter(const RunOptions& options, const std::optional<ModelText>& text) : silent_(options.json) {
    if (text && !options.ids) stream_.emplace(*text);
  }
  bool token(std::int32_t id) {
    if (silent_) return true;
    if (stream_) return output.write(stream_->push(id));
    const bool first = std::exchange(first_, false);
    return output.write((first ? "" : ",") + std::to_string(id));
  }
  void finish() {
    if (stream_ && !silent_) output.write(stream_->finish());
    output.end_line();
  }

  AnswerOutput output;

 private:
  bool silent_;
  bool first_ = true;
  std::optional<ModelText::Stream> stream_;
};

// A GPU that copies the weights takes a while: somebody at a terminal should see that.
Model open_shown(const std::string& path, ModelOptions options) {
  ProgressBar bar("loading");
  options.progress = [&bar](std::uint64_t done, std::uint64_t total) { bar.show(done, total); };
  return Model::open(path, options);
}

// And so does a file that is not in memory. Where it does not fit, reading it all would be for nothing.
void show_loading(const Model& model) {
  const std::optional<std::int64_t> room = available_memory();
  if (::isatty(STDERR_FILENO) != 1 || !room || model.facts().file_bytes > static_cast<std::uint64_t>(*room)) return;
  ProgressBar bar("loading");
  model.read_in([&](std::uint64_t done, std::uint64_t total) {
    bar.show(done, total);
    return true;
  });
}

int answer(const RunOptions& options, const Model& model, const std::optional<ModelText>& text, const Ids& prompt) {
  const InterruptGuard interrupt(SecondInterrupt::ends_the_program);
  SessionOptions sizes = options.session;
  sizes.context = context_for(options, model.facts(), prompt.size());
  Session session(model, sizes);
  if (const std::string said = long_context_note(session); !said.empty()) note(options, said);
  Generator generator(session);
  TokenPrinter printer(options, text);
  Generation g;
  {
    ProgressBar bar("reading the prompt", ProgressUnit::tokens);
    const bool long_prompt = static_cast<std::int64_t>(prompt.size()) > session.chunk();
    if (long_prompt) bar.show(0, prompt.size());
    const GenerateHooks hooks{.token = [&](std::int32_t id) { return printer.token(id) && interrupt.signal() == 0; },
                              .prompt = prompt_hook(bar, interrupt)};
    g = generator.generate(prompt,
                           {.sampling = options.sampling,
                            .max_tokens = options.token_limit(),
                            .end_ids = text && !options.ignore_eos ? text->end_ids() : Ids{}},
                           hooks);
  }
  printer.finish();
  if (options.json) printer.output.write(json_text(options, text, g, session));
  if (g.stop == StopReason::context && !options.json) {
    note(options, fmt::format("note: stopped, the context of {} tokens is full; --ctx gives more", session.context()));
  }
  if (!options.json) note(options, summary(g, options.sampling.seed));
  if (!options.json && options.stats) note(options, load_summary(session));
  return interrupt.signal() != 0 ? interrupt.exit_code() : 0;
}

int run(RunOptions options) {
  options.chat = options.chat || !options.system.empty();
  options.sampling.seed = options.seed ? *options.seed : std::random_device{}();
  validate(options.sampling);
  const bool interactive = !options.has_prompt() && ::isatty(STDIN_FILENO) == 1;
  if (interactive && (options.json || options.ids)) {
    fail(ErrorCode::invalid_argument, "--json and --ids need a prompt: -p, -f, --tokens, or a pipe");
  }
  const GivenPrompt given = interactive ? GivenPrompt{} : given_prompt(options);
  const std::string path = options.model.empty() ? default_model().string() : options.model;
  const Model model = open_shown(path, options.device);
  const std::optional<ModelText> text = open_text(model, path);
  if (!text && !options.tokens) {
    fail(ErrorCode::invalid_argument, "{}: the file has no tokenizer: give the prompt as ids, --tokens 1,2,3",
         printable(path, path.size()));
  }
  show_loading(model);
  if (interactive) return chat(options, model, *text);
  return answer(options, model, text, prompt_ids(options, given, text));
}

}  // namespace

void add_run(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("run", "continue a text, answer a question, or chat");
  const auto options = std::make_shared<RunOptions>();
  add_run_options(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace conclave
