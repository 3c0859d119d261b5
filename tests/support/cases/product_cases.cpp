// Cases of the expert products: moe_matmul, moe_gate_up, moe_down, moe_shared_expert.
#include <algorithm>

#include "base/fail.h"
#include "ops/check.h"
#include "support/cases/op_cases.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

enum class Form { grouped, listed, listed_indirect, blocks_pair, blocks_packed };
constexpr Form kForms[] = {Form::grouped, Form::listed, Form::listed_indirect, Form::blocks_pair, Form::blocks_packed};

std::string_view form_name(Form form) {
  switch (form) {
    case Form::grouped:
      return "grouped";
    case Form::listed:
      return "listed";
    case Form::listed_indirect:
      return "listed indirect";
    case Form::blocks_pair:
      return "blocks of pairs";
    case Form::blocks_packed:
      return "blocks of packed rows";
  }
  return "?";
}

struct ProductShape {
  RoutingShape routing{.n_tokens = 6, .top_k = 2, .n_experts = 4};
  Form form = Form::grouped;
  DType w = DType::f32;
  DType x = DType::f32;
  DType out = DType::f32;
  std::int64_t n = 5;
  std::int64_t k = 8;
  bool per_slot = false;  // x has a row of its own for every slot
  bool slice_of_stack = false;
  std::int64_t spare = 0;  // row_stride, or capacity, beyond what is needed
};

// Lists of the pairs of each expert, as the routing has them.
std::vector<std::vector<std::int32_t>> lists_of(const RoutingShape& shape, const std::vector<std::int32_t>& ids) {
  std::vector<std::vector<std::int32_t>> lists(static_cast<std::size_t>(shape.n_experts));
  const std::int64_t n_live = std::clamp<std::int64_t>(shape.live.value_or(shape.n_tokens), 0, shape.n_tokens);
  for (std::int64_t pair = 0; pair < n_live * shape.top_k; ++pair) {
    const std::int32_t id = ids[static_cast<std::size_t>(pair)];
    if (id >= 0 && id < shape.n_experts) lists[static_cast<std::size_t>(id)].push_back(static_cast<std::int32_t>(pair));
  }
  return lists;
}

ListedRows listed_rows(CaseBuilder& b, const ProductShape& shape, const std::vector<std::int32_t>& ids) {
  const RoutingShape& routing = shape.routing;
  const std::int64_t stride = routing.n_tokens * routing.top_k + shape.spare;
  const std::int64_t nr0 = 4;
  const std::int64_t nr1 = 3;
  std::vector<std::int32_t> table;
  std::vector<std::int32_t> tpe;
  std::int64_t most = 0;
  for (const auto& list : lists_of(routing, ids)) {
    table.insert(table.end(), list.begin(), list.end());
    table.resize(table.size() + static_cast<std::size_t>(stride) - list.size(), 0);  // stale ids past the count
    tpe.push_back(static_cast<std::int32_t>(list.size()));
    most = std::max(most, static_cast<std::int64_t>(list.size()));
  }
  ListedRows rows{.ids = b.ints(DType::i32, {routing.n_experts, stride}, table),
                  .tpe = b.ints(DType::i32, {routing.n_experts}, tpe),
                  .nr0 = nr0,
                  .nr1 = nr1};
  if (shape.form == Form::listed_indirect) {
    rows.grid =
        b.ints(DType::u32, {3},
               {static_cast<std::int32_t>(std::max<std::int64_t>(1, (most + nr1 - 1) / nr1)),
                static_cast<std::int32_t>((shape.n + nr0 - 1) / nr0), static_cast<std::int32_t>(routing.n_experts)});
  }
  return rows;
}

