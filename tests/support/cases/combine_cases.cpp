// Cases of the combines and of the whole feed-forward part: moe_combine, moe_combine_residual,
// moe_combine_residual_norm, moe_ffn; and of silu_mul.
#include <cmath>

#include "base/fail.h"
#include "ops/check.h"
#include "support/cases/op_cases.h"
#include "support/cases/route_inputs.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

struct CombineShape {
  RoutingShape routing{.n_tokens = 5, .top_k = 3, .n_experts = 6};
  bool slots = false;
  std::int64_t d_model = 9;
  DType rows = DType::f32;
  DType out = DType::f32;
  bool shared = false;
  double scale = 1;
};

CombineInput combine_input(CaseBuilder& b, const CombineShape& shape) {
  const RoutingShape& routing = shape.routing;
  const std::int64_t n_tokens = routing.n_tokens;
  const std::int64_t top_k = routing.top_k;
  const std::vector<std::int32_t> ids = make_ids(b.rng, routing);
  CombineInput from;
  if (shape.slots) {
    from.rows = b.values(shape.rows, {n_tokens, top_k, shape.d_model}, shape.scale);
    from.experts = ids_tensor(b, routing, ids);
    from.n_experts = routing.n_experts;
  } else {
    from.rows = b.values(shape.rows, {n_tokens * top_k, shape.d_model}, shape.scale);
    from.pair_row = group_inputs(b, routing, ids).pair_row;
  }
  from.weights = b.values(DType::f32, {n_tokens, top_k}, 0.5);
  if (shape.shared) from.shared = b.values(shape.rows, {n_tokens, shape.d_model}, shape.scale);
  from.live = live_tensor(b, routing);
  return from;
}

Op combine(CaseBuilder& b, const CombineShape& shape) {
  return MoeCombine{.from = combine_input(b, shape),
                    .out = b.output(shape.out, {shape.routing.n_tokens, shape.d_model})};
}

Op combine_residual(CaseBuilder& b, const CombineShape& shape) {
  return MoeCombineResidual{.from = combine_input(b, shape),
                            .residual = b.values(shape.out, {shape.routing.n_tokens, shape.d_model}, shape.scale)};
}

Op combine_residual_norm(CaseBuilder& b, const CombineShape& shape, DType normed, float eps) {
  const Dims dims = {shape.routing.n_tokens, shape.d_model};
  return MoeCombineResidualNorm{
      .from = combine_input(b, shape),
      .residual = b.values(shape.out, dims, shape.scale),
      .next = {.weight = b.values(DType::f32, {shape.d_model}), .eps = eps, .out = b.output(normed, dims)}};
}

using Build = std::function<Op(CaseBuilder&, const CombineShape&)>;

std::vector<CaseSpec> combine_list(std::string_view op, const Build& build) {
  CaseList list(op);
  for (const RoutingShape& routing : standard_routings()) {
    const bool slots = routing.name.size() % 2 == 0;
    list.add_small(fmt::format("{}, {}", routing.name, slots ? "slots" : "packed"),
                   [=](CaseBuilder& b) { return build(b, {.routing = routing, .slots = slots}); });
  }
  for (const bool slots : {false, true}) {
    const std::string_view layout = slots ? "slots" : "packed";
    for (const DType rows : kFloat) {
      for (const DType out : kFloat) {
        list.add(fmt::format("{}, rows {}, out {}", layout, dtype_info(rows).name, dtype_info(out).name),
                 [=](CaseBuilder& b) {
                   return build(b, {.slots = slots, .d_model = 33, .rows = rows, .out = out, .shared = rows != out});
                 });
      }
    }
    for (const Spread spread : {Spread::duplicates, Spread::some_invalid, Spread::all_invalid}) {
      const RoutingShape routing{.n_tokens = 6, .top_k = 4, .n_experts = 5, .spread = spread};
      list.add(fmt::format("{}, spread {}", layout, static_cast<int>(spread)), [=](CaseBuilder& b) {
        return build(b, {.routing = routing, .slots = slots, .shared = spread == Spread::all_invalid});
      });
    }
    list.add(fmt::format("{}, shared expert", layout),
             [=](CaseBuilder& b) { return build(b, {.slots = slots, .shared = true}); });
    list.add(fmt::format("{}, rows of 1e6", layout),
             [=](CaseBuilder& b) { return build(b, {.slots = slots, .scale = 1e6}); });
    list.add(fmt::format("{}, wide", layout), [=](CaseBuilder& b) {
      return build(b, {.routing = {.n_tokens = 2, .top_k = 8, .n_experts = 16}, .slots = slots, .d_model = 257});
    });
  }
  return list.take();
}

