#include "run_options.h"

#include "device_options.h"
#include "kv_type.h"
#include "token_list.h"
#include "whole_number.h"

namespace conclave {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  conclave run                                             chat with the bundled model\n"
    "  conclave run -m model.gguf                               chat with another one\n"
    "  conclave run -m model.gguf -p 'Once upon a time' -n 200  continue a text\n"
    "  conclave run -m model.gguf --chat -p 'What is 2+2?'      answer one question, by the file's chat template\n"
    "  conclave run -m model.gguf --chat --system 'Be brief.' -f question.txt\n"
    "  echo 'Once upon a time' | conclave run -m model.gguf     the prompt from a pipe\n"
    "  conclave run -m model.gguf -p 'Hi' --temp 0              the likeliest token each time\n"
    "  conclave run -m model.gguf -p 'Hi' --seed 7              the same text every time, at any number of threads\n"
    "  conclave run -m model.gguf --tokens 1,2,3 -n 16          for files without a tokenizer: ids in, ids out\n"
    "\n"
    "The text goes to stdout as it comes, and a line break at its end; speeds and the seed go to stderr. -p is taken "
    "as it\n"
    "is; of -f and of a pipe the last line break is dropped. Control tokens that are written out in a prompt stay "
    "text\n"
    "unless --parse-special is given. --json prints one object at the end: text, ids, prompt_tokens, tokens, stop "
    "(end,\n"
    "length, context or interrupted), seed, prompt_tokens_per_second, tokens_per_second.\n"
    "\n"
    "Ctrl-C stops the text; what is there stays, and the exit code is 130. In a chat it stops the answer alone; /help\n"
    "lists the commands there. Without -m, $CONCLAVE_MODEL names the file; if that is not set, it is the bundled "
    "model.";

void add_sampling(CLI::App& command, RunOptions& options) {
  SamplerOptions& s = options.sampling;
  const auto number = [&](const char* name, double& value, const char* help) {
    command.add_option(name, value, help)->type_name("X")->group("Sampling");
  };
  const auto count = [&](const char* name, std::int64_t& value, const char* help) {
    command.add_option(name, value, help)->type_name("N")->group("Sampling");
  };
  number("--temp", s.temperature, "temperature; 0: the likeliest token each time (0.8)");
  count("--top-k", s.top_k, "only the N likeliest tokens; 0: all (40)");
  number("--top-p", s.top_p, "only the likeliest tokens that make up this share; 1: all (0.95)");
  number("--min-p", s.min_p, "only tokens at least X times as likely as the likeliest; 0: all (0.05)");
  number("--repeat-penalty", s.repeat_penalty, "above 1: against tokens that were there already (1)");
  number("--presence-penalty", s.presence_penalty, "subtracted from the logit of a token that was there (0)");
  number("--frequency-penalty", s.frequency_penalty, "subtracted each time that it was there (0)");
  count("--repeat-last-n", s.repeat_last_n, "how many tokens back the penalties look; -1: all (64)");
  command.add_option("--seed", options.seed, "of the random choices (a random one, told at the end)")
      ->check(at_least<std::uint64_t>(0))
      ->type_name("N")
      ->group("Sampling");
}

}  // namespace

void add_run_options(CLI::App& command, RunOptions& options) {
  command.footer(kExamples);
  command.add_option("-m,--model", options.model, "a GGUF file; of a split model, any part")
      ->check(not_empty())
      ->type_name("FILE");
  CLI::Option* prompt = command.add_option("-p,--prompt", options.prompt, "the prompt")->type_name("TEXT");
  CLI::Option* file = command.add_option("-f,--file", options.prompt_file, "a file with the prompt")->type_name("FILE");
  CLI::Option* tokens = command.add_option("--tokens", options.tokens, "the prompt as token ids, for example 1,2,3")
                            ->check(token_list())
                            ->type_name("IDS");
  prompt->excludes(file, tokens);
  file->excludes(tokens);
  command.add_flag("--parse-special", options.parse_special, "take control tokens in the prompt as such")
      ->excludes(tokens);
  command
      .add_option("-n,--max-tokens", options.max_tokens,
                  "at most so many tokens; -1: until the model ends, or the context is full (-1)")
      ->check(at_least<std::int64_t>(-1))
      ->type_name("N");
  command.add_flag("--ignore-eos", options.ignore_eos, "go on when the model wants to end");
  command.add_flag("--chat", options.chat, "the prompt is a message, to be answered by the chat template")
      ->excludes(tokens);
  command.add_option("--system", options.system, "instructions before the conversation; implies --chat")
      ->excludes(tokens)
      ->type_name("TEXT");
  command
      .add_option("--ctx", options.session.context,
                  "tokens of context (4096, or what the prompt and -n need, up to what the model was trained for)")
      ->check(at_least<std::int64_t>(1))
      ->type_name("N");
  add_device_options(command, options.device);
  add_kv_option(command, options.session.kv_type, "f16");
  command.add_flag("--exact-prompts", options.session.exact_prompts,
                   "compute the prompt as generated tokens are: slower on a Hopper GPU, and the same as on a CPU");
  command
      .add_option("--chunk", options.session.chunk,
                  "tokens of a prompt that go through the model at once (512; with CUDA 4096)")
      ->check(at_least<std::int64_t>(1))
      ->type_name("N");
  CLI::Option* ids = command.add_flag("--ids", options.ids, "print token ids instead of text");
  command.add_flag("--json", options.json, "print one JSON object at the end")->excludes(ids);
  command.add_flag("-q,--quiet", options.quiet, "nothing on stderr but errors");
  command.add_flag("--stats", options.stats,
                   "tell how evenly the experts were used; with --json, how often each was chosen");
  add_sampling(command, options);
}

}  // namespace conclave
