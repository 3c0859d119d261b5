#include "route.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file_output.h"
#include "base/file_text.h"
#include "conclave/session.h"
#include "default_model.h"
#include "device_options.h"
#include "engine/loaded_model.h"
#include "engine/vocabulary_reader.h"
#include "interrupt.h"
#include "kv_type.h"
#include "model_files.h"
#include "report/heat_html.h"
#include "report/heat_png.h"
#include "report/heat_terminal.h"
#include "report/trace_jsonl.h"
#include "routing_recorder.h"
#include "sample/sampler.h"
#include "text_input.h"
#include "token_list.h"
#include "whole_number.h"

namespace conclave {
namespace {

struct RouteOptions {
  std::string model;
  std::optional<std::string> prompt;
  std::string prompt_file;
  std::optional<std::string> tokens;
  std::int64_t n_generated = 0;
  std::vector<std::string> outputs;
  ModelOptions device;
  SessionOptions session;
};

enum class OutputKind { jsonl, png, html };

std::optional<OutputKind> kind_of(const std::string& path) {
  const std::array<std::pair<std::string_view, OutputKind>, 4> endings = {{{".jsonl", OutputKind::jsonl},
                                                                           {".png", OutputKind::png},
                                                                           {".html", OutputKind::html},
                                                                           {".htm", OutputKind::html}}};
  for (const auto& [ending, kind] : endings) {
    if (path.size() > ending.size() && path.ends_with(ending)) return kind;
  }
  return std::nullopt;
}

std::string read_text(const std::string& path) {
  std::string text = read_text_file(path);
  drop_last_line_break(text);
  return text;
}

// A file may have no vocabulary: then the ids are all there is.
std::optional<Tokenizer> tokenizer_of(const Model& model) {
  std::optional<Vocabulary> vocabulary = read_vocabulary(model.impl().file);
  if (!vocabulary) return std::nullopt;
  return Tokenizer(std::move(*vocabulary));
}

std::vector<std::int32_t> prompt_of(const RouteOptions& options, const std::optional<Tokenizer>& tokenizer) {
  std::vector<std::int32_t> ids;
  if (options.tokens) {
    ids = *parse_token_list(*options.tokens);
  } else if (tokenizer) {
    const std::string text = options.prompt ? *options.prompt : read_text(options.prompt_file);
    if (!text.empty()) ids = tokenizer->encode(text, {.add_special = true});
  } else {
    fail(ErrorCode::invalid_argument, "{}: the file has no vocabulary: give the prompt as --tokens",
         printable(options.model));
  }
  if (ids.empty()) fail(ErrorCode::invalid_argument, "the prompt is empty");
  return ids;
}

RoutingTrace trace_of(const RouteOptions& options, const Model& model, const std::optional<Tokenizer>& tokenizer,
                      const std::vector<std::int32_t>& prompt, const InterruptGuard& interrupt) {
  const ModelFacts& facts = model.facts();
  SessionOptions sizes = options.session;
  const auto wanted = static_cast<std::int64_t>(prompt.size()) + options.n_generated;
  if (sizes.context == 0) sizes.context = wanted;
  if (sizes.context < wanted) {
    fail(ErrorCode::invalid_argument, "the context is too small: {} tokens of the prompt and {} more do not fit in {}",
         prompt.size(), options.n_generated, sizes.context);
  }
  sizes.trace_routing = true;
  Session session(model, sizes);
  const SequenceId sequence = session.create();

  RoutingRecorder recorder(facts.n_layers);
  std::int32_t next = 0;
  const StepHooks hooks{.best = [&](const BestRow& row) { next = require_token(row.id); },
                        .routing =
                            [&](const RoutingRow& row) {
                              interrupt.stop_if_interrupted();
                              recorder.add(row);
                            }};
  RoutingTrace trace{
      .model = facts.name.empty() ? std::filesystem::path(options.model).filename().string() : facts.name,
      .architecture = facts.architecture,
      .n_layers = facts.n_layers,
      .n_experts = facts.n_experts,
      .top_k = facts.top_k};
  // As generated tokens are computed, which is what all devices have in common.
  const auto extend = [&](std::span<const std::int32_t> ids, LogitRows logits) {
    const StepInput input{.sequence = sequence, .tokens = ids, .logits = logits, .kind = TokenKind::generated};
    session.step({&input, 1}, hooks);
    for (const std::int32_t id : ids) {
      const bool known = tokenizer && id < tokenizer->size();
      trace.tokens.push_back({.id = id, .text = known ? std::string(tokenizer->piece(id)) : std::string{}});
    }
  };
  extend(prompt, options.n_generated > 0 ? LogitRows::last : LogitRows::none);
  for (std::int64_t i = 0; i < options.n_generated; ++i) {
    if (tokenizer && next < tokenizer->size() && tokenizer->is_end(next)) break;
    const std::int32_t id = next;
    extend({&id, 1}, i + 1 < options.n_generated ? LogitRows::last : LogitRows::none);
  }
  recorder.finish(trace);
  validate(trace);
  return trace;
}

void write(FileOutput& file, std::string_view text) {
  file.write(std::as_bytes(std::span(text.data(), text.size())));
}

void write_report(FileOutput& file, OutputKind kind, const RoutingTrace& trace, const RoutingStats& stats) {
  switch (kind) {
    case OutputKind::jsonl:
      return write_trace_jsonl(trace, stats, [&](std::string_view line) { write(file, line); });
    case OutputKind::png:
      return write(file, heat_png(trace, stats));
    case OutputKind::html:
      return write(file, heat_html(trace, stats));
  }
}

// What the heat map cannot show: the numbers of each layer, and who was left out.
std::string layer_table(const RoutingTrace& trace, const RoutingStats& stats, int columns) {
  std::string out = fmt::format("{:>5}{:>10}{:>14}{:>10}{:>9}  {}\n", "layer", "max/mean", "entropy, bits", "evenness",
                                "busiest", "never used");
  for (std::int64_t l = 0; l < trace.n_layers; ++l) {
    const LayerStats& s = stats.layers[static_cast<std::size_t>(l)];
    std::string line = fmt::format("{:>5}{:>10.2f}{:>14.2f}{:>10.3f}{:>9}  {}", trace.layer_number(l), s.imbalance,
                                   s.entropy, s.evenness, s.busiest, s.unused.size());
    if (!s.unused.empty()) line += ": " + range_text(s.unused);
    if (const auto room = static_cast<std::size_t>(std::max(columns, 72)); line.size() > room) {
      line.resize(line.rfind(',', room - 5) + 1);
      line += " ...";
    }
    out += line + "\n";
  }
  return out;
}

// Writes what was asked for, in `files` or on the terminal.
void report(const RouteOptions& options, const RoutingTrace& trace, std::vector<FileOutput>& files) {
  const RoutingStats stats = routing_stats(trace);
  for (std::size_t i = 0; i < files.size(); ++i) {  // all of them whole before the first gets its name
    write_report(files[i], *kind_of(options.outputs[i]), trace, stats);
    files[i].close();
  }
  for (FileOutput& file : files) file.commit();
  if (files.empty()) {
    const TerminalStyle style = terminal_style(STDOUT_FILENO);
    print(heat_text(trace, stats, style) + "\n" + layer_table(trace, stats, style.columns));
  } else {
    std::string said = fmt::format("{}\n{}\n", facts_text(trace), summary_text(trace, stats));
    for (const FileOutput& file : files) said += fmt::format("wrote {}\n", file.shown_path());
    print(said);
  }
}

int route(RouteOptions options) {
  if (options.model.empty()) options.model = default_model().string();
  const Model model = Model::open(options.model, options.device);
  const std::vector<std::filesystem::path> model_files = files_of(model, options.model);
  for (const std::string& path : options.outputs) require_no_input(path, model_files);
  const std::optional<Tokenizer> tokenizer = tokenizer_of(model);
  const std::vector<std::int32_t> prompt = prompt_of(options, tokenizer);
  // A name that cannot be written is told before the work. Before the guard: Ctrl-C ends the wait for somebody to read
  // from a FIFO.
  std::vector<FileOutput> files;
  files.reserve(options.outputs.size());
  for (const std::string& path : options.outputs) files.emplace_back(path);
  return run_guarded([&](const InterruptGuard& interrupt) {
    report(options, trace_of(options, model, tokenizer, prompt, interrupt), files);
    return 0;
  });
}

}  // namespace

void add_route(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("route", "show which experts serve which tokens of a text");
  command->footer(
      "Without --out, a heat map of every expert's load and a table of the layers. With it, files by their ending:\n"
      "  .jsonl   every token with its experts and their weights in every layer, then the numbers of each layer\n"
      "  .png     the heat map as a picture\n"
      "  .html    the heat map, the table, and the text with the experts of each token, as one page\n\n"
      "max/mean is the load of the busiest expert over an even share; evenness is the entropy of the loads over the "
      "most\n"
      "it could be, so 1 is even. A short text cannot touch every expert.\n\n"
      "Examples:\n"
      "  conclave route -p 'Once upon a time'\n"
      "  conclave route -m model.gguf -f story.txt --out heat.html --out trace.jsonl\n"
      "  conclave route -m model.gguf --tokens 1,2,3 -n 32 --out heat.png");
  const auto options = std::make_shared<RouteOptions>();
  command->add_option("-m,--model", options->model, "a GGUF file; of a split model, any part (the bundled model)")
      ->check(not_empty())
      ->type_name("FILE");
  CLI::Option_group* prompts = command->add_option_group("prompt", "one of these");
  prompts->add_option("-p,--prompt", options->prompt, "the text")->type_name("TEXT");
  prompts->add_option("-f,--file", options->prompt_file, "a file with the text")->type_name("FILE");
  prompts->add_option("--tokens", options->tokens, "token ids instead of a text, for example 1,2,3")
      ->check(token_list())
      ->type_name("IDS");
  prompts->require_option(1);
  command->add_option("-n", options->n_generated, "tokens to generate after it, each the likeliest one (0)")
      ->check(whole_number(0, 1 << 24))
      ->type_name("N");
  command->add_option("-o,--out", options->outputs, "a file to write: .jsonl, .png or .html; may be repeated")
      ->check(CLI::Validator(
          [](const std::string& path) {
            return kind_of(path) ? std::string{} : "'" + path + "' does not end in .jsonl, .png or .html";
          },
          ""))
      ->type_name("FILE")
      ->allow_extra_args(false);  // one name after each --out
  add_device_options(*command, options->device);
  command->add_option("--ctx", options->session.context, "tokens of context (as many as there are tokens)")
      ->check(at_least<std::int64_t>(1))
      ->type_name("N");
  command
      ->add_option("--chunk", options->session.chunk, "tokens that go through the model at once (512; with CUDA 4096)")
      ->check(at_least<std::int64_t>(1))
      ->type_name("N");
  add_kv_option(*command, options->session.kv_type, "f16");
  command->callback([options, &chosen] { chosen = [options] { return route(*options); }; });
}

}  // namespace conclave