BlockRows block_rows(CaseBuilder& b, const ProductShape& shape, const std::vector<std::int32_t>& ids) {
  const RoutingShape& routing = shape.routing;
  const std::int64_t block_size = 4;
  const auto n_pairs = static_cast<std::int32_t>(routing.n_tokens * routing.top_k);
  const std::int64_t blocks = worst_case_blocks(n_pairs, routing.n_experts, block_size) + shape.spare;
  std::vector<std::int32_t> sorted;
  std::vector<std::int32_t> block_expert;
  std::int32_t packed = 0;
  std::int32_t expert = 0;
  for (const auto& list : lists_of(routing, ids)) {
    for (const std::int32_t pair : list) sorted.push_back(shape.form == Form::blocks_packed ? packed++ : pair);
    while (sorted.size() % static_cast<std::size_t>(block_size) != 0) sorted.push_back(n_pairs);
    block_expert.resize(sorted.size() / static_cast<std::size_t>(block_size), expert++);
  }
  const auto padded = static_cast<std::int32_t>(sorted.size());
  sorted.resize(static_cast<std::size_t>(blocks * block_size), n_pairs);
  block_expert.resize(static_cast<std::size_t>(blocks), -1);
  BlockRows rows{.blocks = {.sorted_ids = b.ints(DType::i32, {blocks * block_size}, sorted),
                            .block_expert = b.ints(DType::i32, {blocks}, block_expert),
                            .n_padded = b.ints(DType::i32, {1}, {padded})},
                 .block_size = block_size,
                 .ids = shape.form == Form::blocks_packed ? RowIds::packed : RowIds::pair};
  if (shape.form == Form::blocks_packed) rows.row_pair = group_inputs(b, routing, ids).row_pair;
  return rows;
}

Tensor expert_weights(CaseBuilder& b, DType type, const Dims& dims, bool slice_of_stack) {
  if (!slice_of_stack) return b.weights(type, dims);
  const Tensor stack = b.weights(type, {dims[0] + 3, dims[1], dims[2]});
  return slice(stack, 0, 2, dims[0]);
}

Op moe_matmul_op(CaseBuilder& b, const ProductShape& shape) {
  const RoutingShape& routing = shape.routing;
  const std::int64_t k = width_for(shape.w, shape.k);
  const std::vector<std::int32_t> ids = make_ids(b.rng, routing);
  MoeMatmul op{.x = b.values(shape.x, {routing.n_tokens, shape.per_slot ? routing.top_k : 1, k}),
               .w = expert_weights(b, shape.w, {routing.n_experts, shape.n, k}, shape.slice_of_stack),
               .out = b.output(shape.out, {routing.n_tokens, routing.top_k, shape.n})};
  if (shape.form == Form::grouped) {
    const GroupInputs groups = group_inputs(b, routing, ids);
    op.rows = GroupedRows{.offsets = groups.offsets, .row_pair = groups.row_pair};
  } else if (shape.form == Form::listed || shape.form == Form::listed_indirect) {
    op.rows = listed_rows(b, shape, ids);
  } else {
    op.rows = block_rows(b, shape, ids);
  }
  return op;
}

// As moe_matmul_op draws them, so that shapes read alike; n is d_ff, k is d_model.
Op gate_up_op(CaseBuilder& b, const ProductShape& shape, DType up, Activation act, double scale = 1) {
  const RoutingShape& routing = shape.routing;
  const std::int64_t k = std::max(width_for(shape.w, shape.k), width_for(up, shape.k));
  const GroupInputs groups = group_inputs(b, routing, make_ids(b.rng, routing));
  return MoeGateUp{.x = b.values(shape.x, {routing.n_tokens, k}, scale),
                   .gate = expert_weights(b, shape.w, {routing.n_experts, shape.n, k}, shape.slice_of_stack),
                   .up = expert_weights(b, up, {routing.n_experts, shape.n, k}, shape.slice_of_stack),
                   .offsets = groups.offsets,
                   .row_pair = groups.row_pair,
                   .top_k = routing.top_k,
                   .act = act,
                   .out = b.output(shape.out, {routing.n_tokens * routing.top_k, shape.n})};
}