CombineShape random_combine(Rng& rng) {
  return {.routing = random_routing(rng, 20, 20),
          .slots = rng.chance(0.5),
          .d_model = rng.integer(1, 80),
          .rows = random_float(rng),
          .out = random_float(rng),
          .shared = rng.chance(0.3)};
}

struct FfnShape {
  RouteShape route{.n_tokens = 4, .n_experts = 6, .rule = {.top_k = 2, .renormalize = true}};
  std::int64_t d_model = 12;
  std::int64_t d_ff = 10;
  DType gate_up = DType::f32;
  DType down = DType::f32;
  DType x = DType::f32;
  DType hidden = DType::f32;
  DType residual = DType::f32;
  std::int64_t d_shared = 0;  // 0: no shared expert
  bool shared_gated = true;
  bool norm = true;
  Activation act = Activation::silu;
};

Op ffn(CaseBuilder& b, const FfnShape& shape) {
  const RouteShape& route = shape.route;
  const std::int64_t n_tokens = route.n_tokens;
  const std::int64_t n_experts = route.n_experts;
  const std::int64_t top_k = route.rule.top_k;
  const std::int64_t n_pairs = n_tokens * top_k;
  const std::int64_t d_model = width_for(shape.gate_up, shape.d_model);
  const std::int64_t d_ff = width_for(shape.down, shape.d_ff);
  const MoeRoute in = route_inputs(b, route);
  MoeFfn op{.x = b.values(shape.x, {n_tokens, d_model}),
            .logits = in.logits,
            .bias = in.bias,
            .expert_scale = in.expert_scale,
            .live = in.live,
            .rule = in.rule,
            .act = shape.act,
            .gate = b.weights(shape.gate_up, {n_experts, d_ff, d_model}),
            .up = b.weights(shape.gate_up, {n_experts, d_ff, d_model}),
            .down = b.weights(shape.down, {n_experts, d_model, d_ff}),
            .routing = {.experts = b.output(DType::i32, {n_tokens, top_k}),
                        .weights = b.output(DType::f32, {n_tokens, top_k})},
            .groups = {.offsets = b.output(DType::i32, {n_experts + 1}),
                       .row_pair = b.output(DType::i32, {n_pairs}),
                       .pair_row = b.output(DType::i32, {n_tokens, top_k})},
            .hidden = b.output(shape.hidden, {n_pairs, d_ff}),
            .expert_out = b.output(DType::f32, {n_pairs, d_model}),
            .residual = b.values(shape.residual, {n_tokens, d_model})};
  if (route.counter) op.routing.no_finite = b.ints(DType::i32, {1}, {0});
  if (route.counts) op.routing.counts = count_tensor(b, route);
  if (shape.d_shared > 0) {
    const std::int64_t d_shared = width_for(shape.gate_up, shape.d_shared);
    op.shared = {.gate = b.weights(shape.gate_up, {d_shared, d_model}),
                 .up = b.weights(shape.gate_up, {d_shared, d_model}),
                 .down = b.weights(shape.gate_up, {d_model, d_shared})};
    if (shape.shared_gated) op.shared.gate_inp = b.values(DType::f32, {d_model}, 0.3);
    op.shared_hidden = b.output(shape.hidden, {n_tokens, d_shared});
    op.shared_out = b.output(DType::f32, {n_tokens, d_model});
  }
  if (shape.norm) {
    op.next = {.weight = b.values(DType::f32, {d_model}), .eps = 1e-5F, .out = b.output(shape.x, {n_tokens, d_model})};
  }
  return op;
}

Op silu(CaseBuilder& b, GateUpLayout layout, const Dims& out, DType type, DType out_type, double scale = 1) {
  SiluMul op{.layout = layout};
  if (layout == GateUpLayout::apart) {
    op.gate = b.values(type, out, scale);
    op.up = b.values(type, out, scale);
  } else {
    Dims both = out;
    if (layout == GateUpLayout::concatenated) {
      both.back() *= 2;
    } else {
      both.insert(both.end() - 2, 2);
    }
    op.gate_up = b.values(type, both, scale);
  }
  op.out = b.output(out_type, out);
  return op;
}

}  // namespace

