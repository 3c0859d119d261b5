#include "engine/loaded_model.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "base/file_text.h"
#include "base/resident.h"

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

Model load_model(gguf::File file, const std::filesystem::path& path, std::unique_ptr<Device> device,
                 const LoadProgress& progress) {
  try {
    ModelDescription description = describe_model(file);
    ModelWeights weights = load_weights(file, description, *device, progress);
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

void Model::read_in(const std::function<bool(std::uint64_t, std::uint64_t)>& progress) const {
  constexpr std::size_t kBlock = std::size_t{16} << 20;
  const bool copied =
      std::none_of(impl_->weights.buffers.begin(), impl_->weights.buffers.end(),
                   [&](const auto& buffer) { return buffer->host() != nullptr && impl_->device->reaches(*buffer); });
  if (copied) return;  // the file is not used any more
  std::vector<std::span<const std::byte>> blocks;
  std::uint64_t total = 0;
  for (const gguf::TensorInfo& tensor : impl_->file.tensors()) {
    for (std::span<const std::byte> rest = impl_->file.data(tensor); !rest.empty();) {
      const std::span<const std::byte> block = rest.first(std::min(kBlock, rest.size()));
      rest = rest.subspan(block.size());
      if (is_resident(block)) continue;
      blocks.push_back(block);
      total += block.size();
    }
  }
  std::uint64_t done = 0;
  for (const std::span<const std::byte> block : blocks) {
    conclave::read_in(block);
    done += block.size();
    if (progress && !progress(done, total)) return;
  }
}

const ModelFacts& Model::facts() const {
  return impl_->facts;
}

}  // namespace conclave
