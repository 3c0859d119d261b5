// The case lists, one pair of functions per op: what cases.cpp gathers.
#pragma once

#include "support/case.h"

namespace conclave::test {

#define CONCLAVE_OP_CASES(op)         \
  std::vector<CaseSpec> op##_cases(); \
  Op random_##op(CaseBuilder& b)

CONCLAVE_OP_CASES(moe_route);
CONCLAVE_OP_CASES(moe_route_to_host);
CONCLAVE_OP_CASES(moe_routing_upload);
CONCLAVE_OP_CASES(moe_group);
CONCLAVE_OP_CASES(moe_pairs_by_token);
CONCLAVE_OP_CASES(moe_expert_ids);
CONCLAVE_OP_CASES(moe_align_blocks);
CONCLAVE_OP_CASES(moe_matmul);
CONCLAVE_OP_CASES(moe_gate_up);
CONCLAVE_OP_CASES(silu_mul);
CONCLAVE_OP_CASES(moe_down);
CONCLAVE_OP_CASES(moe_shared_expert);
CONCLAVE_OP_CASES(moe_combine);
CONCLAVE_OP_CASES(moe_combine_residual);
CONCLAVE_OP_CASES(moe_combine_residual_norm);
CONCLAVE_OP_CASES(moe_ffn);
CONCLAVE_OP_CASES(embed);
CONCLAVE_OP_CASES(rms_norm);
CONCLAVE_OP_CASES(matmul);
CONCLAVE_OP_CASES(rope);
CONCLAVE_OP_CASES(kv_write);
CONCLAVE_OP_CASES(attention);
CONCLAVE_OP_CASES(add);
CONCLAVE_OP_CASES(softmax);
CONCLAVE_OP_CASES(argmax);
CONCLAVE_OP_CASES(top_k);

#undef CONCLAVE_OP_CASES

}  // namespace conclave::test
