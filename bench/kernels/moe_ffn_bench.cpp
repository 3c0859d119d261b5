// moe_ffn and its shared expert: bound by the bytes of the experts that were chosen, or by their dot products.
#include <map>

#include "bench/kernels/kinds.h"

namespace conclave::bench {
namespace {

constexpr std::int64_t kColumns = 64;  // of a sampled token's output
constexpr double kTwoTokens = 1e9;     // a second token is sampled where one costs fewer operations

double token_ops(const ModelShape& m, std::int64_t columns) {
  const double experts =
      static_cast<double>(m.top_k) * (2 * product_ops(1, m.d_ff, m.d_model) + product_ops(1, columns, m.d_ff));
  const double shared = 2 * product_ops(1, m.d_shared, m.d_model) + product_ops(1, columns, m.d_shared);
  return experts + shared;
}

// What one token gets in a few columns: all of gate and up, those columns of down.
MoeFfn sampled(MoeFfn op, const Window& token, const Window& columns) {
  const Window pairs{.first = 0, .count = op.rule.top_k};
  op.x = slice(op.x, 0, token);
  op.logits = slice(op.logits, 0, token);
  op.down = slice(op.down, 1, columns);
  op.routing = {.experts = slice(op.routing.experts, 0, token), .weights = slice(op.routing.weights, 0, token)};
  op.groups.row_pair = slice(op.groups.row_pair, 0, pairs);
  op.groups.pair_row = slice(op.groups.pair_row, 0, token);
  op.hidden = slice(op.hidden, 0, pairs);
  op.expert_out = slice(slice(op.expert_out, 0, pairs), 1, columns);
  op.residual = slice(slice(op.residual, 0, token), 1, columns);
  op.next = {};
  if (op.shared.gate.defined()) {
    op.shared.down = slice(op.shared.down, 0, columns);
    op.shared_hidden = slice(op.shared_hidden, 0, token);
    op.shared_out = slice(slice(op.shared_out, 0, token), 1, columns);
  }
  return op;
}

// The routing of every token, a few columns of one or two, and the norm of their new residual.
std::vector<Sample> samples_of(const MoeFfn& op, const ModelShape& m, test::Rng& rng) {
  std::vector<Sample> samples = {{.op = sequence_of(op).route}};
  const std::int64_t n_tokens = op.x.dim(0);
  const double whole = static_cast<double>(n_tokens) * token_ops(m, m.d_model);
  std::vector<Window> tokens = {{.first = n_tokens - 1, .count = 1}};
  if (n_tokens > 1 && token_ops(m, kColumns) < kTwoTokens) tokens.push_back(window(n_tokens - 1, 1, rng));
  for (const Window& token : tokens) {
    samples.push_back(
        {.op = sampled(op, token, window(m.d_model, kColumns, rng)), .share = token_ops(m, kColumns) / whole});
    samples.push_back({.op = RmsNorm{.x = slice(op.residual, 0, token),
                                     .weight = op.next.weight,
                                     .eps = op.next.eps,
                                     .out = slice(op.next.out, 0, token)}});
  }
  return samples;
}

MoeFfn without_weights(CaseMaker& maker) {
  const ModelShape& m = maker.shape;
  const std::int64_t n_tokens = maker.n_tokens;
  const std::int64_t n_pairs = n_tokens * m.top_k;
  MoeFfn op{.x = maker.values({n_tokens, m.d_model}),
            .rule = m.rule(),
            .routing = {.experts = maker.blank(DType::i32, {n_tokens, m.top_k}),
                        .weights = maker.blank(DType::f32, {n_tokens, m.top_k})},
            .groups = {.offsets = maker.blank(DType::i32, {maker.n_experts + 1}),
                       .row_pair = maker.blank(DType::i32, {n_pairs}),
                       .pair_row = maker.blank(DType::i32, {n_tokens, m.top_k})},
            .hidden = maker.blank(DType::f32, {n_pairs, m.d_ff}),
            .expert_out = maker.blank(DType::f32, {n_pairs, m.d_model}),
            .residual = maker.values({n_tokens, m.d_model}),
            .next = {.weight = maker.values({m.d_model}), .out = maker.blank(DType::f32, {n_tokens, m.d_model})}};
  if (m.d_shared > 0) {
    op.shared.gate_inp = maker.values({m.d_model}, 0.02);
    op.shared_hidden = maker.blank(DType::f32, {n_tokens, m.d_shared});
    op.shared_out = maker.blank(DType::f32, {n_tokens, m.d_model});
  }
  return op;
}

}  // namespace

BenchCase moe_ffn_case(CaseMaker& maker) {
  const std::vector<CaseMaker::ExpertSlot> slots = maker.expert_slots();
  const MoeFfn base = without_weights(maker);
  std::map<std::int64_t, Tensor> logits;  // by variant
  BenchCase made{.distinct_experts = slots.front().routing.n_distinct(), .n_experts = maker.n_experts};
  for (const CaseMaker::ExpertSlot& slot : slots) {
    if (logits.find(slot.variant) == logits.end()) {
      logits[slot.variant] =
          maker.floats({maker.n_tokens, maker.n_experts}, logits_for(slot.routing, maker.rng.bits()));
    }
    MoeFfn op = base;
    op.logits = logits[slot.variant];
    op.gate = slot.weights[0];
    op.up = slot.weights[1];
    op.down = slot.weights[2];
    if (maker.shape.d_shared > 0) {
      op.shared.gate = slot.weights[3];
      op.shared.up = slot.weights[4];
      op.shared.down = slot.weights[5];
    }
    made.slots.emplace_back(op);
  }
  made.samples = samples_of(std::get<MoeFfn>(made.slots[0]), maker.shape, maker.rng);
  const double share = static_cast<double>(made.distinct_experts) / static_cast<double>(maker.n_experts);
  made.work = {.bytes = moved_bytes(made.slots[0], {{"gate", share}, {"up", share}, {"down", share}}),
               .ops = static_cast<double>(maker.n_tokens) * token_ops(maker.shape, maker.shape.d_model),
               .in = dots_of(maker.key.format)};
  return maker.finish(std::move(made));
}

BenchCase moe_shared_expert_case(CaseMaker& maker) {
  const ModelShape& m = maker.shape;
  MoeSharedExpert op{.x = maker.values({maker.n_tokens, m.d_model}),
                     .gate_inp = maker.values({m.d_model}, 0.02),
                     .hidden = maker.blank(DType::f32, {maker.n_tokens, m.d_shared}),
                     .out = maker.blank(DType::f32, {maker.n_tokens, m.d_model})};
  BenchCase made;
  for (std::int64_t i = 0; i < maker.n_layers(); ++i) {
    const std::vector<Tensor> weights = maker.layer(i);
    op.gate = weights[0];
    op.up = weights[1];
    op.down = weights[2];
    made.slots.emplace_back(op);
  }
  MoeSharedExpert one = std::get<MoeSharedExpert>(made.slots[0]);
  const Window token = window(maker.n_tokens, 1, maker.rng);
  const Window columns = window(m.d_model, kColumns, maker.rng);
  one.x = slice(one.x, 0, token);
  one.down = slice(one.down, 0, columns);
  one.hidden = slice(one.hidden, 0, token);
  one.out = slice(slice(one.out, 0, token), 1, columns);
  const auto ops = [&](std::int64_t n) {
    return 2 * product_ops(1, m.d_shared, m.d_model) + product_ops(1, n, m.d_shared);
  };
  const double whole = static_cast<double>(maker.n_tokens) * ops(m.d_model);
  made.samples = {{.op = one, .share = ops(kColumns) / whole}};
  made.work = {.bytes = moved_bytes(made.slots[0]), .ops = whole, .in = dots_of(maker.key.format)};
  return maker.finish(std::move(made));
}

}  // namespace conclave::bench
