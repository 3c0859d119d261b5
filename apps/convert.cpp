#include "convert.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert/convert.h"
#include "convert/model_format.h"
#include "format_option.h"
#include "model/tokenizer_check.h"
#include "model_job.h"

namespace conclave {
namespace {

struct ConvertArguments {
  std::string folder;
  std::string target;
  std::string type;
  std::string name;
  std::string pre;
  std::vector<std::string> about;  // KEY=TEXT
  int threads = 0;
};

std::pair<std::string, std::string> key_and_text(const std::string& word) {
  const std::size_t at = word.find('=');
  return {word.substr(0, at), at == std::string::npos ? "" : word.substr(at + 1)};
}

CLI::Validator known_key_and_text() {
  return CLI::Validator(
      [](std::string& word) {
        const auto [key, text] = key_and_text(word);
        const auto keys = about_keys();
        if (!text.empty() && std::find(keys.begin(), keys.end(), key) != keys.end()) return std::string();
        return fmt::format("'{}' is not KEY=TEXT, with a KEY of: {}", word, fmt::join(keys, ", "));
      },
      "");
}

int convert(const ConvertArguments& arguments) {
  ConvertOptions options{.folder = arguments.folder,
                         .target = arguments.target,
                         .format = arguments.type.empty() ? nullptr : find_model_format(arguments.type),
                         .name = arguments.name,
                         .pre = arguments.pre};
  for (const std::string& word : arguments.about) {
    auto about = key_and_text(word);
    const bool twice =
        std::any_of(options.about.begin(), options.about.end(), [&](auto& is) { return is.first == about.first; });
    if (twice) fail(ErrorCode::invalid_argument, "--about {}=... is given twice", about.first);
    options.about.push_back(std::move(about));
  }
  return run_model_job({.label = "converting",
                        .target = arguments.target,
                        .threads = arguments.threads,
                        .work = [&](ThreadPool& pool, const WriteProgress& progress) {
                          return convert_model(options, pool, progress);
                        }});
}

}  // namespace

void add_convert(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("convert", "make a GGUF file of a checkpoint of transformers");
  command->footer(
      "HF_DIR is a directory as transformers saves it: config.json, model.safetensors (or shards and their\n"
      "index) and, for text, tokenizer.json and tokenizer_config.json. Qwen3MoeForCausalLM, Qwen2MoeForCausalLM,\n"
      "MixtralForCausalLM and OlmoeForCausalLM can be converted.\n\n"
      "Examples:\n"
      "  conclave convert Qwen3-30B-A3B model.gguf                   weights as they are, bit for bit\n"
      "  conclave convert Qwen3-30B-A3B model.gguf --type q8_0       smaller at once\n"
      "  conclave quantize model.gguf small.gguf Q4_K_M              smaller later\n\n"
      "Norms, biases and routers are always stored in F32. OUT is overwritten if it exists. It appears when it is\n"
      "complete and conclave could run it: an error, a full disk or Ctrl-C leaves no partial file.");
  const auto arguments = std::make_shared<ConvertArguments>();
  command->add_option("HF_DIR", arguments->folder, "the checkpoint's directory")->required()->type_name("");
  command->add_option("OUT", arguments->target, "the GGUF file to write")->required()->type_name("");
  add_format_option(*command, "--type", arguments->type,
                    "store matrices so; without it, as they are in the checkpoint");
  command->add_option("--name", arguments->name, "the model's name in the file (the directory's name)");
  command
      ->add_option("--about", arguments->about,
                   fmt::format("what the file says of itself; may be given again. KEY is one of: {}",
                               fmt::join(about_keys(), ", ")))
      ->check(known_key_and_text())
      ->allow_extra_args(false)
      ->type_name("KEY=TEXT");
  command->add_option("--pre", arguments->pre, "the pre-tokenizer, where tokenizer.json has one that is not recognised")
      ->check(known_name(known_pre_tokenizers()));
  add_threads_option(*command, arguments->threads);
  command->callback([arguments, &chosen] { chosen = [arguments] { return convert(*arguments); }; });
}

}  // namespace conclave
