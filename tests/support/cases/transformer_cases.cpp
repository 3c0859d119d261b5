// Cases of the ops a transformer needs around the experts: embed, rms_norm, matmul, rope, add, softmax, argmax,
// top_k.
#include <cmath>
#include <optional>

#include "base/fail.h"
#include "ops/check.h"
#include "support/cases/op_cases.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

Op embed_op(CaseBuilder& b, std::int64_t n_tokens, DType table, DType out, std::int64_t low = 0,
            std::int64_t high = 10) {
  const std::int64_t d_model = width_for(table, 20);
  return Embed{.ids = b.integers({n_tokens}, low, high),
               .table = b.weights(table, {11, d_model}),
               .out = b.output(out, {n_tokens, d_model})};
}

Op norm_op(CaseBuilder& b, const Dims& dims, DType x, DType out, float eps = 1e-5F, double scale = 1,
           DType weight = DType::f32) {
  return RmsNorm{
      .x = b.values(x, dims, scale), .weight = b.values(weight, {dims.back()}), .eps = eps, .out = b.output(out, dims)};
}

struct MatmulShape {
  std::int64_t m = 4;
  std::int64_t n = 7;
  std::int64_t k = 20;
  DType x = DType::f32;
  DType w = DType::f32;
  DType out = DType::f32;
  bool bias = false;
  Order order = Order::any;
  double scale = 1;
};

Op matmul_op(CaseBuilder& b, const MatmulShape& shape) {
  const std::int64_t k = width_for(shape.w, shape.k);
  Matmul op{.x = b.values(shape.x, {shape.m, k}, shape.scale),
            .w = b.weights(shape.w, {shape.n, k}),
            .order = shape.order,
            .out = b.output(shape.out, {shape.m, shape.n})};
  if (shape.bias) op.bias = b.values(DType::f32, {shape.n});
  return op;
}

struct RopeShape {
  std::int64_t n_tokens = 5;
  std::int64_t n_heads = 2;
  std::int64_t d_head = 16;
  std::int64_t n_rot = 16;
  RopeStyle style = RopeStyle::neox;
  RopeScaling scaling = RopeScaling::none;
  DType x = DType::f32;
  DType out = DType::f32;
  float base = 10000.0F;
  float factor = 1.0F;
  std::int64_t last_position = 100;
  std::int64_t original_context = 4096;  // yarn
  float beta_slow = 1.0F;                // yarn
  bool factors = false;
  float magnitude = 1.0F;
};

Op rope_op(CaseBuilder& b, const RopeShape& shape) {
  const Dims dims = {shape.n_tokens, shape.n_heads, shape.d_head};
  Rope op{.x = b.values(shape.x, dims),
          .positions = b.integers({shape.n_tokens}, 0, shape.last_position),
          .n_rot = shape.n_rot,
          .style = shape.style,
          .scaling = shape.scaling,
          .base = shape.base,
          .factor = shape.factor,
          .original_context = shape.scaling == RopeScaling::yarn ? shape.original_context : 0,
          .beta_slow = shape.beta_slow,
          .magnitude = shape.magnitude,
          .out = b.output(shape.out, dims)};
  if (shape.factors) {
    std::vector<float> factors;
    for (std::int64_t i = 0; i < shape.n_rot / 2; ++i)
      factors.push_back(1.0F + 7.0F * static_cast<float>(b.rng.uniform()));
    op.factors = b.floats(DType::f32, {shape.n_rot / 2}, factors);
  }
  return op;
}

Op add_op(CaseBuilder& b, std::int64_t n, std::int64_t d, DType x, DType y, DType out, bool row) {
  return Add{.a = b.values(x, {n, d}), .b = row ? b.values(y, {d}) : b.values(y, {n, d}), .out = b.output(out, {n, d})};
}

Op softmax_op(CaseBuilder& b, std::int64_t n, std::int64_t d, DType x, DType out, float scale, double spread = 3) {
  return Softmax{.x = b.values(x, {n, d}, spread), .scale = scale, .out = b.output(out, {n, d})};
}

