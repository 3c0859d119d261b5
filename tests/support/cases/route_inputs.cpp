#include "support/cases/route_inputs.h"

#include <cmath>

#include "support/cases/routings.h"

namespace conclave::test {
namespace {

float special(Rng& rng) {
  return rng.pick(std::vector<float>{NAN, INFINITY, -INFINITY});
}

float draw(Rng& rng, const RouteShape& shape, std::int64_t token) {
  const auto normal = static_cast<float>(rng.normal() * 2);
  switch (shape.logits) {
    case Logits::normal:
      return normal;
    case Logits::equal:
      return 0.25F;
    case Logits::few_values:
      return static_cast<float>(rng.integer(-1, 1));
    case Logits::signed_zeros:
      return rng.chance(0.5) ? 0.0F : -0.0F;
    case Logits::specials:
      return rng.chance(0.3) ? special(rng) : normal;
    case Logits::hopeless:
      return token % 2 == 0 ? (rng.chance(0.5) ? NAN : -INFINITY) : normal;
    case Logits::large:
      return normal * 1e30F;
    case Logits::wide:
      return normal * 10;
  }
  return normal;
}

}  // namespace

Tensor logits_tensor(CaseBuilder& b, const RouteShape& shape) {
  std::vector<float> content;
  for (std::int64_t t = 0; t < shape.n_tokens; ++t) {
    for (std::int64_t e = 0; e < shape.n_experts; ++e) content.push_back(draw(b.rng, shape, t));
  }
  return b.floats(shape.type, {shape.n_tokens, shape.n_experts}, content);
}

RouteShape random_route(Rng& rng, std::int64_t max_tokens, std::int64_t max_experts) {
  RouteShape shape;
  shape.n_tokens = rng.chance(0.05) ? 0 : rng.integer(1, max_tokens);
  const std::int64_t groups = rng.chance(0.3) ? rng.integer(2, 6) : 1;
  const std::int64_t per_group = rng.integer(1, std::max<std::int64_t>(1, max_experts / groups));
  shape.n_experts = groups * per_group;
  shape.rule.n_groups = groups;
  shape.rule.top_groups = rng.integer(1, groups);
  shape.rule.group_score = rng.chance(0.5) ? GroupScore::max : GroupScore::sum_of_two;
  shape.rule.top_k = rng.integer(1, std::min<std::int64_t>(10, per_group * shape.rule.top_groups));
  shape.rule.score = static_cast<Score>(rng.integer(0, 3));
  shape.rule.renormalize = rng.chance(0.5);
  shape.rule.scale = rng.chance(0.5) ? 1.0F : 2.5F;
  shape.type = random_float(rng);
  shape.logits = static_cast<Logits>(rng.integer(0, 7));
  shape.bias = rng.chance(0.3);
  shape.expert_scale = rng.chance(0.2);
  shape.counter = rng.chance(0.5);
  if (rng.chance(0.2)) shape.live = rng.integer(-1, shape.n_tokens + 2);
  if (shape.n_experts % 2 == 0) shape.counts = static_cast<std::int32_t>(shape.n_tokens) - 20;
  return shape;
}

Tensor count_tensor(CaseBuilder& b, const RouteShape& shape) {
  return b.ints(DType::i32, {shape.n_experts},
                std::vector<std::int32_t>(static_cast<std::size_t>(shape.n_experts), *shape.counts));
}

MoeRoute route_inputs(CaseBuilder& b, const RouteShape& shape) {
  MoeRoute op{.logits = logits_tensor(b, shape), .rule = shape.rule};
  if (shape.bias) op.bias = b.values(DType::f32, {shape.n_experts}, 0.5);
  if (shape.expert_scale) op.expert_scale = b.values(DType::f32, {shape.n_experts}, 1.5);
  if (shape.live) op.live = b.live(*shape.live);
  return op;
}

}  // namespace conclave::test
