#include "bench/kernels/model_shapes.h"

#include <array>
#include <string>

#include "base/fail.h"

namespace conclave::bench {
namespace {

constexpr std::array kShapes = {
    ModelShape{.name = kMainModel,
               .d_model = 2048,
               .d_ff = 768,
               .n_experts = 128,
               .top_k = 8,
               .n_heads = 32,
               .n_kv_heads = 4,
               .d_head = 128,
               .n_vocab = 151936,
               .d_shared = 0,
               .score = Score::softmax,
               .renormalize = true},
    ModelShape{.name = "mixtral-8x7b",
               .d_model = 4096,
               .d_ff = 14336,
               .n_experts = 8,
               .top_k = 2,
               .n_heads = 32,
               .n_kv_heads = 8,
               .d_head = 128,
               .n_vocab = 32000,
               .d_shared = 0,
               .score = Score::softmax_after_top_k,
               .renormalize = false},
    ModelShape{.name = "olmoe-7b",
               .d_model = 2048,
               .d_ff = 1024,
               .n_experts = 64,
               .top_k = 8,
               .n_heads = 16,
               .n_kv_heads = 16,
               .d_head = 128,
               .n_vocab = 50304,
               .d_shared = 0,
               .score = Score::softmax,
               .renormalize = false},
    ModelShape{.name = "qwen2-57b-a14b",
               .d_model = 3584,
               .d_ff = 2560,
               .n_experts = 64,
               .top_k = 8,
               .n_heads = 28,
               .n_kv_heads = 4,
               .d_head = 128,
               .n_vocab = 151936,
               .d_shared = 20480,
               .score = Score::softmax,
               .renormalize = false},
};

}  // namespace

std::span<const ModelShape> model_shapes() {
  return kShapes;
}

const ModelShape& model_shape(std::string_view name) {
  std::string known;
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", shape.name);
  }
  fail(ErrorCode::invalid_argument, "there is no model '{}' to benchmark; there are: {}", name, known);
}

}  // namespace conclave::bench
