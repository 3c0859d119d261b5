// Cases of the ops on the paged cache: attention and kv_write.
#include <algorithm>
#include <limits>
#include <optional>

#include "base/fail.h"
#include "ops/check.h"
#include "support/cases/op_cases.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

struct KvShape {
  std::vector<std::int32_t> lengths = {7};  // of each sequence, the new tokens included
  std::vector<std::int32_t> fresh = {1};    // how many of them are new: the query tokens
  std::int64_t n_heads = 2;
  std::int64_t n_kv_heads = 1;
  std::int64_t d_k = 8;
  std::int64_t d_v = 8;
  std::int64_t page_size = 4;
  DType cache = DType::f32;
  DType x = DType::f32;
  DType out = DType::f32;
  bool strays = false;  // tokens and pages that are out of range
  std::optional<std::int64_t> live;
};

struct Tokens {
  std::vector<std::int32_t> seqs;
  std::vector<std::int32_t> positions;
  std::int64_t size() const { return static_cast<std::int64_t>(seqs.size()); }
};

Tokens fresh_tokens(CaseBuilder& b, const KvShape& shape) {
  Tokens tokens;
  for (std::size_t q = 0; q < shape.lengths.size(); ++q) {
    for (std::int32_t i = 0; i < shape.fresh[q]; ++i) {
      tokens.seqs.push_back(static_cast<std::int32_t>(q));
      tokens.positions.push_back(shape.lengths[q] - shape.fresh[q] + i);
    }
  }
  for (std::int64_t i = 0; i < tokens.size() && shape.strays; ++i) {
    if (b.rng.chance(0.3)) tokens.seqs[static_cast<std::size_t>(i)] = b.rng.chance(0.5) ? -1 : 1000;
    if (b.rng.chance(0.3)) tokens.positions[static_cast<std::size_t>(i)] = b.rng.chance(0.5) ? -1 : 100000;
  }
  return tokens;
}

// Pages of every sequence, scattered over a pool with some to spare.
KvView kv_view(CaseBuilder& b, const KvShape& shape) {
  const auto n_seqs = static_cast<std::int64_t>(shape.lengths.size());
  std::int64_t max_pages = 1;
  for (const std::int32_t length : shape.lengths)
    max_pages = std::max(max_pages, (length + shape.page_size - 1) / shape.page_size);
  const std::int64_t n_pages = n_seqs * max_pages + 2;
  std::vector<std::int32_t> order;
  for (std::int32_t i = 0; i < n_pages; ++i) order.push_back(i);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(b.rng.integer(0, static_cast<std::int64_t>(i) - 1))]);
  order.resize(static_cast<std::size_t>(n_seqs * max_pages));
  for (std::int32_t& page : order) {
    if (shape.strays && b.rng.chance(0.2)) page = b.rng.chance(0.5) ? -1 : static_cast<std::int32_t>(n_pages);
  }
  return {.k = b.weights(shape.cache, {n_pages, shape.page_size, shape.n_kv_heads, width_for(shape.cache, shape.d_k)}),
          .v = b.weights(shape.cache, {n_pages, shape.page_size, shape.n_kv_heads, width_for(shape.cache, shape.d_v)}),
          .pages = b.ints(DType::i32, {n_seqs, max_pages}, order)};
}

Op attention_op(CaseBuilder& b, const KvShape& shape, double scale = 3) {
  const Tokens tokens = fresh_tokens(b, shape);
  const KvView kv = kv_view(b, shape);
  Attention op{.q = b.values(shape.x, {tokens.size(), shape.n_heads, kv.k.dim(3)}, scale),
               .kv = kv,
               .lengths = b.ints(DType::i32, {static_cast<std::int64_t>(shape.lengths.size())}, shape.lengths),
               .seqs = b.ints(DType::i32, {tokens.size()}, tokens.seqs),
               .positions = b.ints(DType::i32, {tokens.size()}, tokens.positions),
               .scale = 0.7F,
               .out = b.output(shape.out, {tokens.size(), shape.n_heads, kv.v.dim(3)})};
  if (shape.live) op.live = b.live(*shape.live);
  return op;
}