Op down_op(CaseBuilder& b, const ProductShape& shape, double scale = 1) {
  const RoutingShape& routing = shape.routing;
  const std::int64_t k = width_for(shape.w, shape.k);
  const std::int64_t n_pairs = routing.n_tokens * routing.top_k;
  const GroupInputs groups = group_inputs(b, routing, make_ids(b.rng, routing));
  return MoeDown{.x = b.values(shape.x, {n_pairs, k}, scale),
                 .down = expert_weights(b, shape.w, {routing.n_experts, shape.n, k}, shape.slice_of_stack),
                 .offsets = groups.offsets,
                 .out = b.output(shape.out, {n_pairs, shape.n})};
}

struct SharedShape {
  std::int64_t n_tokens = 4;
  std::int64_t d_model = 8;
  std::int64_t d_shared = 6;
  DType w = DType::f32;
  DType x = DType::f32;
  DType hidden = DType::f32;
  DType out = DType::f32;
  bool gated = true;
  Activation act = Activation::silu;
  std::optional<std::int64_t> live;
};

Op shared_op(CaseBuilder& b, const SharedShape& shape) {
  const std::int64_t d_model = width_for(shape.w, shape.d_model);
  const std::int64_t d_shared = width_for(shape.w, shape.d_shared);
  MoeSharedExpert op{.x = b.values(shape.x, {shape.n_tokens, d_model}),
                     .gate = b.weights(shape.w, {d_shared, d_model}),
                     .up = b.weights(shape.w, {d_shared, d_model}),
                     .down = b.weights(shape.w, {d_model, d_shared}),
                     .act = shape.act,
                     .hidden = b.output(shape.hidden, {shape.n_tokens, d_shared}),
                     .out = b.output(shape.out, {shape.n_tokens, d_model})};
  if (shape.gated) op.gate_inp = b.values(DType::f32, {d_model}, 0.5);
  if (shape.live) op.live = b.live(*shape.live);
  return op;
}

// What no honest op writes: ids that are no pairs, counts and offsets out of range. Each pair is named once at most, so that
// the answer is one.
Op with_nonsense(CaseBuilder& b, MoeMatmul op) {
  const auto n_pairs = static_cast<std::int32_t>(op.out.dim(0) * op.out.dim(1));
  const auto n_experts = static_cast<std::int32_t>(op.w.dim(0));
  const auto junk = [&] {
    return b.rng.pick(std::vector<std::int32_t>{-1, n_pairs, INT32_MIN, INT32_MAX, n_pairs + 7});
  };
  const auto mixed = [&](std::int64_t count, std::int32_t from) {  // every second entry a pair, counting up
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < count; ++i) {
      const bool honest = i % 2 == 0 && from < n_pairs;
      ids.push_back(honest ? from++ : junk());
    }
    return ids;
  };
  if (auto* rows = std::get_if<GroupedRows>(&op.rows)) {
    rows->offsets = b.ints(DType::i32, {n_experts + 1}, {-5, 3, 3, 2, n_pairs + 100});
    rows->row_pair = b.ints(DType::i32, {n_pairs}, mixed(n_pairs, 0));
  } else if (auto* listed = std::get_if<ListedRows>(&op.rows)) {
    const std::int64_t stride = listed->ids.dim(1);
    std::vector<std::int32_t> ids;
    for (std::int32_t e = 0; e < n_experts; ++e) {
      for (const std::int32_t id : mixed(stride, e == 0 ? 0 : n_pairs)) ids.push_back(id);
    }
    listed->ids = b.ints(DType::i32, {n_experts, stride}, ids);
    listed->tpe = b.ints(DType::i32, {n_experts}, {INT32_MAX, -1, static_cast<std::int32_t>(stride) + 1, INT32_MIN});
  } else if (auto* blocks = std::get_if<BlockRows>(&op.rows)) {
    const std::int64_t capacity = blocks->blocks.sorted_ids.dim(0);
    const std::int64_t n_blocks = 3;  // fewer than n_padded asks for
    blocks->blocks.sorted_ids = b.ints(DType::i32, {capacity}, mixed(capacity, 0));
    blocks->blocks.block_expert = b.ints(DType::i32, {n_blocks}, {1, n_experts, -1});
    blocks->blocks.n_padded = b.ints(DType::i32, {1}, {INT32_MAX});
    if (blocks->ids == RowIds::packed) blocks->row_pair = b.ints(DType::i32, {n_pairs}, mixed(n_pairs, 0));
  }
  return op;
}

