#include "quantize.h"

#include <memory>
#include <string>

#include "convert/model_format.h"
#include "convert/quantize.h"
#include "format_option.h"
#include "model_job.h"

namespace conclave {
namespace {

struct QuantizeArguments {
  std::string source;
  std::string target;
  std::string format;
  int threads = 0;
};

int quantize(const QuantizeArguments& arguments) {
  const QuantizeOptions options{
      .source = arguments.source, .target = arguments.target, .format = find_model_format(arguments.format)};
  return run_model_job({.label = "quantising",
                        .target = arguments.target,
                        .threads = arguments.threads,
                        .work = [&](ThreadPool& pool, const WriteProgress& progress) {
                          return quantize_model(options, pool, progress);
                        }});
}

}  // namespace

void add_quantize(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("quantize", "store a model's weights in another format");
  command->footer(
      "Examples:\n"
      "  conclave quantize model.gguf small.gguf Q4_K_M      about 4.9 bits per weight: a good default\n"
      "  conclave quantize model.gguf exact.gguf Q8_0        8.5 bits per weight: hardly any difference\n"
      "  conclave quantize small.gguf plain.gguf F32         decoded, for other tools\n\n"
      "Q4_K_M, Q4_K_S, Q5_K_M, Q5_K_S and MXFP4_MOE are mixes: they give more bits to the parts of a model that\n"
      "need them. Any other name is that one type for every matrix. Norms, biases and routers stay as they are.\n"
      "Where rows do not divide into a type's blocks, a type that fits is used, and a note on stderr says so.\n\n"
      "OUT is overwritten if it exists. It appears when it is complete: an error, a full disk or Ctrl-C leaves no\n"
      "partial file. The result is the same for any number of threads.");
  const auto arguments = std::make_shared<QuantizeArguments>();
  command->add_option("IN", arguments->source, "a GGUF file; of a split model, any part")->required()->type_name("");
  command->add_option("OUT", arguments->target, "the GGUF file to write")->required()->type_name("");
  add_format_option(*command, "FORMAT", arguments->format, "in any case, one of")->required();
  add_threads_option(*command, arguments->threads);
  command->callback([arguments, &chosen] { chosen = [arguments] { return quantize(*arguments); }; });
}

}  // namespace conclave