std::vector<CaseSpec> moe_combine_cases() {
  return combine_list("moe_combine", combine);
}
std::vector<CaseSpec> moe_combine_residual_cases() {
  return combine_list("moe_combine_residual", combine_residual);
}
std::vector<CaseSpec> moe_combine_residual_norm_cases() {
  std::vector<CaseSpec> specs = combine_list(
      "moe_combine_residual_norm",
      [](CaseBuilder& b, const CombineShape& shape) { return combine_residual_norm(b, shape, shape.rows, 1e-6F); });
  CaseList list("moe_combine_residual_norm");
  for (const float eps : {1e-12F, 1e-5F, 0.5F}) {
    list.add(fmt::format("eps {}", eps), [=](CaseBuilder& b) { return combine_residual_norm(b, {}, DType::f32, eps); });
  }
  for (CaseSpec& spec : list.take()) specs.push_back(std::move(spec));
  return specs;
}

std::vector<CaseSpec> moe_ffn_cases() {
  CaseList list("moe_ffn");
  const auto add = [&](const std::string& name, const FfnShape& shape) {
    list.add(name, [=](CaseBuilder& b) { return ffn(b, shape); });
  };
  for (const DType w : weight_formats()) {
    list.add_small(fmt::format("weights {}", dtype_info(w).name), [=](CaseBuilder& b) {
      return ffn(b, {.route = {.n_tokens = 2, .n_experts = 3, .rule = {.top_k = 2}}, .gate_up = w, .down = w});
    });
  }
  add("Q4_K with Q6_K down", {.gate_up = DType::q4_k, .down = DType::q6_k});
  for (const std::int64_t n_tokens : {0, 1, 2, 7, 33}) {
    add(fmt::format("{} tokens", n_tokens),
        {.route = {.n_tokens = n_tokens, .n_experts = 8, .rule = {.top_k = 3, .renormalize = true}, .counts = -2}});
  }
  for (const Score score : {Score::softmax, Score::softmax_after_top_k, Score::sigmoid, Score::sqrt_softplus}) {
    add(fmt::format("{}", name(score)),
        {.route = {.n_tokens = 5, .n_experts = 9, .rule = {.top_k = 3, .score = score, .scale = 1.5F}}});
    add(fmt::format("{}, bias and groups", name(score)), {.route = {.n_tokens = 5,
                                                                    .n_experts = 12,
                                                                    .rule = {.top_k = 3,
                                                                             .score = score,
                                                                             .renormalize = true,
                                                                             .n_groups = 4,
                                                                             .top_groups = 2,
                                                                             .group_score = GroupScore::sum_of_two},
                                                                    .bias = true,
                                                                    .expert_scale = true}});
  }
  for (const DType x : kFloat) {
    for (const DType residual : kFloat) {
      add(fmt::format("x {}, residual {}", dtype_info(x).name, dtype_info(residual).name),
          {.x = x, .hidden = x, .residual = residual, .d_shared = 5});
    }
  }
  for (const bool norm : {false, true}) {
    for (const bool gated : {false, true}) {
      list.add_small(fmt::format("shared expert{}{}", gated ? ", gated" : "", norm ? ", next norm" : ""),
                     [=](CaseBuilder& b) { return ffn(b, {.d_shared = 14, .shared_gated = gated, .norm = norm}); });
    }
    add(fmt::format("gelu{}", norm ? ", next norm" : ""), {.norm = norm, .act = Activation::gelu});
  }
  add("equal logits", {.route = {.n_tokens = 6, .n_experts = 8, .rule = {.top_k = 4}, .logits = Logits::equal}});
  add("rows without a finite logit", {.route = {.n_tokens = 6,
                                                .n_experts = 8,
                                                .rule = {.top_k = 4},
                                                .logits = Logits::hopeless,
                                                .counter = true,
                                                .counts = 0}});
  add("one expert", {.route = {.n_tokens = 5, .n_experts = 1, .rule = {.top_k = 1}}});
  add("every expert", {.route = {.n_tokens = 3, .n_experts = 5, .rule = {.top_k = 5}}});
  add("many experts", {.route = {.n_tokens = 2, .n_experts = 64, .rule = {.top_k = 8, .renormalize = true}}});
  add("odd widths", {.d_model = 31, .d_ff = 17, .d_shared = 13});
  for (const std::int64_t live : {-1, 0, 2, 9}) {
    add(fmt::format("live {} of 4", live),
        {.route = {.n_tokens = 4, .n_experts = 6, .rule = {.top_k = 2}, .counts = 3, .live = live}, .d_shared = 5});
  }
  return list.take();
}

