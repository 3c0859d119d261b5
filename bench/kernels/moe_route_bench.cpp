// Routing and the ops that sort its pairs: small ones, bound by latency long before bytes. Checked whole.
#include "bench/kernels/kinds.h"

namespace conclave::bench {
namespace {

constexpr std::int64_t kBlockSize = 16;

DrawnRouting drawn(CaseMaker& maker) {
  return draw_routing({maker.n_tokens, maker.n_experts, maker.shape.top_k}, Skew::uniform, maker.rng.bits());
}

Tensor experts(CaseMaker& maker) {
  return maker.ints({maker.n_tokens, maker.shape.top_k}, drawn(maker).experts);
}

Routing blank_routing(CaseMaker& maker) {
  return {.experts = maker.blank(DType::i32, {maker.n_tokens, maker.shape.top_k}),
          .weights = maker.blank(DType::f32, {maker.n_tokens, maker.shape.top_k})};
}

BenchCase whole(CaseMaker& maker, const Op& op, const std::vector<Share>& shares = {}) {
  return maker.finish({.slots = {op}, .samples = {{.op = op, .share = 1}}, .work = {.bytes = moved_bytes(op, shares)}});
}

}  // namespace

BenchCase moe_route_case(CaseMaker& maker) {
  return whole(maker, MoeRoute{.logits = maker.floats({maker.n_tokens, maker.n_experts},
                                                      logits_for(drawn(maker), maker.rng.bits())),
                               .rule = maker.shape.rule(),
                               .out = blank_routing(maker)});
}

BenchCase moe_route_to_host_case(CaseMaker& maker) {
  return whole(maker, MoeRouteToHost{.logits = maker.floats({maker.n_tokens, maker.n_experts},
                                                            logits_for(drawn(maker), maker.rng.bits())),
                                     .rule = maker.shape.rule(),
                                     .out = blank_routing(maker)});
}

BenchCase moe_routing_upload_case(CaseMaker& maker) {
  return whole(maker, MoeRoutingUpload{.from = {.experts = experts(maker),
                                                .weights = maker.values({maker.n_tokens, maker.shape.top_k})},
                                       .to = blank_routing(maker)});
}

BenchCase moe_group_case(CaseMaker& maker) {
  const std::int64_t top_k = maker.shape.top_k;
  return whole(maker, MoeGroup{.experts = experts(maker),
                               .n_experts = maker.n_experts,
                               .out = {.offsets = maker.blank(DType::i32, {maker.n_experts + 1}),
                                       .row_pair = maker.blank(DType::i32, {maker.n_tokens * top_k}),
                                       .pair_row = maker.blank(DType::i32, {maker.n_tokens, top_k})}});
}

BenchCase moe_pairs_by_token_case(CaseMaker& maker) {
  const std::int64_t top_k = maker.shape.top_k;
  return whole(maker, MoePairsByToken{.experts = experts(maker),
                                      .n_experts = maker.n_experts,
                                      .packed_row = maker.blank(DType::i32, {maker.n_tokens, top_k}),
                                      .row_token = maker.blank(DType::i32, {maker.n_tokens * top_k}),
                                      .offsets = maker.blank(DType::i32, {maker.n_experts + 1})});
}

BenchCase moe_expert_ids_case(CaseMaker& maker) {
  const std::int64_t n_pairs = maker.n_tokens * maker.shape.top_k;
  const MoeExpertIds op{.experts = experts(maker),
                        .n_experts = maker.n_experts,
                        .nr0 = 64,
                        .nr1 = 32,
                        .d_ff = maker.shape.d_ff,
                        .d_model = maker.shape.d_model,
                        .ids = maker.blank(DType::i32, {maker.n_experts, n_pairs}),
                        .tpe = maker.blank(DType::i32, {maker.n_experts}),
                        .max_rows = maker.blank(DType::i32, {1}),
                        .grid_gate_up = maker.blank(DType::u32, {3}),
                        .grid_down = maker.blank(DType::u32, {3})};
  // A row of ids is as long as all pairs: only one in n_experts entries is written.
  return whole(maker, op, {{"ids", 1.0 / static_cast<double>(maker.n_experts)}});
}

BenchCase moe_align_blocks_case(CaseMaker& maker) {
  const std::int64_t n_pairs = maker.n_tokens * maker.shape.top_k;
  const std::int64_t blocks = worst_case_blocks(n_pairs, maker.n_experts, kBlockSize);
  return whole(maker, MoeAlignBlocks{.experts = experts(maker),
                                     .n_experts = maker.n_experts,
                                     .block_size = kBlockSize,
                                     .out = {.sorted_ids = maker.blank(DType::i32, {blocks * kBlockSize}),
                                             .block_expert = maker.blank(DType::i32, {blocks}),
                                             .n_padded = maker.blank(DType::i32, {1})}});
}

}  // namespace conclave::bench
