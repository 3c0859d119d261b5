#include "inspect.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/file_text.h"
#include "base/memory.h"
#include "gguf/file.h"
#include "model/description.h"

namespace conclave {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kUsualContext = 4096;

struct InspectOptions {
  std::string path;
  bool json = false;
  bool tensors = false;
};

struct ContextMemory {
  std::int64_t n_tokens;
  std::uint64_t kv_bytes;
  std::uint64_t total_bytes;
};

// A usual context, where the model reaches that far, and the full one.
std::vector<ContextMemory> context_memory(const ModelDescription& model) {
  std::vector<ContextMemory> rows;
  for (const std::int64_t n_tokens : {std::min(kUsualContext, model.config.n_context), model.config.n_context}) {
    if (!rows.empty() && rows.back().n_tokens == n_tokens) continue;
    // At most 2^31 tokens of at most 1024 * 4 * 2^20 bytes: 2^63.
    const std::uint64_t kv = static_cast<std::uint64_t>(n_tokens) * model.size.kv_bytes_per_token;
    rows.push_back({.n_tokens = n_tokens, .kv_bytes = kv, .total_bytes = kv + model.size.weight_bytes});
  }
  return rows;
}

double bits_per_weight(std::uint64_t bytes, std::int64_t n_params) {
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(n_params);
}

// 30.53 B: thousand millions, as model names have it.
std::string count_text(std::int64_t n) {
  const auto value = static_cast<double>(n);
  if (value >= 999.995e9) return fmt::format("{:.2f} T", value / 1e12);
  if (value >= 999.995e6) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 999.995e3) return fmt::format("{:.2f} M", value / 1e6);
  if (value >= 1000) return fmt::format("{:.2f} K", value / 1e3);
  return fmt::format("{}", n);
}

std::string plural(std::int64_t n, std::string_view word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

std::string attention_text(const AttentionConfig& a) {
  std::string text =
      fmt::format("{}, {}, d_head {}", plural(a.n_heads, "head"), plural(a.n_kv_heads, "KV head"), a.d_head);
  if (a.qk_norm == QkNorm::per_head) text += ", q and k norms per head";
  if (a.qk_norm == QkNorm::full_width) text += ", q and k norms over all heads";
  if (a.qkv_bias) text += ", q k v biases";
  return text;
}

std::string expert_text(const ExpertConfig& e) {
  std::string text = fmt::format("{}, {} used per token, d_ff {}", e.n_experts, e.rule.top_k, e.d_ff);
  if (e.d_ff_shared > 0) text += fmt::format("; 1 shared, d_ff {}", e.d_ff_shared);
  return text;
}

std::string routing_text(const RoutingRule& rule) {
  std::string text(name(rule.score));
  if (rule.renormalize) text += ", renormalised";
  if (rule.scale != 1.0F) text += fmt::format(", scaled by {}", rule.scale);
  if (rule.n_groups > 1) text += fmt::format(", from {} of {} groups", rule.top_groups, rule.n_groups);
  return text;
}

std::string rope_text(const RopeConfig& r, bool factors) {
  std::string text = fmt::format("{} dimensions, base {}, {}", r.n_dims, r.base, name(r.style));
  if (r.scaling != RopeScaling::none) {
    text += fmt::format("; {} scaling by {} from {} tokens", name(r.scaling), r.factor, r.original_context);
  }
  if (factors) text += "; frequency factors";
  return text;
}

std::string tokenizer_text(const TokenizerDescription& t) {
  if (t.kind == TokenizerKind::none) return "none: runs on token ids";
  std::string text = t.kind == TokenizerKind::byte_bpe ? "byte-level BPE" : "SentencePiece";
  if (t.kind == TokenizerKind::byte_bpe) text += fmt::format(" ({}), {}", t.pre, plural(t.n_merges, "merge"));
  text += fmt::format(", {}, {} chat template", plural(t.n_tokens, "token"), t.chat_template ? "with" : "no");
  return text;
}

// Columns padded to their widest cell, the first to the left and the others to the right.
std::string table(const std::vector<std::vector<std::string>>& rows, std::size_t n_left) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "   ";
      line += i < n_left ? row[i] + pad : pad + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string format_table(const ModelDescription& model) {
  std::vector<std::vector<std::string>> rows = {{"format", "tensors", "weights", "size", "bits/weight"}};
  for (const FormatUse& use : model.formats) {
    rows.push_back({std::string(use.type->name), fmt::format("{}", use.n_tensors), count_text(use.n_params),
                    size_text(use.bytes), fmt::format("{:.2f}", bits_per_weight(use.bytes, use.n_params))});
  }
  std::int64_t n_tensors = 0;
  for (const FormatUse& use : model.formats) n_tensors += use.n_tensors;
  rows.push_back({"all", fmt::format("{}", n_tensors), count_text(model.size.n_params),
                  size_text(model.size.weight_bytes),
                  fmt::format("{:.2f}", bits_per_weight(model.size.weight_bytes, model.size.n_params))});
  return table(rows, 1);
}

std::string memory_table(const ModelDescription& model) {
  std::vector<std::vector<std::string>> rows = {{"memory", "weights", "KV cache (f16)", "together"}};
  for (const ContextMemory& row : context_memory(model)) {
    rows.push_back(
        {fmt::format("at {} tokens{}", row.n_tokens, row.n_tokens == model.config.n_context ? " (full context)" : ""),
         size_text(model.size.weight_bytes), size_text(row.kv_bytes), size_text(row.total_bytes)});
  }
  rows.push_back({"each token", "", size_text(model.size.kv_bytes_per_token), ""});
  return table(rows, 1);
}

std::string tensor_table(const gguf::File& file) {
  const bool split = file.parts() > 1;
  std::vector<std::vector<std::string>> rows = {{"tensor", "format", "shape", "bytes", "offset"}};
  if (split) rows[0].push_back("part");
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    auto& row = rows.emplace_back();
    row = {printable(tensor.name), std::string(tensor.type->name), fmt::format("[{}]", fmt::join(tensor.dims, ", ")),
           fmt::format("{}", tensor.bytes), fmt::format("{}", tensor.offset)};
    if (split) row.push_back(fmt::format("{}", tensor.part));
  }
  return table(rows, 3);
}

