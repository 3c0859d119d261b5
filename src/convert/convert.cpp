#include "convert/convert.h"

#include <array>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"
#include "convert/checkpoint.h"
#include "convert/hf_config.h"
#include "convert/hf_tensors.h"
#include "convert/hf_tokenizer.h"
#include "model/description.h"

namespace conclave {
namespace {

constexpr std::uint32_t kQuantizationVersion = 2;

constexpr std::string_view kAboutKeys[] = {"author",       "basename",   "description", "license",
                                           "organization", "size_label", "url",         "version"};

// The folder's own name, whatever way it was named: "models/tiny/", ".".
std::string name_of(const std::filesystem::path& folder) {
  std::error_code code;
  const std::filesystem::path whole = std::filesystem::canonical(folder, code);
  return printable((code ? folder : whole).filename().native(), 256);
}

DType type_of(const PlannedTensor& tensor, FormatChooser* chooser) {
  if (tensor.floats || !is_quantizable(tensor.job.name, tensor.dims)) return DType::f32;
  return chooser == nullptr ? tensor.source : chooser->choose(tensor.job.name, tensor.dims);
}

// Of a file whose matrices kept their types: what most of its bytes are.
const ModelFormat& format_of(const TensorPlan& plan) {
  std::array<std::uint64_t, kDTypeCount> bytes{};
  for (const PlannedTensor& tensor : plan.tensors) {
    for (const SourcePiece& piece : tensor.job.pieces) {
      if (!tensor.floats) bytes[static_cast<std::size_t>(tensor.source)] += piece.bytes.size();
    }
  }
  DType most = DType::f32;
  for (const DType type : {DType::f16, DType::bf16}) {
    if (bytes[static_cast<std::size_t>(type)] > bytes[static_cast<std::size_t>(most)]) most = type;
  }
  return *find_model_format(dtype_info(most).name);
}

}  // namespace

std::span<const std::string_view> about_keys() {
  return kAboutKeys;
}

WrittenModel convert_model(const ConvertOptions& options, ThreadPool& pool, const WriteProgress& progress) {
  const Checkpoint checkpoint = Checkpoint::open(options.folder);
  std::vector<std::filesystem::path> inputs(checkpoint.tensor_files().begin(), checkpoint.tensor_files().end());
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                           "chat_template.jinja", "model.safetensors.index.json"}) {
    inputs.push_back(options.folder / name);
  }
  require_model_output(options.target, inputs);
  HfModel model = read_hf_config(checkpoint.config());
  TensorPlan plan = plan_tensors(checkpoint, model);
  HfTokenizer tokenizer = read_hf_tokenizer(checkpoint, model, options.pre);

  const ModelFormat& format = options.format != nullptr ? *options.format : format_of(plan);
  FormatChooser chooser(
      format,
      {.n_layers = model.config.n_layers, .n_experts = model.config.experts.n_experts, .has_head = plan.has_head});
  ModelOutput output;
  output.keys = {
      {"general.architecture", std::string(model.family->architecture)},
      {"general.type", std::string("model")},
      {"general.name", options.name.empty() ? name_of(options.folder) : options.name},
      {"general.file_type", format.file_type},
      {"general.quantization_version", kQuantizationVersion},
  };
  for (const auto& [key, text] : options.about) output.keys.emplace_back("general." + key, text);
  for (KeyList* list : {&model.keys, &tokenizer.keys}) {
    for (auto& key : *list) output.keys.push_back(std::move(key));
  }
  for (PlannedTensor& tensor : plan.tensors) {
    tensor.job.to = type_of(tensor, options.format != nullptr ? &chooser : nullptr);
    output.tensors.push_back({.dims = std::move(tensor.dims), .job = std::move(tensor.job)});
  }
  WrittenModel written = write_model(options.target, output, pool, progress, [&](const gguf::File& file) {
    try {
      describe_model(file);
    } catch (const Error& error) {
      fail(error.code(), "{}: it makes no model: {}", checkpoint.config().shown(), error.what());
    }
  });
  written.notes = std::move(tokenizer.notes);
  for (std::string& note : chooser.notes()) written.notes.push_back(std::move(note));
  return written;
}

}  // namespace conclave
