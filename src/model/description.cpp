#include "model/description.h"

#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/fail.h"
#include "base/file_text.h"
#include "model/config_reader.h"
#include "model/families.h"
#include "model/keys.h"
#include "model/tensor_binding.h"

namespace conclave {
namespace {

const Family& read_family(const gguf::File& file) {
  const Keys general(file, "general");
  const std::string_view architecture = general.string("architecture");
  const Family* family = find_family(architecture);
  if (family != nullptr) return *family;
  std::vector<std::string_view> known;
  for (const Family& item : all_families()) known.push_back(item.architecture);
  fail(ErrorCode::bad_file, "general.architecture is '{}', supported: {}", printable(architecture),
       fmt::join(known, ", "));
}

void check_general(const gguf::File& file) {
  const Keys general(file, "general");
  const auto type = general.find_string("type");
  if (type && *type != "model") {
    fail(ErrorCode::bad_file, "general.type is '{}': a model is needed", printable(*type));
  }
  general.find_integer("quantization_version", {2, 2});  // the block layouts of before May 2023 have other versions
  if (file.tensors().empty())
    fail(ErrorCode::bad_file, "there are no tensors in the file: a vocabulary is not a model");
}

// Tokens, the vocab_size key and the rows of the embedding say the same, where they are there.
std::int64_t read_n_vocab(const gguf::File& file, const Family& family, const TokenizerDescription& tokenizer) {
  constexpr std::string_view kEmbedding = "token_embd.weight";
  const gguf::TensorInfo* embedding = file.find_tensor(kEmbedding);
  if (embedding == nullptr) fail(ErrorCode::bad_file, "tensor {} is missing", kEmbedding);
  const std::int64_t rows = embedding->dims.size() == 2 ? embedding->dims[0] : 1;
  const Keys keys(file, family.architecture);
  const auto given = keys.find_integer("vocab_size", {1, kMaxVocab});
  if (tokenizer.kind != TokenizerKind::none) {
    if (given && *given != tokenizer.n_tokens) {
      fail(ErrorCode::bad_file, "{} is {}, but the tokenizer has {} tokens", keys.full("vocab_size"), *given,
           tokenizer.n_tokens);
    }
    return tokenizer.n_tokens;
  }
  const std::int64_t n_vocab = given.value_or(rows);
  if (n_vocab > kMaxVocab)
    fail(ErrorCode::bad_file, "tensor {} has {} rows, at most {}", kEmbedding, n_vocab, kMaxVocab);
  for (const SpecialToken& token : tokenizer.special) {
    if (token.id >= n_vocab) {
      fail(ErrorCode::bad_file, "tokenizer.ggml.{}_token_id is {}, must be 0 to {}", printable(token.name), token.id,
           n_vocab - 1);
    }
  }
  return n_vocab;
}

std::int64_t n_elements(const gguf::TensorInfo& tensor) {
  std::int64_t n = 1;
  for (const std::int64_t dim : tensor.dims) {
    const auto product = checked_mul(n, dim);
    if (!product)
      fail(ErrorCode::bad_file, "tensor {} has more elements than 64 bits can count", printable(tensor.name));
    n = *product;
  }
  return n;
}

template <class T>
void add_to(T& total, T amount) {
  const auto sum = checked_add(total, amount);
  if (!sum) fail(ErrorCode::bad_file, "the tensors together are larger than 64 bits can count");
  total = *sum;
}

ModelSize measure(const gguf::File& file, const ModelConfig& config, const ModelTensors& tensors) {
  ModelSize size;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    add_to(size.n_params, n_elements(tensor));
    add_to(size.weight_bytes, tensor.bytes);
  }
  if (size.weight_bytes > file.file_bytes()) {
    fail(ErrorCode::bad_file, "the tensors take {} bytes, more than the {} of the file", size.weight_bytes,
         file.file_bytes());
  }
  std::int64_t idle = 0;
  for (const LayerTensors& layer : tensors.layers) {
    for (const TensorRef stack : {layer.gate, layer.up, layer.down}) {
      const std::int64_t one_expert = n_elements(*stack) / config.experts.n_experts;
      idle += one_expert * (config.experts.n_experts - config.experts.rule.top_k);
    }
  }
  if (!tensors.tied()) idle += (config.n_vocab - 1) * config.d_model;
  size.n_active_params = size.n_params - idle;

  constexpr std::int64_t kF16Bytes = 2;
  const std::int64_t kv_width = config.attention.n_kv_heads * config.attention.d_head;
  size.kv_bytes_per_token = static_cast<std::uint64_t>(config.n_layers * 2 * kv_width * kF16Bytes);
  return size;
}

std::vector<FormatUse> count_formats(const gguf::File& file) {
  std::vector<FormatUse> formats;
  for (const gguf::TensorInfo& tensor : file.tensors()) {
    auto use = std::find_if(formats.begin(), formats.end(), [&](const FormatUse& f) { return f.type == tensor.type; });
    if (use == formats.end()) use = formats.insert(formats.end(), {.type = tensor.type});
    ++use->n_tensors;
    use->n_params += n_elements(tensor);
    use->bytes += tensor.bytes;
  }
  std::stable_sort(formats.begin(), formats.end(),
                   [](const FormatUse& a, const FormatUse& b) { return a.bytes > b.bytes; });
  return formats;
}

}  // namespace

ModelDescription describe_model(const gguf::File& file) {
  const Family& family = read_family(file);
  check_general(file);
  ModelDescription model;
  model.config = read_config(file, family);
  model.tokenizer = describe_tokenizer(file);
  model.config.n_vocab = read_n_vocab(file, family, model.tokenizer);
  model.tensors = bind_tensors(file, family, model.config);
  model.size = measure(file, model.config, model.tensors);
  model.formats = count_formats(file);
  return model;
}

}  // namespace conclave