std::string human_text(const InspectOptions& options, const gguf::File& file, const ModelDescription& model) {
  const ModelConfig& c = model.config;
  std::string out;
  const auto line = [&](std::string_view label, std::string_view text) {
    fmt::format_to(std::back_inserter(out), "{:<14}{}\n", label, text);
  };
  line("file", fmt::format("{}, {}{}, GGUF {}", printable(options.path, 4096), size_text(file.file_bytes()),
                           file.parts() > 1 ? fmt::format(" in {} parts", file.parts()) : "", file.version()));
  line("name", c.name.empty() ? "(none)" : printable(c.name));
  line("architecture", c.architecture);
  line("parameters",
       fmt::format("{}, {} active per token", count_text(model.size.n_params), count_text(model.size.n_active_params)));
  line("layers", fmt::format("{}, d_model {}, norm epsilon {}", c.n_layers, c.d_model, c.norm_eps));
  line("experts", expert_text(c.experts));
  line("routing", routing_text(c.experts.rule));
  line("attention", attention_text(c.attention));
  line("rope", rope_text(c.rope, model.tensors.rope_factors != nullptr));
  line("context", plural(c.n_context, "token"));
  line("vocabulary",
       fmt::format("{}, {}", c.n_vocab, model.tensors.tied() ? "head tied to the embedding" : "own head"));
  line("tokenizer", tokenizer_text(model.tokenizer));
  out += "\n" + format_table(model) + "\n" + memory_table(model);
  if (options.tensors) out += "\n" + tensor_table(file);
  return out;
}

// The double that prints as the float does: 1e-06, not 9.999999974752427e-07.
double shown(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

Json tensors_json(const gguf::File& file) {
  Json list = Json::array();
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    list.push_back({{"name", tensor.name},
                    {"format", tensor.type->name},
                    {"shape", tensor.dims},
                    {"bytes", tensor.bytes},
                    {"offset", tensor.offset},
                    {"part", tensor.part}});
  }
  return list;
}

