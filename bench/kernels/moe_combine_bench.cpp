// The three combines over packed rows: bytes, of activations that a layer has just written.
#include "bench/kernels/kinds.h"

namespace conclave::bench {
namespace {

constexpr std::int64_t kTokens = 64;  // of a sample

CombineInput combine_input(CaseMaker& maker) {
  const std::int64_t top_k = maker.shape.top_k;
  const DrawnRouting drawn = draw_routing({maker.n_tokens, maker.n_experts, top_k}, Skew::uniform, maker.rng.bits());
  return {.rows = maker.values({maker.n_tokens * top_k, maker.shape.d_model}),
          .weights = maker.values({maker.n_tokens, top_k}, 0.1),
          .pair_row = groups_of(maker, drawn).pair_row};
}

CombineInput of_tokens(CombineInput from, const Window& tokens) {
  from.weights = slice(from.weights, 0, tokens);
  from.pair_row = slice(from.pair_row, 0, tokens);
  return from;
}

BenchCase sampled(CaseMaker& maker, const Op& op, const Op& sample, const Window& tokens) {
  const double share = static_cast<double>(tokens.count) / static_cast<double>(maker.n_tokens);
  return maker.finish({.slots = {op}, .samples = {{.op = sample, .share = share}}, .work = {.bytes = moved_bytes(op)}});
}

}  // namespace

BenchCase moe_combine_case(CaseMaker& maker) {
  const MoeCombine op{.from = combine_input(maker),
                      .out = maker.blank(DType::f32, {maker.n_tokens, maker.shape.d_model})};
  const Window tokens = window(maker.n_tokens, kTokens, maker.rng);
  return sampled(maker, op, MoeCombine{.from = of_tokens(op.from, tokens), .out = slice(op.out, 0, tokens)}, tokens);
}

BenchCase moe_combine_residual_case(CaseMaker& maker) {
  const MoeCombineResidual op{.from = combine_input(maker),
                              .residual = maker.values({maker.n_tokens, maker.shape.d_model})};
  const Window tokens = window(maker.n_tokens, kTokens, maker.rng);
  return sampled(maker, op,
                 MoeCombineResidual{.from = of_tokens(op.from, tokens), .residual = slice(op.residual, 0, tokens)},
                 tokens);
}

BenchCase moe_combine_residual_norm_case(CaseMaker& maker) {
  const MoeCombineResidualNorm op{.from = combine_input(maker),
                                  .residual = maker.values({maker.n_tokens, maker.shape.d_model}),
                                  .next = {.weight = maker.values({maker.shape.d_model}),
                                           .out = maker.blank(DType::f32, {maker.n_tokens, maker.shape.d_model})}};
  const Window tokens = window(maker.n_tokens, kTokens, maker.rng);
  MoeCombineResidualNorm sample{
      .from = of_tokens(op.from, tokens), .residual = slice(op.residual, 0, tokens), .next = op.next};
  sample.next.out = slice(op.next.out, 0, tokens);
  return sampled(maker, op, sample, tokens);
}

}  // namespace conclave::bench
