// Every kind of work by the file that makes its cases.
#pragma once

#include "bench/kernels/bench_case.h"

namespace conclave::bench {

// moe_ffn_bench.cpp
BenchCase moe_ffn_case(CaseMaker& maker);
BenchCase moe_shared_expert_case(CaseMaker& maker);
// moe_matmul_bench.cpp
BenchCase moe_matmul_case(CaseMaker& maker);
BenchCase moe_gate_up_case(CaseMaker& maker);
BenchCase moe_down_case(CaseMaker& maker);
// moe_route_bench.cpp
BenchCase moe_route_case(CaseMaker& maker);
BenchCase moe_route_to_host_case(CaseMaker& maker);
BenchCase moe_routing_upload_case(CaseMaker& maker);
BenchCase moe_group_case(CaseMaker& maker);
BenchCase moe_pairs_by_token_case(CaseMaker& maker);
BenchCase moe_expert_ids_case(CaseMaker& maker);
BenchCase moe_align_blocks_case(CaseMaker& maker);
// moe_combine_bench.cpp
BenchCase moe_combine_case(CaseMaker& maker);
BenchCase moe_combine_residual_case(CaseMaker& maker);
BenchCase moe_combine_residual_norm_case(CaseMaker& maker);
// matmul_bench.cpp
BenchCase matmul_case(CaseMaker& maker);
BenchCase router_case(CaseMaker& maker);
BenchCase embed_case(CaseMaker& maker);
// attention_bench.cpp
BenchCase attention_decode_case(CaseMaker& maker);
BenchCase attention_prefill_case(CaseMaker& maker);
BenchCase kv_write_case(CaseMaker& maker);
BenchCase rope_case(CaseMaker& maker);
// rows_bench.cpp
BenchCase rms_norm_case(CaseMaker& maker);
BenchCase add_case(CaseMaker& maker);
BenchCase silu_mul_case(CaseMaker& maker);
BenchCase softmax_case(CaseMaker& maker);
BenchCase argmax_case(CaseMaker& maker);
BenchCase top_k_case(CaseMaker& maker);

// What several of them share.

// The CSR of a routing, as moe_group makes it.
ExpertGroups groups_of(CaseMaker& maker, const DrawnRouting& routing);
// Products with block weights are done in int8.
DotType dots_of(DType weights);
// 2 m n k.
double product_ops(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace conclave::bench
