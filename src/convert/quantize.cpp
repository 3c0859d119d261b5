#include "convert/quantize.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/fail.h"
#include "base/file_text.h"
#include "convert/metadata_copy.h"
#include "gguf/limits.h"
#include "gguf/split_set.h"

namespace conclave {
namespace {

constexpr std::string_view kFileType = "general.file_type";
constexpr std::string_view kQuantizationVersionKey = "general.quantization_version";
constexpr std::uint32_t kCurrentVersion = 2;

// A key of the architecture that is a count, or 0.
std::int64_t count_of(const gguf::File& file, std::string_view key) {
  const gguf::Value* architecture = file.find("general.architecture");
  if (architecture == nullptr || !architecture->as_string()) return 0;
  const gguf::Value* value = file.find(fmt::format("{}.{}", *architecture->as_string(), key));
  return value == nullptr ? 0 : value->as_i64().value_or(0);
}

std::vector<std::pair<std::string, gguf::Metadata>> keys_of(const gguf::File& file, const ModelFormat& format) {
  std::vector<std::pair<std::string, gguf::Metadata>> keys;
  for (const gguf::KeyValue& item : file.keys()) {
    const bool writers_own = item.key == gguf::kAlignmentKey || item.key == gguf::kSplitNumberKey ||
                             item.key == gguf::kSplitCountKey || item.key == gguf::kSplitTensorsKey;
    if (!writers_own) keys.emplace_back(item.key, copy_of(item.value));
  }
  const auto set = [&](std::string_view name, std::uint32_t value) {
    const auto held = std::find_if(keys.begin(), keys.end(), [&](const auto& item) { return item.first == name; });
    if (held != keys.end()) {
      held->second = value;
    } else {
      keys.emplace_back(name, value);
    }
  };
  set(kFileType, format.file_type);
  set(kQuantizationVersionKey, kCurrentVersion);
  return keys;
}

OutputTensor output_of(const gguf::File& file, const gguf::TensorInfo& tensor, const ModelFormat& format,
                       FormatChooser& chooser) {
  OutputTensor output{.dims = tensor.dims};
  output.job.name = tensor.name;
  const std::optional<DType> from = tensor.type->dtype;
  const bool decodes = from && !is_integer(*from);
  const bool changes = is_quantizable(tensor.name, tensor.dims) || (decodes && format.base == DType::f32);
  if (changes && !decodes) {
    fail(ErrorCode::unsupported, "tensor {} is {}, which conclave cannot decode", printable(tensor.name),
         tensor.type->name);
  }
  if (!from) {
    fail(ErrorCode::unsupported, "tensor {} is {}, which conclave does not write", printable(tensor.name),
         tensor.type->name);
  }
  output.job.to = changes ? chooser.choose(tensor.name, tensor.dims) : *from;
  output.job.pieces = {{*from, file.data(tensor)}};
  output.job.piece_elements = 1;
  for (const std::int64_t dim : tensor.dims) output.job.piece_elements *= dim;  // checked when the file was opened
  return output;
}

}  // namespace

WrittenModel quantize_model(const QuantizeOptions& options, ThreadPool& pool, const WriteProgress& progress) {
  const gguf::File file = gguf::File::open(options.source);
  const std::string shown = printable(options.source.native(), std::numeric_limits<std::size_t>::max());
  require_model_output(options.target, gguf::files_of_set(options.source, file.parts()));
  if (file.tensors().empty()) fail(ErrorCode::bad_file, "{}: there are no tensors in the file", shown);
  FormatChooser chooser(*options.format, {.n_layers = count_of(file, "block_count"),
                                          .n_experts = count_of(file, "expert_count"),
                                          .has_head = file.find_tensor("output.weight") != nullptr});
  ModelOutput output{.alignment = std::max<std::uint64_t>(file.alignment(), gguf::kDefaultAlignment)};
  output.keys = keys_of(file, *options.format);
  try {
    for (const gguf::TensorInfo& tensor : file.tensors()) {
      output.tensors.push_back(output_of(file, tensor, *options.format, chooser));
    }
  } catch (const Error& error) {  // the file's name, which they do not know
    fail(error.code(), "{}: {}", shown, error.what());
  }
  WrittenModel written = write_model(options.target, output, pool, progress);
  written.notes = chooser.notes();
  return written;
}

}  // namespace conclave
