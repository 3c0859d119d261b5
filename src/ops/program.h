// Program: a recorded sequence of ops. Model code records one once per batch bucket; a device compiles it once and runs
// it many times. A descriptor holds no value that changes from step to step: those lie in tensors.
#pragma once

#include <span>
#include <vector>

#include "ops/op.h"

namespace conclave {

class Program {
 public:
  std::span<const Op> ops() const { return ops_; }
  void record(const Op& op) { ops_.push_back(op); }

  void embed(const Embed& op) { record(op); }
  void rms_norm(const RmsNorm& op) { record(op); }
  void matmul(const Matmul& op) { record(op); }
  void rope(const Rope& op) { record(op); }
  void kv_write(const KvWrite& op) { record(op); }
  void attention(const Attention& op) { record(op); }
  void add(const Add& op) { record(op); }
  void softmax(const Softmax& op) { record(op); }
  void argmax(const Argmax& op) { record(op); }
  void top_k(const TopK& op) { record(op); }

  void moe_route(const MoeRoute& op) { record(op); }
  void moe_route_to_host(const MoeRouteToHost& op) { record(op); }
  void moe_routing_upload(const MoeRoutingUpload& op) { record(op); }
  void moe_group(const MoeGroup& op) { record(op); }
  void moe_pairs_by_token(const MoePairsByToken& op) { record(op); }
  void moe_expert_ids(const MoeExpertIds& op) { record(op); }
  void moe_align_blocks(const MoeAlignBlocks& op) { record(op); }
  void moe_matmul(const MoeMatmul& op) { record(op); }
  void moe_gate_up(const MoeGateUp& op) { record(op); }
  void silu_mul(const SiluMul& op) { record(op); }
  void moe_down(const MoeDown& op) { record(op); }
  void moe_shared_expert(const MoeSharedExpert& op) { record(op); }
  void moe_combine(const MoeCombine& op) { record(op); }
  void moe_combine_residual(const MoeCombineResidual& op) { record(op); }
  void moe_combine_residual_norm(const MoeCombineResidualNorm& op) { record(op); }
  void moe_ffn(const MoeFfn& op) { record(op); }

 private:
  std::vector<Op> ops_;
};

}  // namespace conclave
