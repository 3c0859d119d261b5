// The weights of a model as ops take them: views into the mapped file where the device can reach it, copies on the
// device where it cannot. Nothing else is read here but a table of rope factors that is not f32.
#pragma once

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

// The file must outlive what comes back.
ModelWeights load_weights(const gguf::File& file, const ModelDescription& model, Device& device);

}  // namespace conclave