// Rows to find the best of.
std::vector<float> contest(CaseBuilder& b, std::int64_t count, bool ties) {
  std::vector<float> content;
  for (std::int64_t i = 0; i < count; ++i) {
    content.push_back(ties ? static_cast<float>(b.rng.integer(-2, 2)) : static_cast<float>(b.rng.normal()));
  }
  return content;
}
Op argmax_op(CaseBuilder& b, std::int64_t n, std::int64_t d, DType x, bool ties) {
  return Argmax{.x = b.floats(x, {n, d}, contest(b, n * d, ties)), .ids = b.output(DType::i32, {n})};
}
Op top_k_op(CaseBuilder& b, std::int64_t n, std::int64_t d, std::int64_t k, DType x, bool ties) {
  return TopK{.x = b.floats(x, {n, d}, contest(b, n * d, ties)),
              .ids = b.output(DType::i32, {n, k}),
              .values = b.output(DType::f32, {n, k})};
}

// Adds the same cases of the live count to any of these ops; `build` makes one with four rows.
template <class AnyOp>
void add_live_cases(CaseList& list, const std::function<Op(CaseBuilder&)>& build) {
  for (const std::int64_t live : {-1, 0, 2, 9}) {
    list.add(fmt::format("live {} of 4", live), [=](CaseBuilder& b) {
      auto op = std::get<AnyOp>(build(b));
      op.live = b.live(live);
      return Op(op);
    });
  }
}

void random_live(CaseBuilder& b, Tensor& live, std::int64_t rows) {
  if (b.rng.chance(0.3)) live = b.live(b.rng.integer(-1, rows + 2));
}

}  // namespace

std::vector<CaseSpec> embed_cases() {
  CaseList list("embed");
  for (const DType table : weight_formats()) {
    for (const DType out : kFloat) {
      list.add_small(fmt::format("{} to {}", dtype_info(table).name, dtype_info(out).name),
                     [=](CaseBuilder& b) { return embed_op(b, 3, table, out); });
    }
  }
  for (const std::int64_t n : {0, 1, 2, 65}) {
    list.add(fmt::format("{} tokens", n), [=](CaseBuilder& b) { return embed_op(b, n, DType::f32, DType::f32); });
  }
  list.add("ids outside the table", [](CaseBuilder& b) { return embed_op(b, 30, DType::f16, DType::f32, -5, 20); });
  add_live_cases<Embed>(list, [](CaseBuilder& b) { return embed_op(b, 4, DType::f32, DType::f32); });
  return list.take();
}

std::vector<CaseSpec> rms_norm_cases() {
  CaseList list("rms_norm");
  for (const DType x : kFloat) {
    for (const DType out : kFloat) {
      list.add_small(fmt::format("{} to {}", dtype_info(x).name, dtype_info(out).name), [=](CaseBuilder& b) {
        return norm_op(b, {5, 33}, x, out);
      });
      list.add(fmt::format("per head, {} to {}", dtype_info(x).name, dtype_info(out).name), [=](CaseBuilder& b) {
        return norm_op(b, {3, 4, 16}, x, out);
      });
    }
    list.add(fmt::format("weight {}", dtype_info(x).name), [=](CaseBuilder& b) {
      return norm_op(b, {3, 20}, DType::f32, DType::f32, 1e-6F, 1, x);
    });
  }
  for (const Dims& dims :
       {Dims{0, 8}, Dims{1, 1}, Dims{2, 257}, Dims{65, 3}, Dims{0, 2, 4}, Dims{2, 1, 31}, Dims{1, 512}}) {
    list.add(shape_text(dims), [=](CaseBuilder& b) { return norm_op(b, dims, DType::f32, DType::f32); });
  }
  for (const float eps : {1e-12F, 1e-6F, 0.5F}) {
    for (const double scale : {1e-4, 1.0, 1e6}) {
      list.add(fmt::format("eps {}, values of {}", eps, scale), [=](CaseBuilder& b) {
        return norm_op(b, {3, 24}, DType::f32, DType::f32, eps, scale);
      });
    }
  }
  list.add("zeros", [](CaseBuilder& b) {
    auto op = std::get<RmsNorm>(norm_op(b, {2, 8}, DType::f32, DType::f32));
    op.x = b.floats(DType::f32, {2, 8}, std::vector<float>(16, 0.0F));
    return Op(op);
  });
  list.add("a NaN stays in its row", [](CaseBuilder& b) {
    auto op = std::get<RmsNorm>(norm_op(b, {2, 4}, DType::f32, DType::f32));
    op.x = b.floats(DType::f32, {2, 4}, {1, NAN, 3, 4, 5, 6, 7, 8});
    return Op(op);
  });
  list.add("in place", [](CaseBuilder& b) {
    auto op = std::get<RmsNorm>(norm_op(b, {4, 12}, DType::f32, DType::f32));
    op.out = op.x;
    return Op(op);
  });
  add_live_cases<RmsNorm>(list, [](CaseBuilder& b) { return norm_op(b, {4, 10}, DType::f32, DType::f32); });
  return list.take();
}