Op kv_write_op(CaseBuilder& b, const KvShape& shape, double scale = 1) {
  const Tokens tokens = fresh_tokens(b, shape);
  const KvView kv = kv_view(b, shape);
  KvWrite op{.k = b.values(shape.x, {tokens.size(), shape.n_kv_heads, kv.k.dim(3)}, scale),
             .v = b.values(shape.x, {tokens.size(), shape.n_kv_heads, kv.v.dim(3)}, scale),
             .seqs = b.ints(DType::i32, {tokens.size()}, tokens.seqs),
             .positions = b.ints(DType::i32, {tokens.size()}, tokens.positions),
             .kv = kv};
  if (shape.live) op.live = b.live(*shape.live);
  return op;
}

// The batches both ops go through.
std::vector<std::pair<std::string, KvShape>> standard_batches() {
  return {
      {"one token", {}},
      {"first token", {.lengths = {1}, .fresh = {1}}},
      {"no tokens", {.lengths = {5}, .fresh = {0}}},
      {"no sequence", {.lengths = {}, .fresh = {}}},
      {"whole prompt", {.lengths = {9}, .fresh = {9}}},
      {"chunk of a prompt", {.lengths = {13}, .fresh = {5}}},
      {"page edge below", {.lengths = {7}, .fresh = {2}}},
      {"page edge", {.lengths = {8}, .fresh = {2}}},
      {"page edge above", {.lengths = {9}, .fresh = {2}}},
      {"pages of one", {.lengths = {5}, .fresh = {2}, .page_size = 1}},
      {"one large page", {.lengths = {5}, .fresh = {2}, .page_size = 64}},
      {"several sequences", {.lengths = {3, 11, 1, 6}, .fresh = {1, 1, 1, 1}}},
      {"decode beside prefill", {.lengths = {12, 9}, .fresh = {1, 7}}},
      {"an empty sequence", {.lengths = {0, 4}, .fresh = {0, 2}}},
      {"grouped heads", {.lengths = {6}, .fresh = {3}, .n_heads = 6, .n_kv_heads = 2}},
      {"a head each", {.lengths = {6}, .fresh = {3}, .n_heads = 3, .n_kv_heads = 3}},
      {"values wider than keys", {.lengths = {6}, .fresh = {3}, .d_k = 5, .d_v = 11}},
      {"128 wide", {.lengths = {5}, .fresh = {2}, .d_k = 128, .d_v = 128}},
      {"long", {.lengths = {70}, .fresh = {2}, .page_size = 16}},
      {"strays", {.lengths = {9, 6, 12}, .fresh = {5, 6, 4}, .strays = true}},
      {"live 2 of 5", {.lengths = {9}, .fresh = {5}, .live = 2}},
      {"live 0", {.lengths = {9}, .fresh = {5}, .live = 0}},
      {"live past the end", {.lengths = {9}, .fresh = {5}, .live = 50}},
      {"live negative", {.lengths = {9}, .fresh = {5}, .live = -1}},
  };
}

KvShape random_kv(Rng& rng) {
  KvShape shape{.lengths = {}, .fresh = {}};
  for (std::int64_t q = rng.integer(0, 4); q > 0; --q) {
    shape.lengths.push_back(static_cast<std::int32_t>(rng.integer(0, 40)));
    shape.fresh.push_back(static_cast<std::int32_t>(rng.integer(0, std::min<std::int64_t>(6, shape.lengths.back()))));
  }
  shape.n_kv_heads = rng.integer(1, 3);
  shape.n_heads = shape.n_kv_heads * rng.integer(1, 3);
  shape.d_k = rng.integer(1, 40);
  shape.d_v = rng.integer(1, 40);
  shape.page_size = rng.integer(1, 20);
  shape.cache = rng.pick(kKvCache);
  shape.x = random_float(rng);
  shape.out = random_float(rng);
  shape.strays = rng.chance(0.2);
  if (rng.chance(0.2)) shape.live = rng.integer(-1, 12);
  if (rng.chance(0.2)) {  // what fast kernels are made for
    shape.d_k = rng.integer(1, 16) * 16;
    shape.d_v = rng.integer(1, 16) * 16;
    shape.cache = DType::f16;
    if (rng.chance(0.5)) {
      shape.d_k = shape.d_v = rng.chance(0.5) ? 64 : 128;
    }
  }
  return shape;
}

}  // namespace