// Offsets that go down, below 0 and past the end.
Tensor nonsense_offsets(CaseBuilder& b, std::int64_t n_experts, std::int64_t n_pairs) {
  std::vector<std::int32_t> offsets;
  for (std::int64_t e = 0; e <= n_experts; ++e) offsets.push_back(e % 2 == 0 ? -5 : 3);
  offsets.back() = static_cast<std::int32_t>(n_pairs + 100);
  offsets[offsets.size() - 2] = 5;
  return b.ints(DType::i32, {n_experts + 1}, offsets);
}

ProductShape random_product(Rng& rng) {
  ProductShape shape{.routing = random_routing(rng, 20, 8)};
  shape.form = rng.pick(kForms);
  shape.w = rng.pick(kWeight);
  shape.x = random_float(rng);
  shape.out = random_float(rng);
  shape.n = rng.integer(1, 40);
  shape.k = rng.integer(1, 100);
  shape.per_slot = rng.chance(0.5);
  shape.slice_of_stack = rng.chance(0.3);
  shape.spare = rng.chance(0.5) ? rng.integer(0, 9) : 0;
  return shape;
}

}  // namespace

std::vector<CaseSpec> moe_matmul_cases() {
  CaseList list("moe_matmul");
  for (const RoutingShape& routing : standard_routings()) {
    const Form form = kForms[routing.name.size() % 5];
    list.add(fmt::format("{}, {}", routing.name, form_name(form)),
             [=](CaseBuilder& b) { return moe_matmul_op(b, {.routing = routing, .form = form}); });
  }
  for (const Form form : kForms) {
    for (const bool per_slot : {false, true}) {
      list.add_small(
          fmt::format("{}, {}", form_name(form), per_slot ? "a row per slot" : "a row per token"),
          [=](CaseBuilder& b) { return moe_matmul_op(b, {.form = form, .n = 9, .k = 33, .per_slot = per_slot}); });
    }
    list.add(fmt::format("{}, spare room", form_name(form)),
             [=](CaseBuilder& b) { return moe_matmul_op(b, {.form = form, .spare = 5}); });
    for (const Spread spread : {Spread::duplicates, Spread::some_invalid}) {
      const RoutingShape routing{.n_tokens = 7, .top_k = 3, .n_experts = 4, .spread = spread};
      list.add(fmt::format("{}, {}", form_name(form), spread == Spread::duplicates ? "duplicates" : "invalid ids"),
               [=](CaseBuilder& b) { return moe_matmul_op(b, {.routing = routing, .form = form}); });
    }
  }
  for (const DType w : weight_formats()) {
    list.add_small(fmt::format("weights {}", dtype_info(w).name),
                   [=](CaseBuilder& b) { return moe_matmul_op(b, {.form = Form::grouped, .w = w, .n = 6, .k = 64}); });
    list.add(fmt::format("weights {}, several blocks, slice of a stack", dtype_info(w).name), [=](CaseBuilder& b) {
      return moe_matmul_op(b, {.form = Form::listed, .w = w, .n = 3, .k = 300, .slice_of_stack = true});
    });
  }
  for (const DType w : {DType::f16, DType::bf16}) {
    for (const Form form : kForms) {
      const ProductShape shape{.routing = {.n_tokens = 30, .top_k = 3, .n_experts = 9, .spread = Spread::some_invalid},
                               .form = form,
                               .w = w,
                               .n = 70,
                               .k = 192,
                               .per_slot = form == Form::listed};
      list.add(fmt::format("weights {}, {}, several rows each", dtype_info(w).name, form_name(form)),
               [=](CaseBuilder& b) { return moe_matmul_op(b, shape); });
      list.add(fmt::format("weights {}, {}, lists of nonsense", dtype_info(w).name, form_name(form)),
               [=](CaseBuilder& b) {
                 const ProductShape odd{.form = form, .w = w, .k = 64};
                 return with_nonsense(b, std::get<MoeMatmul>(moe_matmul_op(b, odd)));
               });
    }
  }
  // An indirect grid that covers less than there is: the product stops there.
  for (const std::vector<std::int32_t>& grid : {std::vector{1, 9, 4}, std::vector{9, 1, 4}, std::vector{9, 9, 2}}) {
    list.add(fmt::format("a grid of [{}]", fmt::join(grid, ",")), [=](CaseBuilder& b) {
      auto op = std::get<MoeMatmul>(moe_matmul_op(
          b, {.routing = {.n_tokens = 30, .top_k = 2, .n_experts = 4}, .form = Form::listed_indirect, .n = 9}));
      std::get<ListedRows>(op.rows).grid = b.ints(DType::u32, {3}, grid);
      return Op(op);
    });
  }
  for (const Form form : kForms) {
    list.add(fmt::format("{}, lists of nonsense", form_name(form)),
             [=](CaseBuilder& b) { return with_nonsense(b, std::get<MoeMatmul>(moe_matmul_op(b, {.form = form}))); });
  }
  for (const DType x : kFloat) {
    for (const DType out : kFloat) {
      list.add(fmt::format("x {}, out {}", dtype_info(x).name, dtype_info(out).name),
               [=](CaseBuilder& b) { return moe_matmul_op(b, {.w = DType::q8_0, .x = x, .out = out}); });
    }
  }
  return list.take();
}