Json model_json(const ModelDescription& model) {
  const ModelConfig& c = model.config;
  const RoutingRule& rule = c.experts.rule;
  Json j;
  j["architecture"] = c.architecture;
  j["name"] = c.name;
  j["parameters"] = {{"total", model.size.n_params}, {"active_per_token", model.size.n_active_params}};
  j["layers"] = c.n_layers;
  j["d_model"] = c.d_model;
  j["vocabulary"] = c.n_vocab;
  j["context_length"] = c.n_context;
  j["norm_epsilon"] = shown(c.norm_eps);
  j["attention"] = {{"heads", c.attention.n_heads},
                    {"kv_heads", c.attention.n_kv_heads},
                    {"d_head", c.attention.d_head},
                    {"qk_norm", name(c.attention.qk_norm)},
                    {"qkv_bias", c.attention.qkv_bias}};
  j["rope"] = {{"dimensions", c.rope.n_dims},
               {"style", name(c.rope.style)},
               {"base", shown(c.rope.base)},
               {"scaling", name(c.rope.scaling)},
               {"factor", shown(c.rope.factor)},
               {"original_context_length", c.rope.original_context},
               {"frequency_factors", model.tensors.rope_factors != nullptr}};
  j["experts"] = {{"count", c.experts.n_experts},
                  {"used", rule.top_k},
                  {"d_ff", c.experts.d_ff},
                  {"shared", c.experts.d_ff_shared > 0 ? 1 : 0},
                  {"d_ff_shared", c.experts.d_ff_shared},
                  {"score", name(rule.score)},
                  {"renormalize", rule.renormalize},
                  {"scale", shown(rule.scale)},
                  {"groups", rule.n_groups},
                  {"groups_used", rule.top_groups}};
  j["tied_embeddings"] = model.tensors.tied();
  return j;
}

Json tokenizer_json(const TokenizerDescription& t) {
  Json special = Json::object();
  for (const SpecialToken& token : t.special) special[std::string(token.name)] = token.id;
  return {{"kind", name(t.kind)}, {"pre", t.pre.empty() ? Json() : Json(t.pre)},  {"tokens", t.n_tokens},
          {"merges", t.n_merges}, {"chat_template", t.chat_template.has_value()}, {"special", special}};
}

std::string json_text(const InspectOptions& options, const gguf::File& file, const ModelDescription& model) {
  Json j;
  j["file"] = {{"path", options.path},
               {"version", file.version()},
               {"parts", file.parts()},
               {"bytes", file.file_bytes()},
               {"alignment", file.alignment()}};
  j.update(model_json(model));
  Json formats = Json::array();
  for (const FormatUse& use : model.formats) {
    formats.push_back({{"format", use.type->name},
                       {"tensors", use.n_tensors},
                       {"parameters", use.n_params},
                       {"bytes", use.bytes},
                       {"bits_per_weight", bits_per_weight(use.bytes, use.n_params)}});
  }
  j["formats"] = formats;
  j["bits_per_weight"] = bits_per_weight(model.size.weight_bytes, model.size.n_params);
  j["tokenizer"] = tokenizer_json(model.tokenizer);
  Json contexts = Json::array();
  for (const ContextMemory& row : context_memory(model)) {
    contexts.push_back({{"tokens", row.n_tokens}, {"kv_bytes", row.kv_bytes}, {"total_bytes", row.total_bytes}});
  }
  j["memory"] = {{"weights_bytes", model.size.weight_bytes},
                 {"kv_bytes_per_token", model.size.kv_bytes_per_token},
                 {"contexts", contexts}};
  if (options.tensors) j["tensors"] = tensors_json(file);
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

ModelDescription describe(const gguf::File& file, const std::string& path) {
  try {
    return describe_model(file);
  } catch (const Error& error) {  // the file's name, which describe_model does not know
    throw Error(error.code(), path + ": " + error.what());
  }
}

int inspect(const InspectOptions& options) {
  const gguf::File file = gguf::File::open(options.path);
  const ModelDescription model = describe(file, options.path);
  print(options.json ? json_text(options, file, model) : human_text(options, file, model));
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("inspect", "show what a model file holds, and whether conclave can run it");
  command->footer(
      "Examples:\n"
      "  conclave inspect model.gguf             sizes, formats, experts, memory\n"
      "  conclave inspect model.gguf --tensors   every tensor as well\n"
      "  conclave inspect model.gguf --json      one JSON object\n\n"
      "A file that conclave would refuse to run gives one line on stderr and exit code 1.");
  const auto options = std::make_shared<InspectOptions>();
  command->add_option("FILE", options->path, "a GGUF file; of a split model, any part")->required()->type_name("");
  command->add_flag("--json", options->json, "print one JSON object");
  command->add_flag("--tensors", options->tensors, "list every tensor");
  command->callback([options, &chosen] { chosen = [options] { return inspect(*options); }; });
}

}  // namespace conclave
