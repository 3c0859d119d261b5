// The weights of a model as ops take them: views into the mapped file where the device can reach it, copies on the
// device where it cannot. Nothing else is read here but a table of rope factors that is not f32.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "gguf/file.h"
#include "model/attention_layer.h"
#include "model/description.h"
#include "model/moe_layer.h"
#include "ops/device.h"

namespace conclave {

struct LayerWeights {
  Tensor attn_norm;  // [d_model]
  AttentionWeights attention;
  Tensor ffn_norm;  // [d_model]
  MoeWeights moe;
};

struct ModelWeights {
  Tensor token_embd;   // [n_vocab, d_model]
  Tensor output_norm;  // [d_model]
  Tensor output;       // [n_vocab, d_model]
  std::vector<LayerWeights> layers;

  std::vector<std::shared_ptr<Buffer>> buffers;  // what the tensors lie in
};

// Bytes that the device has got so far of those that it gets.
using LoadProgress = std::function<void(std::uint64_t done_bytes, std::uint64_t total_bytes)>;

// The file must outlive what comes back. A device that does not reach the file gets a copy: where it has no room, that is
// an Error(out_of_memory) before the first byte is copied; `progress`, which may be empty, is told how far it is.
ModelWeights load_weights(const gguf::File& file, const ModelDescription& model, Device& device,
                          const LoadProgress& progress = {});

}  // namespace conclave