std::vector<CaseSpec> moe_gate_up_cases() {
  CaseList list("moe_gate_up");
  for (const RoutingShape& routing : standard_routings()) {
    list.add(routing.name,
             [=](CaseBuilder& b) { return gate_up_op(b, {.routing = routing}, DType::f32, Activation::silu); });
  }
  for (const DType w : weight_formats()) {
    list.add_small(fmt::format("weights {}", dtype_info(w).name),
                   [=](CaseBuilder& b) { return gate_up_op(b, {.w = w, .n = 4, .k = 40}, w, Activation::silu); });
  }
  list.add("offsets and pairs of nonsense", [](CaseBuilder& b) {
    auto op = std::get<MoeGateUp>(gate_up_op(b, {}, DType::f32, Activation::silu));
    op.offsets = nonsense_offsets(b, op.gate.dim(0), op.out.dim(0));
    op.row_pair = b.ints(DType::i32, {12}, {0, -1, 12, 3, INT32_MAX, 5, INT32_MIN, 7, 8, 9, 10, 11});
    return Op(op);
  });
  list.add("gate and up of different formats, slice of a stack", [](CaseBuilder& b) {
    return gate_up_op(b, {.w = DType::q4_k, .n = 3, .slice_of_stack = true}, DType::q6_k, Activation::silu);
  });
  for (const Activation act : {Activation::silu, Activation::gelu}) {
    for (const DType type : kFloat) {
      list.add_small(fmt::format("{}, {}", name(act), dtype_info(type).name), [=](CaseBuilder& b) {
        return gate_up_op(b, {.x = type, .out = type, .n = 17, .k = 31}, DType::f32, act);
      });
    }
    list.add(fmt::format("{}, activations of 1e6", name(act)),
             [=](CaseBuilder& b) { return gate_up_op(b, {.n = 7, .k = 16}, DType::f32, act, 1e6); });
    list.add(fmt::format("{}, activations of 1e-6", name(act)),
             [=](CaseBuilder& b) { return gate_up_op(b, {.n = 7, .k = 16}, DType::f32, act, 1e-6); });
  }
  return list.take();
}

