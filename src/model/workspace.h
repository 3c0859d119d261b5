// Workspace: every activation of a step, allocated once for the largest step and shared by all of them.
#pragma once

#include <memory>
#include <vector>

#include "model/attention_layer.h"
#include "model/config.h"
#include "model/moe_layer.h"
#include "ops/device.h"

namespace conclave {

struct WorkspaceShape {
  std::int64_t max_tokens = 1;  // of a step
  std::int64_t max_out = 1;     // rows that go through the head at a time
  bool trace_routing = false;   // a routing for each layer instead of one for all
};

// Scratch for some rows: the tokens of a step, or those of them whose logits are wanted.
struct RowScratch {
  Tensor x;          // f32 [n, d_model]: the residual stream
  Tensor projected;  // f32 [n, d_model]
  Tensor attn_in;    // f32 [n, d_model]: normed, for attention; for the head, in the last layer
  Tensor ffn_in;     // f32 [n, d_model]: normed, for the experts
  Tensor attended;   // f32 [n, n_heads * d_head]
};

// The best logits of each row, as top_k gives them: all ids, then all values, without a gap.
struct TopLogits {
  Tensor ids;     // i32 [n, kTopLogits]
  Tensor values;  // f32 [n, kTopLogits]
};

class Workspace {
 public:
  static constexpr std::int64_t kTopLogits = 64;

  // Bytes of all of it. Throws Error(out_of_memory) where they do not fit 64 bits.
  static std::int64_t bytes_for(const ModelConfig& config, const WorkspaceShape& shape);
  Workspace(Device& device, const ModelConfig& config, const WorkspaceShape& shape);

  // Views for a program of n tokens: the first rows of everything.
  RowScratch rows(std::int64_t n_tokens) const;
  AttentionScratch attention(std::int64_t n_tokens) const;
  // The rows of the head: gathered from those of the step, which stay as they are.
  RowScratch out_rows(std::int64_t n_out) const;
  Tensor logits(std::int64_t n_out) const;  // f32 [n_out, n_vocab]
  Tensor best(std::int64_t n_out) const;    // i32 [n_out]: the largest of each row of them
  TopLogits top(std::int64_t n_out) const;
  // Experts' scratch for n rows; of a layer, since with tracing each layer keeps its routing.
  MoeScratch moe(std::int64_t layer, const Tensor& normed, const Tensor& live) const;
  Routing routing(std::int64_t layer) const;
  Tensor expert_counts() const { return tensors_.expert_counts; }  // i32 [n_layers, n_experts]: adds up over the steps

 private:
  struct Tensors {
    RowScratch rows;
    RowScratch out;
    Tensor q, k, v;
    Tensor logits;
    Tensor best;
    Tensor top;  // [ids or values, n_out, kTopLogits]
    MoeScratch moe;
    std::vector<Routing> routings;  // one, or [n_layers]
    Tensor expert_counts;
  };
  template <class Visit>
  static void visit(Tensors& t, const ModelConfig& config, const WorkspaceShape& shape, Visit&& visit);

  std::int64_t top_k_;
  Tensors tensors_;
  std::shared_ptr<Buffer> buffer_;
};

}  // namespace conclave