std::vector<CaseSpec> matmul_cases() {
  CaseList list("matmul");
  const auto add = [&](const std::string& name, const MatmulShape& shape) {
    list.add(name, [=](CaseBuilder& b) { return matmul_op(b, shape); });
  };
  for (const DType w : weight_formats()) {
    list.add_small(fmt::format("weights {}", dtype_info(w).name),
                   [=](CaseBuilder& b) { return matmul_op(b, {.w = w}); });
    add(fmt::format("weights {}, several blocks", dtype_info(w).name), {.m = 2, .n = 3, .k = 520, .w = w});
  }
  for (const DType x : kFloat) {
    for (const DType out : kFloat) {
      add(fmt::format("x {}, out {}", dtype_info(x).name, dtype_info(out).name),
          {.x = x, .w = DType::q8_0, .out = out, .bias = true});
    }
  }
  for (const std::int64_t m : {0, 1, 2, 15, 17, 33, 65}) add(fmt::format("{} rows", m), {.m = m});
  for (const std::int64_t n : {1, 15, 17, 63, 65}) add(fmt::format("{} columns", n), {.n = n});
  for (const std::int64_t k : {1, 2, 31, 33, 257, 1000}) add(fmt::format("inner {}", k), {.k = k});
  for (const std::int64_t k : {1, 7, 31, 32, 33, 64, 100, 513}) {
    list.add_small(fmt::format("canonical, inner {}", k),
                   [=](CaseBuilder& b) { return matmul_op(b, {.m = 3, .n = 5, .k = k, .order = Order::canonical}); });
    add(fmt::format("canonical, inner {}, bias, bf16 weights", k),
        {.m = 2, .n = 5, .k = k, .w = DType::bf16, .bias = true, .order = Order::canonical});
  }
  add("bias", {.bias = true});
  add("activations of 1e6", {.k = 200, .scale = 1e6});
  add_live_cases<Matmul>(list, [](CaseBuilder& b) { return matmul_op(b, {}); });
  return list.take();
}

