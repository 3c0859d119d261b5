#include <cmath>
#include <limits>

#include "base/fail.h"
#include "support/cases/op_cases.h"
#include "support/cases/route_inputs.h"

namespace conclave::test {
namespace {

Op route(CaseBuilder& b, const RouteShape& shape) {
  MoeRoute op = route_inputs(b, shape);
  op.out.experts = b.output(DType::i32, {shape.n_tokens, shape.rule.top_k});
  op.out.weights = b.output(DType::f32, {shape.n_tokens, shape.rule.top_k});
  if (shape.counter) op.out.no_finite = b.ints(DType::i32, {1}, {shape.counter_start});
  if (shape.counts) op.out.counts = count_tensor(b, shape);
  return op;
}

// A bias of minus the exact score leaves the rounding error of the score as the rank: only the very arithmetic of scoring.h
// gives these ids.
Op decided_by_the_last_bit(CaseBuilder& b, Score score) {
  const std::int64_t n_experts = 96;
  std::vector<float> logits;
  double sum = 0;
  for (std::int64_t e = 0; e < n_experts; ++e) {
    logits.push_back(static_cast<float>(b.rng.normal() * 3));
    sum += std::exp(static_cast<double>(logits.back()));
  }
  std::vector<float> bias;
  for (const float logit : logits) {
    const double e = std::exp(static_cast<double>(logit));
    const double exact = score == Score::softmax   ? e / sum
                         : score == Score::sigmoid ? e / (1 + e)
                                                   : std::sqrt(std::log1p(e));
    bias.push_back(static_cast<float>(-exact));
  }
  const std::int64_t top_k = 32;
  return MoeRoute{.logits = b.floats(DType::f32, {1, n_experts}, logits),
                  .bias = b.floats(DType::f32, {n_experts}, bias),
                  .rule = {.top_k = top_k, .score = score},
                  .out = {.experts = b.output(DType::i32, {1, top_k}), .weights = b.output(DType::f32, {1, top_k})}};
}

constexpr Score kScores[] = {Score::softmax, Score::softmax_after_top_k, Score::sigmoid, Score::sqrt_softplus};
constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

}  // namespace

std::vector<CaseSpec> moe_route_cases() {
  CaseList list("moe_route");
  const auto add = [&](const std::string& name, const RouteShape& shape) {
    list.add(name, [shape](CaseBuilder& b) { return route(b, shape); });
  };

  for (const std::int64_t n : {1, 3, 31, 33, 60, 72, 128, 160, 257, 384, 512, 896, 1024}) {
    const Score score = kScores[static_cast<std::size_t>(n) % 4];
    add(fmt::format("{} experts", n),
        {.n_tokens = 3,
         .n_experts = n,
         .rule = {.top_k = std::min<std::int64_t>(n, 8), .score = score, .renormalize = true}});
    add(fmt::format("{} experts, top 1", n), {.n_tokens = 2, .n_experts = n, .rule = {.top_k = 1}});
  }
  for (const std::int64_t n : {1, 3, 31, 33, 60}) {
    add(fmt::format("all of {} experts", n),
        {.n_tokens = 2, .n_experts = n, .rule = {.top_k = n, .renormalize = true}});
  }
  for (const std::int64_t n_tokens : {0, 1, 2, 7, 129}) {
    add(fmt::format("{} tokens", n_tokens),
        {.n_tokens = n_tokens, .n_experts = 16, .rule = {.top_k = 4, .renormalize = true}});
  }
  for (const Score score : kScores) {
    for (const DType type : kTypes) {
      list.add_small(fmt::format("{} {}", name(score), dtype_info(type).name), [=](CaseBuilder& b) {
        return route(b, {.n_experts = 12, .rule = {.top_k = 3, .score = score}, .type = type});
      });
    }
    const auto rule = [score](RoutingRule r) {
      r.score = score;
      return r;
    };
    const std::string with = std::string(name(score));
    add(with + ", renormalized", {.n_experts = 20, .rule = rule({.top_k = 5, .renormalize = true})});
    add(with + ", scaled", {.n_experts = 20, .rule = rule({.top_k = 5, .scale = 2.5F})});
    add(with + ", bias", {.n_experts = 20, .rule = rule({.top_k = 5, .renormalize = true}), .bias = true});
    add(with + ", bias and expert scale",
        {.n_experts = 20, .rule = rule({.top_k = 5, .scale = 0.5F}), .bias = true, .expert_scale = true});
    for (const GroupScore group : {GroupScore::max, GroupScore::sum_of_two}) {
      for (const bool bias : {false, true}) {
        add(fmt::format("{}, groups by {}{}", with, name(group), bias ? ", bias" : ""),
            {.n_tokens = 6,
             .n_experts = 24,
             .rule = rule({.top_k = 4, .renormalize = true, .n_groups = 6, .top_groups = 2, .group_score = group}),
             .bias = bias});
      }
    }
    add(with + ", groups of one",
        {.n_experts = 6,
         .rule = rule({.top_k = 3, .n_groups = 6, .top_groups = 4, .group_score = GroupScore::sum_of_two})});
    add(with + ", equal logits",
        {.n_experts = 33, .rule = rule({.top_k = 7, .renormalize = true}), .logits = Logits::equal});
    add(with + ", equal logits in groups",
        {.n_experts = 32, .rule = rule({.top_k = 6, .n_groups = 8, .top_groups = 3}), .logits = Logits::equal});
    add(with + ", many ties", {.n_experts = 40, .rule = rule({.top_k = 9}), .logits = Logits::few_values});
    add(with + ", zeros of both signs", {.n_experts = 18, .rule = rule({.top_k = 6}), .logits = Logits::signed_zeros});
    add(with + ", NaN and infinities", {.n_tokens = 8,
                                        .n_experts = 12,
                                        .rule = rule({.top_k = 6, .renormalize = true}),
                                        .logits = Logits::specials,
                                        .counter = true});
    add(with + ", NaN and infinities, bias, groups",
        {.n_tokens = 8,
         .n_experts = 12,
         .rule = rule({.top_k = 4, .n_groups = 4, .top_groups = 2, .group_score = GroupScore::sum_of_two}),
         .logits = Logits::specials,
         .bias = true,
         .counter = true});
    list.add_small(with + ", rows without a finite logit", [=](CaseBuilder& b) {
      return route(b, {.n_tokens = 6,
                       .n_experts = 9,
                       .rule = rule({.top_k = 4, .renormalize = true, .scale = 3.0F}),
                       .logits = Logits::hopeless,
                       .expert_scale = true,
                       .counter = true});
    });
    add(with + ", far apart", {.n_tokens = 9, .n_experts = 64, .rule = rule({.top_k = 8}), .logits = Logits::wide});
    add(with + ", far apart in groups",
        {.n_tokens = 9,
         .n_experts = 64,
         .rule = rule({.top_k = 8, .n_groups = 8, .top_groups = 4, .group_score = GroupScore::sum_of_two}),
         .logits = Logits::wide});
    add(with + ", huge logits",
        {.n_experts = 10, .rule = rule({.top_k = 4, .renormalize = true}), .logits = Logits::large});
  }
  // A sum of weights far below 2^-14: the divisor is 2^-14 instead.
  list.add("renormalized tiny weights", [](CaseBuilder& b) {
    std::vector<float> logits(12);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = -20.0F - static_cast<float>(i) * 0.5F;
    return Op(MoeRoute{.logits = b.floats(DType::f32, {2, 6}, logits),
                       .rule = {.top_k = 3, .score = Score::sigmoid, .renormalize = true},
                       .out = {.experts = b.output(DType::i32, {2, 3}), .weights = b.output(DType::f32, {2, 3})}});
  });
  // One group holds the single best expert, another the best pair: the two group scores disagree.
  for (const GroupScore group : {GroupScore::max, GroupScore::sum_of_two}) {
    list.add(fmt::format("groups that {} tells apart", name(group)), [=](CaseBuilder& b) {
      return Op(
          MoeRoute{.logits = b.floats(DType::f32, {1, 6}, {2.0F, -9.0F, 1.0F, 0.9F, -3.0F, -4.0F}),
                   .rule = {.top_k = 2, .score = Score::sigmoid, .n_groups = 3, .top_groups = 1, .group_score = group},
                   .out = {.experts = b.output(DType::i32, {1, 2}), .weights = b.output(DType::f32, {1, 2})}});
    });
  }
  add("a counter that is full", {.n_tokens = 6,
                                 .rule = {.top_k = 2},
                                 .logits = Logits::hopeless,
                                 .counter = true,
                                 .counter_start = std::numeric_limits<std::int32_t>::max() - 1});
  // A masked expert adds nothing to its group's sum; minus infinity would throw the group out.
  list.add("a group with one masked expert", [](CaseBuilder& b) {
    return Op(MoeRoute{.logits = b.floats(DType::f32, {1, 4}, {-1.0F, -1.0F, 5.0F, -INFINITY}),
                       .rule = {.top_k = 1,
                                .score = Score::sigmoid,
                                .n_groups = 2,
                                .top_groups = 1,
                                .group_score = GroupScore::sum_of_two},
                       .out = {.experts = b.output(DType::i32, {1, 1}), .weights = b.output(DType::f32, {1, 1})}});
  });
  for (const Score score : {Score::softmax, Score::sigmoid, Score::sqrt_softplus}) {
    list.add_small(fmt::format("{}, the last bit of the scores decides", name(score)),
                   [=](CaseBuilder& b) { return decided_by_the_last_bit(b, score); });
  }
  for (const std::int64_t live : {-2, 0, 3, 100}) {
    add(fmt::format("live {} of 5", live),
        {.n_experts = 8, .rule = {.top_k = 2}, .logits = Logits::hopeless, .counter = true, .live = live});
  }
  add("counts", {.n_tokens = 40, .n_experts = 16, .rule = {.top_k = 3}, .counter = true, .counts = 5});
  add("counts of a thousand tokens", {.n_tokens = 1000, .n_experts = 12, .rule = {.top_k = 2}, .counts = 0});
  add("counts that start anew", {.n_tokens = 9, .n_experts = 4, .rule = {.top_k = 3}, .counts = -2});
  add("counts that pass 2^31",
      {.n_tokens = 9, .n_experts = 4, .rule = {.top_k = 3}, .counts = std::numeric_limits<std::int32_t>::max() - 1});
  for (const std::int64_t top_k : {4, 40}) {
    list.add_small(fmt::format("counts of rows without a finite logit, top {}", top_k), [=](CaseBuilder& b) {
      return route(b, {.n_tokens = 6,
                       .n_experts = 50,
                       .rule = {.top_k = top_k},
                       .logits = Logits::hopeless,
                       .counter = true,
                       .counts = 1,
                       .live = 5});
    });
  }
  return list.take();
}

Op random_moe_route(CaseBuilder& b) {
  return route(b, random_route(b.rng, 20, 80));
}

namespace {

Op route_to_host(CaseBuilder& b, const RouteShape& shape) {
  const MoeRoute in = route_inputs(b, shape);
  return MoeRouteToHost{.logits = in.logits,
                        .bias = in.bias,
                        .expert_scale = in.expert_scale,
                        .live = in.live,
                        .rule = in.rule,
                        .out = {.experts = b.output(DType::i32, {shape.n_tokens, shape.rule.top_k}),
                                .weights = b.output(DType::f32, {shape.n_tokens, shape.rule.top_k})}};
}

}  // namespace

std::vector<CaseSpec> moe_route_to_host_cases() {
  CaseList list("moe_route_to_host");
  for (const Score score : kScores) {
    for (const DType type : kTypes) {
      list.add_small(fmt::format("{} {}", name(score), dtype_info(type).name), [=](CaseBuilder& b) {
        return route_to_host(
            b, {.n_experts = 12, .rule = {.top_k = 3, .score = score, .renormalize = true}, .type = type});
      });
    }
    list.add(fmt::format("{}, bias and groups", name(score)), [=](CaseBuilder& b) {
      return route_to_host(b, {.n_experts = 32,
                               .rule = {.top_k = 6, .score = score, .scale = 2.5F, .n_groups = 8, .top_groups = 3},
                               .bias = true,
                               .expert_scale = true});
    });
  }
  for (const std::int64_t n_tokens : {0, 1, 2, 33, 100}) {
    list.add(fmt::format("{} tokens", n_tokens), [=](CaseBuilder& b) {
      return route_to_host(b, {.n_tokens = n_tokens, .n_experts = 16, .rule = {.top_k = 4}});
    });
  }
  for (const std::int64_t live : {-1, 0, 2, 9}) {
    list.add(fmt::format("live {} of 5", live),
             [=](CaseBuilder& b) { return route_to_host(b, {.rule = {.top_k = 2}, .live = live}); });
  }
  list.add("rows without a finite logit", [](CaseBuilder& b) {
    return route_to_host(b, {.n_experts = 7, .rule = {.top_k = 3}, .logits = Logits::hopeless});
  });
  return list.take();
}

Op random_moe_route_to_host(CaseBuilder& b) {
  return route_to_host(b, random_route(b.rng, 20, 40));
}

}  // namespace conclave::test
