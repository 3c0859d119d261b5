#include "bench/kernels/kinds.h"

#include <array>

namespace conclave::bench {
namespace {

constexpr std::array<std::int64_t, 3> kFewMany = {1, 8, 512};
constexpr std::array<std::int64_t, 2> kFew = {1, 8};  // rows as long as the vocabulary
constexpr std::array<std::int64_t, 3> kStreams = {1, 8, 32};
constexpr std::array<std::int64_t, 2> kPrompt = {128, 512};

using Shapes = std::vector<Dims>;

Shapes ffn_weights(const ModelShape& m, std::int64_t n_experts) {
  Shapes shapes = {{n_experts, m.d_ff, m.d_model}, {n_experts, m.d_ff, m.d_model}, {n_experts, m.d_model, m.d_ff}};
  if (m.d_shared > 0) {
    shapes.insert(shapes.end(), {{m.d_shared, m.d_model}, {m.d_shared, m.d_model}, {m.d_model, m.d_shared}});
  }
  return shapes;
}
Shapes gate_up_weights(const ModelShape& m, std::int64_t n_experts) {
  return {{n_experts, m.d_ff, m.d_model}, {n_experts, m.d_ff, m.d_model}};
}
Shapes gate_weights(const ModelShape& m, std::int64_t n_experts) {
  return {{n_experts, m.d_ff, m.d_model}};
}
Shapes down_weights(const ModelShape& m, std::int64_t n_experts) {
  return {{n_experts, m.d_model, m.d_ff}};
}
Shapes shared_weights(const ModelShape& m, std::int64_t) {
  if (m.d_shared == 0) return {};
  return {{m.d_shared, m.d_model}, {m.d_shared, m.d_model}, {m.d_model, m.d_shared}};
}
Shapes q_weights(const ModelShape& m, std::int64_t) {
  return {{m.n_heads * m.d_head, m.d_model}};
}
Shapes k_weights(const ModelShape& m, std::int64_t) {
  return {{m.n_kv_heads * m.d_head, m.d_model}};
}
Shapes o_weights(const ModelShape& m, std::int64_t) {
  return {{m.d_model, m.n_heads * m.d_head}};
}
Shapes router_weights(const ModelShape& m, std::int64_t) {
  return {{m.n_experts, m.d_model}};
}
Shapes vocabulary_weights(const ModelShape& m, std::int64_t) {
  return {{m.n_vocab, m.d_model}};
}

// A kind that has weights in every format.
constexpr Kind with_weights(std::string_view op, std::string_view part,
                            Shapes (*weights)(const ModelShape&, std::int64_t), BenchCase (*make)(CaseMaker&)) {
  return {.op = op, .part = part, .formats = Formats::weights, .tokens = kFewMany, .weights = weights, .make = make};
}
constexpr Kind plain(std::string_view op, BenchCase (*make)(CaseMaker&)) {
  return {.op = op, .tokens = kFewMany, .make = make};
}

constexpr Kind skewed(Kind kind) {
  kind.skews = true;
  return kind;
}
constexpr Kind between(Kind kind, std::int64_t fewest, std::int64_t most, std::span<const std::int64_t> tokens) {
  kind.fewest = fewest;
  kind.most = most;
  kind.tokens = tokens;
  return kind;
}
constexpr Kind in_cache(Kind kind, std::string_view part) {
  kind.formats = Formats::cache;
  kind.part = part;
  return kind;
}

constexpr std::int64_t kMost = 1 << 16;

constexpr std::array kKinds = {
    skewed(with_weights("moe_ffn", "", ffn_weights, moe_ffn_case)),
    with_weights("moe_gate_up", "", gate_up_weights, moe_gate_up_case),
    with_weights("moe_down", "", down_weights, moe_down_case),
    with_weights("moe_matmul", "", gate_weights, moe_matmul_case),
    with_weights("moe_shared_expert", "", shared_weights, moe_shared_expert_case),
    with_weights("matmul", "attn_q", q_weights, matmul_case),
    with_weights("matmul", "attn_k", k_weights, matmul_case),
    with_weights("matmul", "attn_o", o_weights, matmul_case),
    between(with_weights("matmul", "head", vocabulary_weights, matmul_case), 1, kMost, kFew),
    Kind{.op = "matmul", .part = "router", .tokens = kFewMany, .weights = router_weights, .make = router_case},
    with_weights("embed", "", vocabulary_weights, embed_case),
    between(in_cache(plain("attention", attention_decode_case), "4096 each"), 1, 32, kStreams),
    between(in_cache(plain("attention", attention_prefill_case), "prompt"), 8, kMost, kPrompt),
    in_cache(plain("kv_write", kv_write_case), ""),
    plain("rope", rope_case),
    plain("moe_route", moe_route_case),
    plain("moe_route_to_host", moe_route_to_host_case),
    plain("moe_routing_upload", moe_routing_upload_case),
    plain("moe_group", moe_group_case),
    plain("moe_pairs_by_token", moe_pairs_by_token_case),
    plain("moe_expert_ids", moe_expert_ids_case),
    plain("moe_align_blocks", moe_align_blocks_case),
    plain("moe_combine", moe_combine_case),
    plain("moe_combine_residual", moe_combine_residual_case),
    plain("moe_combine_residual_norm", moe_combine_residual_norm_case),
    plain("rms_norm", rms_norm_case),
    plain("add", add_case),
    plain("silu_mul", silu_mul_case),
    between(plain("softmax", softmax_case), 1, kMost, kFew),
    between(plain("argmax", argmax_case), 1, kMost, kFew),
    between(plain("top_k", top_k_case), 1, kMost, kFew),
};

}  // namespace

std::span<const Kind> all_kinds() {
  return kKinds;
}

ExpertGroups groups_of(CaseMaker& maker, const DrawnRouting& routing) {
  const auto [n_tokens, n_experts, top_k] = routing.shape;
  const MoeGroup group{.experts = maker.ints({n_tokens, top_k}, routing.experts),
                       .n_experts = n_experts,
                       .out = {.offsets = maker.blank(DType::i32, {n_experts + 1}),
                               .row_pair = maker.blank(DType::i32, {n_tokens * top_k}),
                               .pair_row = maker.blank(DType::i32, {n_tokens, top_k})}};
  reference(group);
  return group.out;
}

DotType dots_of(DType weights) {
  return is_block(weights) ? DotType::int8 : DotType::f32;
}

double product_ops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

}  // namespace conclave::bench