std::vector<CaseSpec> rope_cases() {
  CaseList list("rope");
  using enum RopeScaling;
  for (const RopeStyle style : {RopeStyle::neox, RopeStyle::interleaved}) {
    const std::string_view with = name(style);
    const auto add = [&](const std::string& what, RopeShape shape) {
      shape.style = style;
      list.add(fmt::format("{}, {}", with, what), [=](CaseBuilder& b) { return rope_op(b, shape); });
    };
    for (const DType x : kFloat) {
      for (const DType out : kFloat) {
        list.add_small(fmt::format("{}, {} to {}", with, dtype_info(x).name, dtype_info(out).name),
                       [=](CaseBuilder& b) { return rope_op(b, {.style = style, .x = x, .out = out}); });
      }
    }
    add("part of the head", {.n_rot = 6});
    add("one pair", {.d_head = 2, .n_rot = 2});
    add("odd head", {.d_head = 17, .n_rot = 10});
    add("no tokens", {.n_tokens = 0});
    add("one head", {.n_heads = 1});
    add("128 wide", {.n_tokens = 2, .d_head = 128, .n_rot = 128, .base = 1e6F});
    add("far positions", {.base = 1e6F, .last_position = 130000});
    add("linear", {.scaling = linear, .factor = 4.0F});
    add("linear below 1", {.scaling = linear, .factor = 0.5F});
    add("yarn", {.d_head = 64, .n_rot = 64, .scaling = yarn, .factor = 4.0F, .last_position = 9000});
    add("yarn with magnitude", {.d_head = 32,
                                .n_rot = 32,
                                .scaling = yarn,
                                .base = 1e6F,
                                .factor = 8.0F,
                                .last_position = 30000,
                                .magnitude = 1.2079F});
    add("yarn, part of the head", {.d_head = 64, .n_rot = 32, .scaling = yarn, .factor = 2.0F});
    // Where the ramp would start before the first pair, end after the last, or have no length.
    add("yarn over a short context", {.scaling = yarn, .factor = 4.0F, .original_context = 20});
    add("yarn over a vast context", {.scaling = yarn, .base = 50.0F, .factor = 4.0F, .original_context = 1LL << 38});
    add("yarn with a ramp past the last pair", {.scaling = yarn, .factor = 4.0F, .beta_slow = 1e-6F});
    add("yarn with a step for a ramp", {.scaling = yarn, .factor = 4.0F, .original_context = 3});
    add("own factors, linear", {.scaling = linear, .factor = 4.0F, .factors = true});
    add("own factors", {.base = 500000.0F, .factors = true});
    add("own factors and yarn", {.scaling = yarn, .factor = 4.0F, .factors = true});
  }
  list.add("in place", [](CaseBuilder& b) {
    auto op = std::get<Rope>(rope_op(b, {}));
    op.out = op.x;
    return Op(op);
  });
  list.add("negative position", [](CaseBuilder& b) {
    auto op = std::get<Rope>(rope_op(b, {.n_tokens = 2}));
    op.positions = b.ints(DType::i32, {2}, {-7, 0});
    return Op(op);
  });
  add_live_cases<Rope>(list, [](CaseBuilder& b) { return rope_op(b, {.n_tokens = 4}); });
  return list.take();
}

std::vector<CaseSpec> add_cases() {
  CaseList list("add");
  for (const DType x : kFloat) {
    for (const DType y : kFloat) {
      for (const DType out : kFloat) {
        list.add_small(fmt::format("{} + {} to {}", dtype_info(x).name, dtype_info(y).name, dtype_info(out).name),
                       [=](CaseBuilder& b) { return add_op(b, 3, 11, x, y, out, x == y); });
      }
    }
  }
  for (const Dims& dims : {Dims{0, 5}, Dims{1, 1}, Dims{65, 3}, Dims{2, 257}}) {
    for (const bool row : {false, true}) {
      list.add(fmt::format("{}{}", shape_text(dims), row ? " + row" : ""),
               [=](CaseBuilder& b) { return add_op(b, dims[0], dims[1], DType::f32, DType::f32, DType::f32, row); });
    }
  }
  list.add("in place of a", [](CaseBuilder& b) {
    auto op = std::get<Add>(add_op(b, 4, 9, DType::bf16, DType::f32, DType::bf16, false));
    op.out = op.a;
    return Op(op);
  });
  list.add("overflow to infinity", [](CaseBuilder& b) {
    return Op(Add{.a = b.floats(DType::f32, {1, 3}, {3e38F, 60000.0F, -3e38F}),
                  .b = b.floats(DType::f32, {3}, {3e38F, 1.0F, 3e38F}),
                  .out = b.output(DType::f32, {1, 3})});
  });
  add_live_cases<Add>(list, [](CaseBuilder& b) { return add_op(b, 4, 6, DType::f32, DType::f32, DType::f32, false); });
  return list.take();
}