std::vector<CaseSpec> attention_cases() {
  CaseList list("attention");
  for (const auto& [name, shape] : standard_batches()) {
    list.add_small(name, [=, shape = shape](CaseBuilder& b) { return attention_op(b, shape); });
  }
  for (const DType cache : kKvCache) {
    for (const DType x : kFloat) {
      list.add(fmt::format("cache {}, {}", dtype_info(cache).name, dtype_info(x).name), [=](CaseBuilder& b) {
        return attention_op(b, {.lengths = {6, 10}, .fresh = {2, 1}, .cache = cache, .x = x, .out = x});
      });
    }
  }
  list.add("sharp scores", [](CaseBuilder& b) { return attention_op(b, {.lengths = {12}, .fresh = {4}}, 300); });
  list.add("scores whose exponentials overflow f64",
           [](CaseBuilder& b) { return attention_op(b, {.lengths = {12}, .fresh = {4}}, 1e5); });
  list.add("lengths and positions past the pages", [](CaseBuilder& b) {
    auto op = std::get<Attention>(attention_op(b, {.lengths = {12}, .fresh = {2}}));
    op.lengths = b.ints(DType::i32, {1}, {std::numeric_limits<std::int32_t>::max()});
    op.positions = b.ints(DType::i32, {2}, {std::numeric_limits<std::int32_t>::max(), 5});
    return Op(op);
  });
  // Widths that have kernels of their own, over several units and more than one split of the context.
  for (const auto& [d_k, d_v] : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {64, 64}, {80, 80}, {96, 96}, {128, 128}, {192, 128}, {256, 256}, {16, 48}}) {
    const KvShape shape{.lengths = {70, 600, 64},
                        .fresh = {20, 3, 1},
                        .n_heads = 4,
                        .n_kv_heads = 2,
                        .d_k = d_k,
                        .d_v = d_v,
                        .page_size = 16,
                        .cache = DType::f16};
    list.add(fmt::format("cache f16, {} and {} wide", d_k, d_v),
             [=](CaseBuilder& b) { return attention_op(b, shape); });
  }
  list.add("cache f16, 20 heads of one", [](CaseBuilder& b) {
    return attention_op(b, {.lengths = {66, 40},
                            .fresh = {17, 2},
                            .n_heads = 20,
                            .d_k = 64,
                            .d_v = 64,
                            .page_size = 32,
                            .cache = DType::f16,
                            .out = DType::f16});
  });
  list.add("cache f16, strays", [](CaseBuilder& b) {
    return attention_op(b, {.lengths = {200, 90, 30},
                            .fresh = {40, 20, 10},
                            .d_k = 64,
                            .d_v = 64,
                            .page_size = 8,
                            .cache = DType::f16,
                            .strays = true});
  });
  for (const double scale : {1e-30, 1e-3, 300.0, 1e5, 1e30}) {
    list.add(fmt::format("cache f16, queries of {}", scale), [=](CaseBuilder& b) {
      return attention_op(b, {.lengths = {90}, .fresh = {4}, .d_k = 64, .d_v = 64, .cache = DType::f16}, scale);
    });
  }
  // Prompts of several sequences: more rows than a tile has, and fewer.
  for (const std::int64_t d : {64, 80, 128}) {
    const KvShape shape{.lengths = {130, 300, 128, 5},
                        .fresh = {130, 40, 1, 5},
                        .n_heads = 6,
                        .n_kv_heads = 2,
                        .d_k = d,
                        .d_v = d,
                        .page_size = 16,
                        .cache = DType::f16};
    list.add(fmt::format("prompts, {} wide", d), [=](CaseBuilder& b) { return attention_op(b, shape); });
    for (const DType x : {DType::f16, DType::bf16}) {
      list.add(fmt::format("prompts, {} wide, {}", d, dtype_info(x).name), [=](CaseBuilder& b) {
        KvShape other = shape;
        other.lengths = {40, 129}, other.fresh = {40, 2};
        other.x = other.out = x;
        return attention_op(b, other);
      });
    }
    list.add(fmt::format("prompts, {} wide, strays", d), [=](CaseBuilder& b) {
      KvShape other = shape;
      other.page_size = 8;
      other.strays = true;
      return attention_op(b, other);
    });
    list.add(fmt::format("prompts, {} wide, live 50 of 100", d), [=](CaseBuilder& b) {
      KvShape other = shape;
      other.lengths = {200}, other.fresh = {100};
      other.live = 50;
      return attention_op(b, other);
    });
    for (const double scale : {0.0, 1e-30, 300.0, 1e30}) {
      list.add(fmt::format("prompts, {} wide, queries of {}", d, scale), [=](CaseBuilder& b) {
        KvShape other = shape;
        other.lengths = {150}, other.fresh = {20};
        return attention_op(b, other, scale);
      });
    }
  }
  list.add("even scores", [](CaseBuilder& b) { return attention_op(b, {.lengths = {12}, .fresh = {4}}, 0); });
  return list.take();
}

