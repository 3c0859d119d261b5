// Op: any op of the contract. The list below is the only one: programs, backends, tests, the selftest and the support
// table all go through it.
#pragma once

#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "ops/add.h"
#include "ops/argmax.h"
#include "ops/attention.h"
#include "ops/embed.h"
#include "ops/kv_write.h"
#include "ops/matmul.h"
#include "ops/moe_align_blocks.h"
#include "ops/moe_combine.h"
#include "ops/moe_combine_residual.h"
#include "ops/moe_combine_residual_norm.h"
#include "ops/moe_down.h"
#include "ops/moe_expert_ids.h"
#include "ops/moe_ffn.h"
#include "ops/moe_gate_up.h"
#include "ops/moe_group.h"
#include "ops/moe_matmul.h"
#include "ops/moe_pairs_by_token.h"
#include "ops/moe_route.h"
#include "ops/moe_route_to_host.h"
#include "ops/moe_routing_upload.h"
#include "ops/moe_shared_expert.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/silu_mul.h"
#include "ops/softmax.h"
#include "ops/top_k.h"

namespace conclave {

using Op = std::variant<MoeRoute, MoeRouteToHost, MoeRoutingUpload, MoeGroup, MoePairsByToken, MoeExpertIds,
                        MoeAlignBlocks, MoeMatmul, MoeGateUp, SiluMul, MoeDown, MoeSharedExpert, MoeCombine,
                        MoeCombineResidual, MoeCombineResidualNorm, MoeFfn, Embed, RmsNorm, Matmul, Rope, KvWrite,
                        Attention, Add, Softmax, Argmax, TopK>;

inline std::string_view op_name(const Op& op) {
  return std::visit([](const auto& o) { return std::remove_cvref_t<decltype(o)>::kName; }, op);
}

// Throws an Error that names the op, the member and the values, unless the op can be run as it stands.
inline void validate(const Op& op) {
  std::visit([](const auto& o) { validate(o); }, op);
}

// Runs the plain reference. All tensors in host memory; validate() first.
inline void reference(const Op& op) {
  std::visit([](const auto& o) { reference(o); }, op);
}

// One tensor of an op and what the op does with it.
struct Access {
  Role role;
  std::string_view name;
  Tensor tensor;
};
std::vector<Access> accesses(const Op& op);

// What an op costs at most: bytes that must move once (each tensor once, of the experts' weights only as many experts
// as there are pairs), and floating-point operations of its products and attention (a multiply-add is two).
struct Cost {
  double bytes = 0;
  double flops = 0;
};
Cost cost_of(const Op& op);

}  // namespace conclave