std::vector<CaseSpec> softmax_cases() {
  CaseList list("softmax");
  for (const DType x : kFloat) {
    for (const DType out : kFloat) {
      list.add_small(fmt::format("{} to {}", dtype_info(x).name, dtype_info(out).name),
                     [=](CaseBuilder& b) { return softmax_op(b, 4, 19, x, out, 1); });
    }
  }
  for (const Dims& dims : {Dims{0, 5}, Dims{1, 1}, Dims{2, 2}, Dims{3, 257}, Dims{33, 31}, Dims{1, 1024}}) {
    list.add(shape_text(dims),
             [=](CaseBuilder& b) { return softmax_op(b, dims[0], dims[1], DType::f32, DType::f32, 1); });
  }
  for (const float scale : {0.01F, 0.5F, 8.0F}) {
    for (const double spread : {0.1, 1.0, 50.0}) {
      list.add(fmt::format("scale {}, values of {}", scale, spread),
               [=](CaseBuilder& b) { return softmax_op(b, 3, 20, DType::f32, DType::f32, scale, spread); });
    }
  }
  list.add("specials", [](CaseBuilder& b) {
    const float inf = INFINITY;
    return Op(Softmax{
        .x = b.floats(DType::f32, {5, 3}, {1, -inf, 2, NAN, 1, 2, inf, 1, 2, -inf, -inf, -inf, 1e38F, 0, -1e38F}),
        .out = b.output(DType::f32, {5, 3})});
  });
  list.add("in place", [](CaseBuilder& b) {
    auto op = std::get<Softmax>(softmax_op(b, 4, 9, DType::f32, DType::f32, 1));
    op.out = op.x;
    return Op(op);
  });
  add_live_cases<Softmax>(list, [](CaseBuilder& b) { return softmax_op(b, 4, 6, DType::f32, DType::f32, 1); });
  return list.take();
}

std::vector<CaseSpec> argmax_cases() {
  CaseList list("argmax");
  for (const DType x : kFloat) {
    for (const bool ties : {false, true}) {
      list.add_small(fmt::format("{}{}", dtype_info(x).name, ties ? ", ties" : ""),
                     [=](CaseBuilder& b) { return argmax_op(b, 9, 23, x, ties); });
    }
  }
  for (const Dims& dims : {Dims{0, 5}, Dims{1, 1}, Dims{2, 2}, Dims{3, 257}, Dims{65, 3}, Dims{2, 5000}}) {
    for (const bool ties : {false, true}) {
      list.add(fmt::format("{}{}", shape_text(dims), ties ? ", ties" : ""),
               [=](CaseBuilder& b) { return argmax_op(b, dims[0], dims[1], DType::f32, ties); });
    }
  }
  list.add("specials", [](CaseBuilder& b) {
    const float inf = INFINITY;
    return Op(
        Argmax{.x = b.floats(DType::f32, {6, 3},
                             {NAN, 1, 2, NAN, NAN, NAN, -inf, -inf, -inf, -inf, NAN, -5, 0.0F, -0.0F, -1, 1, inf, inf}),
               .ids = b.output(DType::i32, {6})});
  });
  add_live_cases<Argmax>(list, [](CaseBuilder& b) { return argmax_op(b, 4, 6, DType::f32, false); });
  return list.take();
}

std::vector<CaseSpec> top_k_cases() {
  CaseList list("top_k");
  for (const DType x : kFloat) {
    for (const bool ties : {false, true}) {
      list.add_small(fmt::format("{}{}", dtype_info(x).name, ties ? ", ties" : ""),
                     [=](CaseBuilder& b) { return top_k_op(b, 5, 23, 7, x, ties); });
    }
  }
  for (const Dims& dims : {Dims{0, 5, 2}, Dims{1, 1, 1}, Dims{2, 3, 8}, Dims{3, 257, 256}, Dims{2, 5000, 1},
                           Dims{2, 5000, 64}, Dims{1, 40000, 40}, Dims{1, 6001, 256}}) {
    for (const bool ties : {false, true}) {
      list.add(fmt::format("{} of {}{}", dims[2], shape_text(Dims{dims[0], dims[1]}), ties ? ", ties" : ""),
               [=](CaseBuilder& b) { return top_k_op(b, dims[0], dims[1], dims[2], DType::f32, ties); });
    }
  }
  list.add("specials", [](CaseBuilder& b) {
    const float inf = INFINITY;
    const float most = std::numeric_limits<float>::max();
    return Op(TopK{
        .x = b.floats(DType::f32, {6, 4}, {NAN,   1, 2,     NAN,    NAN, NAN, -inf, NAN, -inf,  -1e-45F, inf,  -inf,
                                           -0.0F, 0, -0.0F, 1e-45F, 1,   inf, most, inf, -most, NAN,     -inf, -1}),
        .ids = b.output(DType::i32, {6, 3}),
        .values = b.output(DType::f32, {6, 3})});
  });
  add_live_cases<TopK>(list, [](CaseBuilder& b) { return top_k_op(b, 4, 6, 3, DType::f32, false); });
  return list.take();
}