std::vector<CaseSpec> silu_mul_cases() {
  CaseList list("silu_mul");
  using enum GateUpLayout;
  for (const GateUpLayout layout : {apart, concatenated, stacked}) {
    for (const DType type : kFloat) {
      for (const DType out : kFloat) {
        list.add_small(fmt::format("{} {} to {}", name(layout), dtype_info(type).name, dtype_info(out).name),
                       [=](CaseBuilder& b) {
                         return silu(b, layout, {5, 13}, type, out);
                       });
      }
    }
    for (const Dims& dims : {Dims{0, 8}, Dims{1, 1}, Dims{2, 257}, Dims{33, 31}, Dims{3, 4, 5}}) {
      list.add(fmt::format("{} {}", name(layout), shape_text(dims)),
               [=](CaseBuilder& b) { return silu(b, layout, dims, DType::f32, DType::f32); });
    }
    list.add(fmt::format("{}, large values", name(layout)), [=](CaseBuilder& b) {
      return silu(b, layout, {4, 16}, DType::f32, DType::f32, 1e6);
    });
  }
  list.add("apart, batched twice", [](CaseBuilder& b) {
    return silu(b, apart, {2, 3, 4, 5}, DType::f32, DType::bf16);
  });
  list.add("concatenated, batched twice", [](CaseBuilder& b) {
    return silu(b, concatenated, {2, 3, 4, 5}, DType::f16, DType::f32);
  });
  list.add("specials", [](CaseBuilder& b) {
    const float inf = INFINITY;
    return Op(SiluMul{
        .gate = b.floats(DType::f32, {2, 5}, {inf, -inf, NAN, 0.0F, -0.0F, 90.0F, -90.0F, -200.0F, 1e-40F, -1e30F}),
        .up = b.floats(DType::f32, {2, 5}, {1, 1, 1, inf, 1, 1, 1e30F, 1, 1, 2}),
        .out = b.output(DType::f32, {2, 5})});
  });
  list.add("in place of gate", [](CaseBuilder& b) {
    SiluMul op{.gate = b.values(DType::f32, {6, 7}), .up = b.values(DType::f32, {6, 7})};
    op.out = op.gate;
    return Op(op);
  });
  for (const std::int64_t live : {-1, 0, 2, 9}) {
    list.add(fmt::format("live {} of 4", live), [=](CaseBuilder& b) {
      auto op = std::get<SiluMul>(silu(b, live == 2 ? concatenated : apart, {4, 6}, DType::f32, DType::f32));
      op.live = b.live(live);
      return Op(op);
    });
  }
  return list.take();
}

Op random_moe_combine(CaseBuilder& b) {
  return combine(b, random_combine(b.rng));
}
Op random_moe_combine_residual(CaseBuilder& b) {
  return combine_residual(b, random_combine(b.rng));
}
Op random_moe_combine_residual_norm(CaseBuilder& b) {
  const CombineShape shape = random_combine(b.rng);
  return combine_residual_norm(b, shape, random_float(b.rng), 1e-5F);
}
Op random_moe_ffn(CaseBuilder& b) {
  FfnShape shape{.route = random_route(b.rng, 8, 12)};
  shape.d_model = b.rng.integer(1, 40);
  shape.d_ff = b.rng.integer(1, 40);
  const bool blocks = b.rng.chance(0.3);
  shape.gate_up = blocks ? b.rng.pick(kWeight) : random_float(b.rng);
  shape.down = blocks ? b.rng.pick(kWeight) : random_float(b.rng);
  shape.x = random_float(b.rng);
  shape.hidden = random_float(b.rng);
  shape.residual = random_float(b.rng);
  shape.d_shared = b.rng.chance(0.3) ? b.rng.integer(1, 30) : 0;
  shape.shared_gated = b.rng.chance(0.5);
  shape.norm = b.rng.chance(0.7);
  shape.act = b.rng.chance(0.7) ? Activation::silu : Activation::gelu;
  return ffn(b, shape);
}
Op random_silu_mul(CaseBuilder& b) {
  const auto layout = static_cast<GateUpLayout>(b.rng.integer(0, 2));
  Dims dims = {b.rng.integer(0, 20), b.rng.integer(1, 70)};
  if (b.rng.chance(0.3)) dims.insert(dims.begin(), b.rng.integer(1, 3));
  const DType type = random_float(b.rng);
  return silu(b, layout, dims, type, random_float(b.rng));
}

}  // namespace conclave::test