std::vector<CaseSpec> kv_write_cases() {
  CaseList list("kv_write");
  for (const auto& [name, shape] : standard_batches()) {
    list.add_small(name, [=, shape = shape](CaseBuilder& b) { return kv_write_op(b, shape); });
  }
  for (const DType cache : kKvCache) {
    for (const DType x : kFloat) {
      for (const double scale : {1e-6, 1.0, 1e4}) {
        list.add(
            fmt::format("cache {}, {}, values of {}", dtype_info(cache).name, dtype_info(x).name, scale),
            [=](CaseBuilder& b) {
              return kv_write_op(b, {.lengths = {6, 10}, .fresh = {2, 1}, .d_k = 40, .cache = cache, .x = x}, scale);
            });
      }
    }
  }
  // Values half way between two levels; and a largest value where 1 / (largest / 127) and 127 / largest are not the same
  // number, so that half of these values are rounded to another level with the latter.
  list.add("ties in q8_0", [](CaseBuilder& b) {
    auto op = std::get<KvWrite>(kv_write_op(b, {.lengths = {3}, .fresh = {3}, .cache = DType::q8_0}));
    const float largest = 0x1.fac2dap+1F;
    const auto step = static_cast<double>(largest / 127.0F);
    std::vector<float> k;
    for (int i = 0; i < 32; ++i) k.push_back(i == 0 ? 127.0F : static_cast<float>(i) - 15.5F);
    for (int i = 0; i < 32; ++i) k.push_back(i == 0 ? largest : static_cast<float>((i + 0.5) * step));
    for (int i = 0; i < 32; ++i) k.push_back(i == 0 ? -largest : static_cast<float>((60.5 - i) * step));
    op.k = b.floats(DType::f32, {3, 1, 32}, k);
    return Op(op);
  });
  list.add("subnormals in q8_0", [](CaseBuilder& b) {
    auto op = std::get<KvWrite>(kv_write_op(b, {.lengths = {3}, .fresh = {3}, .cache = DType::q8_0}));
    std::vector<float> k;
    for (int i = 0; i < 96; ++i) k.push_back(static_cast<float>(i - 48) * (i < 32 ? 1e-41F : i < 64 ? 1e-38F : 1e-36F));
    op.k = b.floats(DType::f32, {3, 1, 32}, k);
    return Op(op);
  });
  list.add("NaN, infinities and zeros in q8_0", [](CaseBuilder& b) {
    auto op = std::get<KvWrite>(kv_write_op(b, {.lengths = {3}, .fresh = {3}, .cache = DType::q8_0}));
    std::vector<float> k(96, 0.0F);
    k[5] = INFINITY;
    k[40] = NAN;
    op.k = b.floats(DType::f32, {3, 1, 32}, k);
    return Op(op);
  });
  return list.take();
}

Op random_attention(CaseBuilder& b) {
  return attention_op(b, random_kv(b.rng));
}
Op random_kv_write(CaseBuilder& b) {
  return kv_write_op(b, random_kv(b.rng));
}

}  // namespace conclave::test