Op random_embed(CaseBuilder& b) {
  const std::int64_t n = b.rng.integer(0, 30);
  auto op = std::get<Embed>(embed_op(b, n, b.rng.pick(kWeight), random_float(b.rng), -2, 13));
  random_live(b, op.live, n);
  return op;
}
Op random_rms_norm(CaseBuilder& b) {
  Dims dims = {b.rng.integer(0, 20), b.rng.integer(1, 200)};
  if (b.rng.chance(0.4)) dims = {b.rng.integer(0, 6), b.rng.integer(1, 6), b.rng.integer(1, 130)};
  auto op =
      std::get<RmsNorm>(norm_op(b, dims, random_float(b.rng), random_float(b.rng), 1e-5F, 2, random_float(b.rng)));
  random_live(b, op.live, dims[0]);
  return op;
}
Op random_matmul(CaseBuilder& b) {
  MatmulShape shape{.m = b.rng.integer(0, 20), .n = b.rng.integer(1, 40), .k = b.rng.integer(1, 150)};
  shape.bias = b.rng.chance(0.4);
  if (b.rng.chance(0.25)) {
    shape.order = Order::canonical;
    shape.w = random_float(b.rng);
  } else {
    shape.x = random_float(b.rng);
    shape.w = b.rng.pick(kWeight);
    shape.out = random_float(b.rng);
  }
  auto op = std::get<Matmul>(matmul_op(b, shape));
  random_live(b, op.live, shape.m);
  return op;
}
Op random_rope(CaseBuilder& b) {
  RopeShape shape{.n_tokens = b.rng.integer(0, 9), .n_heads = b.rng.integer(1, 5), .d_head = b.rng.integer(2, 96)};
  shape.n_rot = 2 * b.rng.integer(1, shape.d_head / 2);
  shape.style = b.rng.chance(0.5) ? RopeStyle::neox : RopeStyle::interleaved;
  shape.scaling = static_cast<RopeScaling>(b.rng.integer(0, 2));
  shape.x = random_float(b.rng);
  shape.out = random_float(b.rng);
  shape.base = b.rng.chance(0.5) ? 10000.0F : 1e6F;
  shape.factor = 1.0F + 7.0F * static_cast<float>(b.rng.uniform());
  shape.last_position = b.rng.integer(0, 40000);
  shape.factors = b.rng.chance(0.3);
  shape.magnitude = b.rng.chance(0.7) ? 1.0F : 1.1F;
  auto op = std::get<Rope>(rope_op(b, shape));
  random_live(b, op.live, shape.n_tokens);
  return op;
}
Op random_add(CaseBuilder& b) {
  const std::int64_t n = b.rng.integer(0, 20);
  auto op = std::get<Add>(add_op(b, n, b.rng.integer(1, 90), random_float(b.rng), random_float(b.rng),
                                 random_float(b.rng), b.rng.chance(0.3)));
  random_live(b, op.live, n);
  return op;
}
Op random_softmax(CaseBuilder& b) {
  const std::int64_t n = b.rng.integer(0, 20);
  auto op = std::get<Softmax>(softmax_op(b, n, b.rng.integer(1, 200), random_float(b.rng), random_float(b.rng), 0.7F));
  random_live(b, op.live, n);
  return op;
}
Op random_argmax(CaseBuilder& b) {
  const std::int64_t n = b.rng.integer(0, 20);
  auto op = std::get<Argmax>(argmax_op(b, n, b.rng.integer(1, 300), random_float(b.rng), b.rng.chance(0.5)));
  random_live(b, op.live, n);
  return op;
}
Op random_top_k(CaseBuilder& b) {
  const std::int64_t n = b.rng.integer(0, 6);
  const std::int64_t d = b.rng.chance(0.2) ? b.rng.integer(2000, 9000) : b.rng.integer(1, 300);
  auto op = std::get<TopK>(top_k_op(b, n, d, b.rng.integer(1, 70), random_float(b.rng), b.rng.chance(0.5)));
  random_live(b, op.live, n);
  return op;
}

}  // namespace conclave::test