std::vector<CaseSpec> moe_down_cases() {
  CaseList list("moe_down");
  for (const RoutingShape& routing : standard_routings()) {
    list.add(routing.name, [=](CaseBuilder& b) { return down_op(b, {.routing = routing}); });
  }
  for (const DType w : weight_formats()) {
    list.add_small(fmt::format("weights {}", dtype_info(w).name),
                   [=](CaseBuilder& b) { return down_op(b, {.w = w, .n = 7, .k = 40}); });
  }
  for (const DType x : kFloat) {
    for (const DType out : kFloat) {
      list.add(fmt::format("x {}, out {}", dtype_info(x).name, dtype_info(out).name), [=](CaseBuilder& b) {
        return down_op(b, {.x = x, .out = out, .n = 9, .k = 17, .slice_of_stack = true});
      });
    }
  }
  list.add("offsets of nonsense", [](CaseBuilder& b) {
    auto op = std::get<MoeDown>(down_op(b, {}));
    op.offsets = nonsense_offsets(b, op.down.dim(0), op.out.dim(0));
    return Op(op);
  });
  list.add("activations of 1e6", [](CaseBuilder& b) { return down_op(b, {.n = 7, .k = 16}, 1e6); });
  return list.take();
}

std::vector<CaseSpec> moe_shared_expert_cases() {
  CaseList list("moe_shared_expert");
  for (const DType w : weight_formats()) {
    list.add(fmt::format("weights {}", dtype_info(w).name),
             [=](CaseBuilder& b) { return shared_op(b, {.n_tokens = 2, .w = w}); });
  }
  for (const bool gated : {false, true}) {
    for (const Activation act : {Activation::silu, Activation::gelu}) {
      for (const DType type : kFloat) {
        list.add_small(
            fmt::format("{}, {}, {}", gated ? "gated" : "not gated", name(act), dtype_info(type).name),
            [=](CaseBuilder& b) {
              return shared_op(
                  b,
                  {.d_model = 15, .d_shared = 33, .x = type, .hidden = type, .out = type, .gated = gated, .act = act});
            });
      }
    }
  }
  for (const std::int64_t n_tokens : {0, 1, 2, 17, 64}) {
    list.add(fmt::format("{} tokens", n_tokens), [=](CaseBuilder& b) { return shared_op(b, {.n_tokens = n_tokens}); });
  }
  for (const std::int64_t live : {-1, 0, 3, 9}) {
    list.add(fmt::format("live {} of 4", live), [=](CaseBuilder& b) { return shared_op(b, {.live = live}); });
  }
  return list.take();
}

Op random_moe_matmul(CaseBuilder& b) {
  return moe_matmul_op(b, random_product(b.rng));
}
Op random_moe_gate_up(CaseBuilder& b) {
  const ProductShape shape = random_product(b.rng);
  return gate_up_op(b, shape, b.rng.pick(kWeight), b.rng.chance(0.5) ? Activation::silu : Activation::gelu);
}
Op random_moe_down(CaseBuilder& b) {
  return down_op(b, random_product(b.rng));
}
Op random_moe_shared_expert(CaseBuilder& b) {
  SharedShape shape{.n_tokens = b.rng.integer(0, 9), .d_model = b.rng.integer(1, 60), .d_shared = b.rng.integer(1, 60)};
  shape.w = b.rng.pick(kWeight);
  shape.x = random_float(b.rng);
  shape.hidden = random_float(b.rng);
  shape.out = random_float(b.rng);
  shape.gated = b.rng.chance(0.5);
  shape.act = b.rng.chance(0.5) ? Activation::silu : Activation::gelu;
  if (b.rng.chance(0.3)) shape.live = b.rng.integer(-1, shape.n_tokens + 2);
  return shared_op(b, shape);
}

}  // namespace conclave::test
