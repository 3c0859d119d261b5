#include "engine/loaded_model.h"

#include <utility>

#include "base/file_text.h"

namespace conclave {
namespace {

ModelFacts facts_of(const gguf::File& file, const ModelDescription& model, const Device& device) {
  const ModelConfig& c = model.config;
  return {.architecture = c.architecture,
          .name = c.name,
          .device = std::string(device.name()),
          .n_vocab = c.n_vocab,
          .n_context = c.n_context,
          .n_layers = c.n_layers,
          .d_model = c.d_model,
          .n_experts = c.experts.n_experts,
          .top_k = c.experts.rule.top_k,
          .n_params = model.size.n_params,
          .n_active_params = model.size.n_active_params,
          .file_bytes = file.file_bytes(),
          .has_vocabulary = model.tokenizer.kind != TokenizerKind::none};
}

}  // namespace

Model load_model(const std::filesystem::path& path, std::unique_ptr<Device> device) {
  gguf::File file = gguf::File::open(path);
  try {
    ModelDescription description = describe_model(file);
    ModelWeights weights = load_weights(file, description, *device);
    ModelFacts facts = facts_of(file, description, *device);
    return Model(std::make_shared<Model::Impl>(Model::Impl{.file = std::move(file),
                                                           .description = std::move(description),
                                                           .device = std::move(device),
                                                           .weights = std::move(weights),
                                                           .facts = std::move(facts)}));
  } catch (const Error& error) {  // the file's name, which the model's checks do not know
    throw Error(error.code(), printable(path.native(), path.native().size()) + ": " + error.what());
  }
}

Model::Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

const ModelFacts& Model::facts() const {
  return impl_->facts;
}

}  // namespace conclave
