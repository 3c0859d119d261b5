#include "logits.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_output.h"
#include "conclave/session.h"
#include "device_options.h"
#include "interrupt.h"
#include "kv_type.h"
#include "model_files.h"
#include "npy.h"
#include "ops/profile.h"
#include "token_list.h"
#include "whole_number.h"

namespace conclave {
namespace {

struct LogitsOptions {
  std::string model;
  std::string tokens;
  std::string output;
  std::string profile;
  ModelOptions device;
  // This command is for comparisons: a cache as exact as can be, and the arithmetic that all devices share.
  SessionOptions session{.kv_type = KvType::f32};
  bool as_prompt = false;
};

int logits(const LogitsOptions& options) {
  const std::vector<std::int32_t> tokens = *parse_token_list(options.tokens);
  if (tokens.empty()) fail(ErrorCode::invalid_argument, "--tokens: there are no tokens");
  const Model model = Model::open(options.model, options.device);
  require_no_input(options.output, files_of(model, options.model));
  SessionOptions sizes = options.session;
  if (sizes.context == 0) sizes.context = std::max<std::int64_t>(static_cast<std::int64_t>(tokens.size()), 1);
  Session session(model, sizes);
  std::optional<Profile> profile;
  if (!options.profile.empty()) profile = Profile::to_file(options.profile);

  // Before the guard: Ctrl-C ends the wait for somebody to read from a FIFO.
  NpyWriter out(options.output, static_cast<std::int64_t>(tokens.size()), model.facts().n_vocab);
  return run_guarded([&](const InterruptGuard& interrupt) {
    StepHooks hooks{.logits = [&](const LogitRow& row) {
      interrupt.stop_if_interrupted();
      out.write(row.logits);
    }};
    if (profile) hooks.profile = [&](const std::string& line) { profile->event(line); };
    const StepInput input{.sequence = session.create(),
                          .tokens = tokens,
                          .logits = LogitRows::all,
                          .kind = options.as_prompt ? TokenKind::prompt : TokenKind::generated};
    session.step({&input, 1}, hooks);
    out.finish();
    return 0;
  });
}

}  // namespace

void add_logits(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("logits", "write the logits of every position of a list of tokens");
  command->footer(
      "The file is a NumPy array of f32 [tokens, vocabulary]. It takes its name when it is whole.\n\n"
      "Tokens are computed as generated ones are, with a cache of f32: what all devices have in common.\n"
      "--as-prompt computes them as `run` does a prompt's, which on a Hopper GPU is an arithmetic of its own;\n"
      "add --kv f16 for run's cache.\n\n"
      "Example:\n"
      "  conclave logits -m model.gguf --tokens 1,2,3 -o out.npy\n"
      "  python3 -c \"import numpy; print(numpy.load('out.npy').argmax(axis=1))\"");
  const auto options = std::make_shared<LogitsOptions>();
  command->add_option("-m,--model", options->model, "a GGUF file; of a split model, any part")
      ->required()
      ->check(not_empty())
      ->type_name("FILE");
  command->add_option("--tokens", options->tokens, "the token ids, for example 1,2,3")
      ->required()
      ->check(token_list())
      ->type_name("IDS");
  command->add_option("-o,--output", options->output, "the file to write")->required()->type_name("FILE");
  add_device_options(*command, options->device);
  command->add_option("--ctx", options->session.context, "tokens of context (as many as there are tokens)")
      ->check(at_least<std::int64_t>(1))
      ->type_name("N");
  command
      ->add_option("--chunk", options->session.chunk, "tokens that go through the model at once (512; with CUDA 4096)")
      ->check(at_least<std::int64_t>(1))
      ->type_name("N");
  add_kv_option(*command, options->session.kv_type, "f32");
  command->add_flag("--as-prompt", options->as_prompt, "compute the tokens as a prompt's");
  command->add_option("--profile", options->profile, "append one JSON event per op run to this file")
      ->type_name("FILE");
  command->callback([options, &chosen] { chosen = [options] { return logits(*options); }; });
}

}  // namespace conclave
