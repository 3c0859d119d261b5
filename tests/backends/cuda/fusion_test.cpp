#include "backends/cuda/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_device.h"
#include "ops/profile.h"
#include "quant/codec.h"
#include "support/rng.h"

namespace conclave::test {
namespace {

// A token's way from a normed row to the cache and to the next norm, at a size of its own: what the runner records.
struct Block {
  static constexpr std::int64_t kModel = 2048;
  static constexpr std::int64_t kHeads = 5;
  static constexpr std::int64_t kKvHeads = 2;
  static constexpr std::int64_t kPages = 6;
  static constexpr std::int64_t kPage = 4;

  CudaDevice& device;
  std::int64_t d_head = 64;
  bool norms = true;
  DType cache = DType::f16;
  RopeStyle style = RopeStyle::neox;
  bool halves = false;  // weights of 16 bits
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<std::vector<std::byte>> contents;  // of the buffers, before a run
  Rng rng{5};

  Tensor put(DType type, const std::vector<std::int64_t>& dims, std::vector<std::byte> bytes) {
    buffers.push_back(device.allocate(dense_bytes(type, dims)));
    contents.push_back(std::move(bytes));
    return dense(*buffers.back(), 0, type, dims);
  }
  Tensor values(const std::vector<std::int64_t>& dims) {
    std::vector<float> v(static_cast<std::size_t>(dense_bytes(DType::f32, dims) / 4));
    for (float& x : v) x = static_cast<float>(rng.normal());
    const auto bytes = std::as_bytes(std::span(v));
    return put(DType::f32, dims, {bytes.begin(), bytes.end()});
  }
  Tensor ints(const std::vector<std::int64_t>& dims, const std::vector<std::int32_t>& v) {
    const auto bytes = std::as_bytes(std::span(v));
    return put(DType::i32, dims, {bytes.begin(), bytes.end()});
  }
  Tensor blank(DType type, const std::vector<std::int64_t>& dims) {
    return put(type, dims, std::vector<std::byte>(static_cast<std::size_t>(dense_bytes(type, dims))));
  }
  Tensor weights(DType type, std::int64_t n) { return weights(type, {n, kModel}); }
  // Rows repeat: to encode takes long.
  Tensor encoded(DType type, const std::vector<std::int64_t>& dims) {
    constexpr std::int64_t kDifferent = 61;
    std::vector<float> v(static_cast<std::size_t>(kDifferent * dims.back()));
    for (float& x : v) x = static_cast<float>(rng.normal());
    std::vector<std::byte> rows(
        static_cast<std::size_t>(dense_bytes(type, std::vector<std::int64_t>{kDifferent, dims.back()})));
    encode(type, v, rows);
    std::vector<std::byte> bytes(static_cast<std::size_t>(dense_bytes(type, dims)));
    for (std::size_t at = 0; at < bytes.size(); at += rows.size()) {
      std::copy_n(rows.begin(), std::min(rows.size(), bytes.size() - at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return put(type, dims, bytes);
  }
  Tensor weights(DType type, const std::vector<std::int64_t>& dims) {
    const Tensor stored = encoded(type, dims);
    device.upload(*buffers.back(), 0, contents.back());
    return device.prepare(std::span(&stored, 1))[0];
  }

  Program record(std::int64_t n_tokens, std::int32_t live) {
    Program p;
    const Tensor x = values({n_tokens, kModel});
    const Tensor residual = values({n_tokens, kModel});
    const Tensor alive = ints({1}, {live});
    const Tensor q = blank(DType::f32, {n_tokens, kHeads * d_head});
    const Tensor k = blank(DType::f32, {n_tokens, kKvHeads * d_head});
    const Tensor v = blank(DType::f32, {n_tokens, kKvHeads * d_head});
    const DType type = halves ? DType::bf16 : DType::q4_k;
    p.matmul({.x = x, .w = weights(type, kHeads * d_head), .live = alive, .out = q});
    p.matmul(
        {.x = x, .w = weights(type, kKvHeads * d_head), .bias = values({kKvHeads * d_head}), .live = alive, .out = k});
    p.matmul({.x = x, .w = weights(halves ? type : DType::q6_k, kKvHeads * d_head), .live = alive, .out = v});
    const auto heads = [&](const Tensor& t) {
      return dense(*t.buffer, 0, DType::f32, {n_tokens, t.dim(1) / d_head, d_head});
    };
    if (norms) {
      p.rms_norm({.x = heads(q), .weight = values({d_head}), .live = alive, .eps = 1e-6F, .out = heads(q)});
      p.rms_norm({.x = heads(k), .weight = values({d_head}), .live = alive, .eps = 1e-6F, .out = heads(k)});
    }
    // Two tokens of one place where there are three: the later one stands.
    std::vector<std::int32_t> at;
    std::vector<std::int32_t> seqs;
    for (std::int64_t t = 0; t < n_tokens; ++t) {
      at.push_back(static_cast<std::int32_t>(t % 2 == 0 ? 3 : 7 + t));
      seqs.push_back(static_cast<std::int32_t>(t / 3 % 2));
    }
    const Tensor positions = ints({n_tokens}, at);
    for (const Tensor& t : {q, k}) {
      p.rope({.x = heads(t),
              .positions = positions,
              .live = alive,
              .n_rot = d_head,
              .style = style,
              .base = 10000.0F,
              .out = heads(t)});
    }
    p.kv_write({.k = heads(k),
                .v = heads(v),
                .seqs = ints({n_tokens}, seqs),
                .positions = positions,
                .live = alive,
                .kv = {.k = blank(cache, {kPages, kPage, kKvHeads, d_head}),
                       .v = blank(cache, {kPages, kPage, kKvHeads, d_head}),
                       .pages = ints({2, 3}, {5, 3, 1, 0, 2, 4})}});
    p.add({.a = residual, .b = x, .live = alive, .out = residual});
    const Tensor normed = blank(DType::f32, {n_tokens, kModel});
    p.rms_norm({.x = residual, .weight = values({kModel}), .live = alive, .eps = 1e-6F, .out = normed});
    p.matmul({.x = normed, .w = weights(DType::q5_k, 40), .live = alive, .out = blank(DType::f32, {n_tokens, 40})});
    return p;
  }

  // From the sum after attention through the experts to the next product.
  Program record_experts(std::int64_t n_tokens, std::int32_t live) {
    Program p;
    const Tensor residual = values({n_tokens, kModel});
    const Tensor alive = ints({1}, {live});
    p.add({.a = residual, .b = values({n_tokens, kModel}), .live = alive, .out = residual});
    add_experts(p, residual, alive);
    return p;
  }
  // The same after that sum.
  void add_experts(Program& p, const Tensor& residual, const Tensor& alive) {
    constexpr std::int64_t kExperts = 68;
    constexpr std::int64_t kTopK = 3;
    constexpr std::int64_t kWidth = 256;
    const std::int64_t n_tokens = residual.dim(0);
    const Tensor normed = blank(DType::f32, {n_tokens, kModel});
    const Tensor logits = blank(DType::f32, {n_tokens, kExperts});
    p.rms_norm({.x = residual, .weight = values({kModel}), .live = alive, .eps = 1e-6F, .out = normed});
    p.matmul({.x = normed, .w = values({kExperts, kModel}), .live = alive, .order = Order::canonical, .out = logits});
    MoeFfn layer{.x = normed, .logits = logits, .live = alive, .rule = {.top_k = kTopK, .renormalize = true}};
    layer.gate = weights(DType::q4_k, {kExperts, kWidth, kModel});
    layer.up = weights(DType::q4_k, {kExperts, kWidth, kModel});
    layer.down = weights(DType::q6_k, {kExperts, kModel, kWidth});
    layer.routing = {.experts = blank(DType::i32, {n_tokens, kTopK}), .weights = blank(DType::f32, {n_tokens, kTopK})};
    layer.groups = {.offsets = blank(DType::i32, {kExperts + 1}),
                    .row_pair = blank(DType::i32, {n_tokens * kTopK}),
                    .pair_row = blank(DType::i32, {n_tokens, kTopK})};
    layer.hidden = blank(DType::f32, {n_tokens * kTopK, kWidth});
    layer.expert_out = blank(DType::f32, {n_tokens * kTopK, kModel});
    layer.residual = residual;
    layer.next = {.weight = values({kModel}), .eps = 1e-6F, .out = blank(DType::f32, {n_tokens, kModel})};
    p.moe_ffn(layer);
    p.matmul(
        {.x = layer.next.out, .w = weights(DType::q4_k, 40), .live = alive, .out = blank(DType::f32, {n_tokens, 40})});
  }

  // One token: a norm and three products; a product that is added to the residual; a norm and a router; experts, and
  // products of what they leave, with a norm of their own.
  static constexpr std::int64_t kTokenTopK = 8;
  static constexpr RoutingRule kByLogit{.top_k = kTokenTopK, .renormalize = true};
  Program record_token(std::int32_t live, DType type, DType other, std::int64_t width, float size,
                       const RoutingRule& rule = kByLogit, bool biased = false) {
    constexpr std::int64_t kExperts = 40;
    constexpr std::int64_t kTopK = kTokenTopK;
    constexpr std::int64_t kOut = 4096;
    Program p;
    const Tensor residual = values({1, kModel});
    const Tensor alive = ints({1}, {live});
    const auto norm = [&](const Tensor& x) {
      const Tensor normed = blank(DType::f32, {1, kModel});
      p.rms_norm({.x = x, .weight = values({kModel}), .live = alive, .eps = 1e-6F, .out = normed});
      return normed;
    };
    const auto products = [&](const Tensor& x) {
      p.matmul({.x = x, .w = weights(type, 500), .live = alive, .out = blank(DType::f32, {1, 500})});
      p.matmul(
          {.x = x, .w = weights(other, 37), .bias = values({37}), .live = alive, .out = blank(DType::f32, {1, 37})});
      p.matmul({.x = x, .w = weights(type, 3000), .live = alive, .out = blank(DType::f32, {1, 3000})});
    };
    products(norm(residual));
    Tensor heads = values({1, kOut});
    auto* first = reinterpret_cast<float*>(contents.back().data());
    first[7] *= size;
    const Tensor back = blank(DType::f32, {1, kModel});
    p.matmul({.x = heads, .w = weights(other, {kModel, kOut}), .live = alive, .out = back});
    p.add({.a = residual, .b = back, .live = alive, .out = residual});
    const Tensor normed = norm(residual);
    const Tensor logits = blank(DType::f32, {1, kExperts});
    p.matmul({.x = normed, .w = values({kExperts, kModel}), .live = alive, .order = Order::canonical, .out = logits});
    MoeFfn layer{.x = normed, .logits = logits, .live = alive, .rule = rule};
    if (biased) layer.bias = values({kExperts});
    layer.gate = weights(type, {kExperts, width, kModel});
    layer.up = weights(type, {kExperts, width, kModel});
    layer.down = weights(other, {kExperts, kModel, width});
    layer.routing = {.experts = blank(DType::i32, {1, kTopK}), .weights = blank(DType::f32, {1, kTopK})};
    layer.groups = {.offsets = blank(DType::i32, {kExperts + 1}),
                    .row_pair = blank(DType::i32, {kTopK}),
                    .pair_row = blank(DType::i32, {1, kTopK})};
    layer.hidden = blank(DType::f32, {kTopK, width});
    layer.expert_out = blank(DType::f32, {kTopK, kModel});
    layer.residual = residual;
    layer.next = {.weight = values({kModel}), .eps = 1e-6F, .out = blank(DType::f32, {1, kModel})};
    p.moe_ffn(layer);
    products(layer.next.out);
    return p;
  }

  // Attention over contexts of one range, of several and of none, and the product of its rows; `onward`: that is added
  // to a residual, one value of which is `size` times as large, and the sum goes on to experts.
  Program record_attention(std::int64_t n_tokens, std::int32_t live, Phase phase, std::int64_t n_heads = 8,
                           bool onward = false, float size = 1) {
    constexpr std::int64_t kLongPage = 64;
    constexpr std::int64_t kSequences = 3;
    const std::int32_t n_pages = phase == Phase::prefill ? 64 : 20;  // of each sequence: ranges of prompts are longer
    Program p;
    const Tensor alive = ints({1}, {live});
    std::vector<std::int32_t> seqs;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> pages;
    for (std::int64_t t = 0; t < n_tokens; ++t) {
      seqs.push_back(static_cast<std::int32_t>(t % (kSequences + 1)));  // the last one is none
      positions.push_back(static_cast<std::int32_t>(t * 37 % (n_pages * kLongPage)));
    }
    for (std::int64_t i = 0; i < kSequences * n_pages; ++i) pages.push_back(static_cast<std::int32_t>(i));
    const std::vector<std::int64_t> pool = {kSequences * n_pages, kLongPage, kKvHeads, d_head};
    const Tensor rows = blank(DType::f32, {n_tokens, n_heads * d_head});
    p.attention({.q = values({n_tokens, n_heads, d_head}),
                 .kv = {.k = encoded(DType::f16, pool),
                        .v = encoded(DType::f16, pool),
                        .pages = ints({kSequences, n_pages}, pages)},
                 .lengths = ints({kSequences}, {n_pages * static_cast<std::int32_t>(kLongPage), 700, 30}),
                 .seqs = ints({n_tokens}, seqs),
                 .positions = ints({n_tokens}, positions),
                 .live = alive,
                 .scale = 0.3F,
                 .phase = phase,
                 .out = dense(*rows.buffer, 0, DType::f32, {n_tokens, n_heads, d_head})});
    const std::int64_t n = onward ? kModel : 100;
    const Tensor product = blank(DType::f32, {n_tokens, n});
    p.matmul(
        {.x = rows, .w = weights(DType::q4_k, {n, n_heads * d_head}), .live = alive, .phase = phase, .out = product});
    if (!onward) return p;
    const Tensor residual = values({n_tokens, kModel});
    auto* first = reinterpret_cast<float*>(contents.back().data());
    first[kModel + 7] *= size;
    p.add({.a = residual, .b = product, .live = alive, .out = residual});
    add_experts(p, residual, alive);
    return p;
  }

  // Products of the same rows of a prompt.
  Program record_side_by_side(std::int64_t n_tokens, std::int32_t live, std::array<DType, 3> types) {
    constexpr std::array<std::int64_t, 3> kColumns = {1000, 130, 64};
    Program p;
    const Tensor alive = ints({1}, {live});
    const Tensor x = values({n_tokens, kModel});
    for (std::size_t i = 0; i < types.size(); ++i) {
      p.matmul({.x = x,
                .w = weights(types[i], kColumns[i]),
                .bias = i == 1 ? values({kColumns[i]}) : Tensor{},
                .live = alive,
                .phase = Phase::prefill,
                .out = blank(DType::f32, {n_tokens, kColumns[i]})});
    }
    return p;
  }

  // Tokens that are routed, and their pairs by expert.
  Program record_routes(std::int64_t n_tokens, std::int32_t live, std::int64_t n_experts, const RoutingRule& rule) {
    Program p;
    const Tensor alive = ints({1}, {live});
    const Routing routing{.experts = blank(DType::i32, {n_tokens, rule.top_k}),
                          .weights = blank(DType::f32, {n_tokens, rule.top_k}),
                          .no_finite = ints({1}, {5})};
    p.moe_route({.logits = values({n_tokens, n_experts}), .live = alive, .rule = rule, .out = routing});
    p.moe_group({.experts = routing.experts,
                 .live = alive,
                 .n_experts = n_experts,
                 .out = {.offsets = blank(DType::i32, {n_experts + 1}),
                         .row_pair = blank(DType::i32, {n_tokens * rule.top_k}),
                         .pair_row = blank(DType::i32, {n_tokens, rule.top_k})}});
    return p;
  }

  // Heads as products of a row give them, one value of which is `size` times as large, or as they are, and what they attend
  // to. `at`: the position of the first token of sequence `seq`; the others come before it, in two sequences. The page of
  // that token is in its table twice, and another one is not there.
  struct Heads {
    std::int64_t n_tokens = 1;
    std::int64_t n_heads = 16;
    std::int32_t seq = 1;
    std::int32_t at = 0;
    std::int64_t page = 64;
    std::int64_t context = 7040;
    bool products = true;
    float size = 1;
  };
  Program record_heads(const Heads& of) {
    const std::int64_t n = of.n_tokens;
    const std::int64_t table = of.context / of.page;
    Program p;
    const Tensor alive = ints({1}, {static_cast<std::int32_t>(n)});
    const Tensor x = values({n, kModel});
    reinterpret_cast<float*>(contents.back().data())[7] *= of.size;
    const auto rows = [&](std::int64_t heads) {
      const Tensor t = of.products ? blank(DType::f32, {n, heads * d_head}) : values({n, heads * d_head});
      if (of.products) p.matmul({.x = x, .w = weights(DType::q4_k, heads * d_head), .live = alive, .out = t});
      return dense(*t.buffer, 0, DType::f32, {n, heads, d_head});
    };
    const Tensor q = rows(of.n_heads);
    const Tensor k = rows(kKvHeads);
    const Tensor v = rows(kKvHeads);
    if (norms) {
      p.rms_norm({.x = q, .weight = values({d_head}), .live = alive, .eps = 1e-6F, .out = q});
      p.rms_norm({.x = k, .weight = values({d_head}), .live = alive, .eps = 1e-6F, .out = k});
    }
    std::vector<std::int32_t> seq_of;
    std::vector<std::int32_t> position_of;
    for (std::int32_t t = 0; t < n; ++t) {
      seq_of.push_back(t % 3 == 0 ? of.seq : 0);
      position_of.push_back(std::max(of.at - 5 * t, 0));
    }
    const Tensor positions = ints({n}, position_of);
    for (const Tensor& t : {q, k}) {
      p.rope({.x = t, .positions = positions, .live = alive, .n_rot = d_head, .style = style, .out = t});
    }
    std::vector<std::int32_t> pages;
    for (std::int64_t i = 0; i < 2 * table; ++i) pages.push_back(static_cast<std::int32_t>((i * 37 + 5) % (2 * table)));
    pages[static_cast<std::size_t>(table + 2)] = pages[static_cast<std::size_t>(table + of.at / of.page)];
    pages[static_cast<std::size_t>(table + 1)] = -1;
    const KvView kv{.k = encoded(DType::f16, {2 * table, of.page, kKvHeads, d_head}),
                    .v = encoded(DType::f16, {2 * table, of.page, kKvHeads, d_head}),
                    .pages = ints({2, table}, pages)};
    const Tensor seqs = ints({n}, seq_of);
    p.kv_write({.k = k, .v = v, .seqs = seqs, .positions = positions, .live = alive, .kv = kv});
    p.attention({.q = q,
                 .kv = kv,
                 .lengths = ints({2}, {3, of.at + 1}),
                 .seqs = seqs,
                 .positions = positions,
                 .live = alive,
                 .scale = 0.1F,
                 .out = blank(DType::f32, {n, of.n_heads, d_head})});
    return p;
  }

  void reset() {
    for (std::size_t i = 0; i < buffers.size(); ++i) device.upload(*buffers[i], 0, contents[i]);
  }
  std::vector<std::vector<std::byte>> state() {
    std::vector<std::vector<std::byte>> now = contents;
    for (std::size_t i = 0; i < buffers.size(); ++i) device.download(*buffers[i], 0, now[i]);
    return now;
  }
};

// `launches`: of what goes together, where that matters.
void expect_the_same_together(CudaDevice& device, Block& block, const Program& program,
                              std::optional<std::size_t> launches, std::int64_t n_tokens) {
  const auto bank = cuda::CudaBuffer::make(0, cuda::kBankBytes, device.stream());
  const std::size_t fused = cuda::fuse(program.ops(), device.target(), bank->data()).size();
  EXPECT_EQ(fused, launches.value_or(fused)) << n_tokens << " tokens";
  const auto executable = device.compile(program, {});
  Profile profile([](const std::string&) {});
  block.reset();
  executable->run(&profile);
  const auto one_by_one = block.state();
  for (const char* how : {"eager", "graph", "graph again"}) {
    block.reset();
    executable->run();
    EXPECT_TRUE(block.state() == one_by_one) << how << ", " << n_tokens << " tokens";
  }
  EXPECT_FALSE(one_by_one == block.contents);
}

TEST(CudaFusion, ExpertsTakeTheRowsThatTheNormLeaves) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  struct Kind {
    std::int64_t n_tokens;
    std::int32_t live;
    std::size_t launches;
  };
  // By pairs, in lists, with too many rows.
  for (const Kind& kind : {Kind{3, 3, 3}, Kind{50, 49, 3}, Kind{128, 100, 3}, Kind{129, 129, 1}}) {
    Block block{.device = device};
    const Program program = block.record_experts(kind.n_tokens, kind.live);
    expect_the_same_together(device, block, program, kind.launches, kind.n_tokens);
  }
}

TEST(CudaFusion, AttentionLeavesItsRowsToTheNextProduct) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  struct Kind {
    std::int64_t n_tokens;
    std::int32_t live;
    std::int64_t d_head;
    std::size_t launches;
    Phase phase = Phase::decode;
  };
  const bool hopper = device.target().capability >= 90;
  // Four heads of a block are one chunk, two, or none; or there are too many rows. Prompts have any number of them.
  for (const Kind& kind :
       {Kind{20, 20, 64, 2}, Kind{61, 50, 128, 2}, Kind{128, 128, 64, 2}, Kind{40, 40, 96, 0}, Kind{129, 129, 64, 0},
        Kind{2, 2, 64, 2, Phase::prefill}, Kind{20, 19, 128, 2, Phase::prefill}, Kind{300, 290, 64, 2, Phase::prefill},
        Kind{257, 257, 128, 2, Phase::prefill}, Kind{40, 40, 96, 0, Phase::prefill}}) {
    if (kind.phase == Phase::prefill && !hopper) continue;
    Block block{.device = device, .d_head = kind.d_head};
    const Program program = block.record_attention(kind.n_tokens, kind.live, kind.phase);
    expect_the_same_together(device, block, program, kind.launches, kind.n_tokens);
  }
}

TEST(CudaFusion, TheProductAfterAttentionIsAddedAndTheRouterNormsItsRows) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  if (device.target().capability < 90) GTEST_SKIP() << "skipped: the router norms rows on Hopper alone";
  struct Kind {
    std::int64_t n_tokens;
    std::int32_t live;
    std::int64_t n_heads;
    float size;
    std::size_t launches;
  };
  // By one row of a block and by two; with a sum of squares too large for f32, and an infinity; with too many rows for
  // the router, for the sum, and for all of it.
  for (const Kind& kind : {Kind{2, 2, 16, 1, 5}, Kind{6, 6, 16, 1, 5}, Kind{16, 15, 16, 1, 5}, Kind{15, 15, 32, 1, 5},
                           Kind{7, 7, 16, 1e25F, 5}, Kind{9, 9, 16, INFINITY, 5}, Kind{30, 30, 16, 1, 5},
                           Kind{50, 49, 16, 1, 5}, Kind{129, 129, 16, 1, 1}}) {
    Block block{.device = device, .d_head = 128};
    const Program program =
        block.record_attention(kind.n_tokens, kind.live, Phase::decode, kind.n_heads, true, kind.size);
    expect_the_same_together(device, block, program, kind.launches, kind.n_tokens);
  }
}

TEST(CudaFusion, ProductsOfAPromptGoSideBySide) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  if (device.target().capability < 90) GTEST_SKIP() << "skipped: a kernel of Hopper's";
  using enum DType;
  for (const std::array<DType, 3> types : {std::array{q4_k, q4_k, q4_k}, {q4_k, q4_k, q6_k}, {q6_k, q8_0, q8_0}}) {
    for (const std::int64_t n_tokens : {1, 7, 48, 49, 128, 300, 700}) {
      Block block{.device = device};
      const auto live = static_cast<std::int32_t>(n_tokens - n_tokens / 5);
      const Program program = block.record_side_by_side(n_tokens, live, types);
      expect_the_same_together(device, block, program, 1, n_tokens);
    }
  }
}

TEST(CudaFusion, RoutedTokensAreGroupedAtOnce) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  for (const std::string path : {"", "sm80"}) {
    CudaDevice device({.path = path});
    const bool clusters = device.target().capability >= 90;
    for (const std::int64_t n_tokens : {1, 8, 9, 16, 17, 63, 64, 65, 100, 128, 129, 600, 1025, 4096, 4100}) {
      const RoutingRule rules[] = {{.top_k = 8, .renormalize = true},
                                   {.top_k = 16},
                                   {.top_k = 17, .renormalize = true},
                                   {.top_k = 5, .score = Score::sigmoid, .n_groups = 4, .top_groups = 2}};
      for (const RoutingRule& rule : rules) {
        for (const std::int64_t n_experts : {20, 128, 1000}) {
          Block block{.device = device};
          const auto live = static_cast<std::int32_t>(n_tokens - n_tokens / 5);
          const Program program = block.record_routes(n_tokens, live, n_experts, rule);
          const std::size_t launches = n_tokens <= (clusters ? 128 : 16) || n_experts <= 512 ? 1 : 0;
          expect_the_same_together(device, block, program, launches, n_tokens);
        }
      }
    }
  }
}

TEST(CudaFusion, OpsInOneLaunchWriteWhatTheyWriteOneByOne) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  struct Kind {
    std::int64_t n_tokens;
    std::int32_t live;
    std::int64_t d_head;
    bool norms;
    DType cache;
    RopeStyle style;
    std::size_t launches;  // of what goes together
  };
  for (const Kind& kind :
       {Kind{1, 1, 64, true, DType::f16, RopeStyle::neox, 4}, Kind{4, 3, 64, true, DType::q8_0, RopeStyle::neox, 4},
        Kind{3, 3, 128, false, DType::bf16, RopeStyle::interleaved, 4},
        Kind{4, 4, 256, true, DType::f32, RopeStyle::interleaved, 4},
        Kind{5, 5, 64, true, DType::f16, RopeStyle::neox, 4}, Kind{9, 8, 64, true, DType::f16, RopeStyle::neox, 4},
        // A token's heads by blocks of four warps, of eight.
        Kind{32, 32, 128, true, DType::f16, RopeStyle::neox, 4},
        Kind{33, 33, 256, true, DType::f32, RopeStyle::interleaved, 4},
        Kind{64, 61, 128, true, DType::f16, RopeStyle::neox, 4},
        Kind{128, 128, 64, false, DType::f16, RopeStyle::neox, 4},
        // Too many rows for products.
        Kind{129, 128, 64, true, DType::f16, RopeStyle::neox, 2},
        Kind{300, 299, 128, true, DType::f16, RopeStyle::neox, 2},
        Kind{300, 300, 64, false, DType::bf16, RopeStyle::interleaved, 2},
        Kind{257, 200, 256, true, DType::f32, RopeStyle::neox, 2},
        Kind{600, 600, 64, true, DType::f16, RopeStyle::neox, 2},
        Kind{600, 600, 64, true, DType::q8_0, RopeStyle::neox, 2}}) {
    Block block{.device = device, .d_head = kind.d_head, .norms = kind.norms, .cache = kind.cache, .style = kind.style};
    const Program program = block.record(kind.n_tokens, kind.live);
    expect_the_same_together(device, block, program, kind.launches, kind.n_tokens);
  }
  for (const std::int64_t n_tokens : {1, 3, 8}) {
    Block block{.device = device, .halves = true};
    const Program program = block.record(n_tokens, static_cast<std::int32_t>(n_tokens));
    expect_the_same_together(device, block, program, 4, n_tokens);
  }
}

// Against the same ops one by one, whose kernels are others.
TEST(CudaFusion, OneTokenGoesThroughALayerInFiveLaunches) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  struct Kind {
    DType type;
    DType other;
    std::int64_t width;
    float size;  // of one value: where it is infinite or tiny, rows have no int8 form
  };
  for (const Kind& kind : {Kind{DType::q4_k, DType::q6_k, 768, 1}, Kind{DType::q6_k, DType::q4_k, 256, 1},
                           Kind{DType::q5_k, DType::q5_k, 512, 1}, Kind{DType::q4_k, DType::q4_k, 1024, 1e30F},
                           Kind{DType::q4_k, DType::q6_k, 768, INFINITY}}) {
    Block block{.device = device};
    const Program program = block.record_token(1, kind.type, kind.other, kind.width, kind.size);
    expect_the_same_together(device, block, program, 5, 1);
  }
  Block dead{.device = device};
  const Program program = dead.record_token(0, DType::q4_k, DType::q6_k, 768, 1);
  const auto executable = device.compile(program, {});
  dead.reset();
  executable->run();
  EXPECT_TRUE(dead.state() == dead.contents);
}

// Rules by which something else than the order of the logits chooses: the layer must not take the kernels that go by it.
TEST(CudaFusion, OneTokensExpertsAreThoseOfItsRule) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  struct Kind {
    RoutingRule rule;
    bool biased;
  };
  constexpr std::int64_t kTopK = Block::kTokenTopK;
  for (const Kind& kind : {Kind{{.top_k = kTopK, .score = Score::sigmoid, .renormalize = true}, true},
                           Kind{{.top_k = kTopK, .score = Score::sigmoid, .n_groups = 4, .top_groups = 2}, false},
                           Kind{{.top_k = kTopK, .renormalize = true, .n_groups = 4, .top_groups = 1}, false},
                           Kind{{.top_k = kTopK, .renormalize = true}, true}}) {
    Block block{.device = device};
    const Program program = block.record_token(1, DType::q4_k, DType::q6_k, 768, 1, kind.rule, kind.biased);
    expect_the_same_together(device, block, program, std::nullopt, 1);
  }
}

// One op where it is made for such heads, by a cluster over a short context; else attention goes by itself.
TEST(CudaFusion, AttentionTakesTheHeadsOfOneToken) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  struct Kind {
    std::int64_t d_head;
    std::int64_t n_heads;
    bool norms;
    RopeStyle style;
    bool together;
    float size = 1;
    std::int64_t page = 64;
  };
  for (const Kind& kind :
       {Kind{128, 16, true, RopeStyle::neox, true}, Kind{128, 10, false, RopeStyle::neox, true, 1, 128},
        Kind{128, 2, true, RopeStyle::neox, true, 1e30F}, Kind{128, 6, true, RopeStyle::neox, true, INFINITY},
        Kind{128, 16, true, RopeStyle::neox, false, 1, 16}, Kind{128, 18, true, RopeStyle::neox, false},
        Kind{128, 6, false, RopeStyle::interleaved, false}, Kind{64, 16, true, RopeStyle::neox, false}}) {
    for (const std::int32_t at : {0, 64, 511, 700, 2047, 2048, 4090, 7030}) {
      for (const std::int32_t seq : {1, 0, 7}) {
        if (seq != 1 && at != 700) continue;
        Block block{.device = device, .d_head = kind.d_head, .norms = kind.norms, .style = kind.style};
        const bool products = at != 64;
        const Program program = block.record_heads({.n_heads = kind.n_heads,
                                                    .seq = seq,
                                                    .at = at,
                                                    .page = kind.page,
                                                    .context = at < 2048    ? 2048
                                                               : at == 2048 ? 2176
                                                                            : 7040,
                                                    .products = products,
                                                    .size = kind.size});
        const std::size_t apart = kind.together && device.target().capability >= 90 ? 0 : 1;
        expect_the_same_together(device, block, program, (products ? 2 : 1) + apart, 1);
      }
    }
  }
}

// Over a context for which there are two launches: blocks have single units, whole ranges, or both, and
// some have a range more than others.
TEST(CudaFusion, AttentionOfALongContextTakesTheHeadsOfOneToken) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  if (device.target().capability < 90) GTEST_SKIP() << "skipped: a kernel of Hopper's";
  for (const std::int32_t at : {0, 130, 9000, 32767, 33030, 33791, 34500, 40959}) {
    for (const std::int32_t seq : {1, 0, 7}) {
      if (seq != 1 && at != 130) continue;
      Block block{.device = device, .d_head = 128};
      const Program program =
          block.record_heads({.n_heads = at == 130 ? 6 : 16, .seq = seq, .at = at, .context = 40960});
      expect_the_same_together(device, block, program, 2, 1);
    }
  }
}

// Of several tokens; over contexts for which there are other kernels.
TEST(CudaFusion, AttentionKnowsItsTokensBeforeTheirHeadsAreThere) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  for (const std::string path : {"", "sm80"}) {
    CudaDevice device({.path = path});
    for (const std::int64_t n_tokens : {1, 2, 7, 20, 100}) {
      for (const std::int64_t context : {2048, 12800}) {
        if (n_tokens == 1 && context == 2048) continue;
        Block block{.device = device, .d_head = 128};
        const Program program = block.record_heads({.n_tokens = n_tokens, .at = 1100, .context = context});
        const bool alone = n_tokens == 1 && device.target().capability >= 90;  // then heads and attention are one op
        expect_the_same_together(device, block, program, alone ? 2 : 3, n_tokens);
      }
    }
  }
}

}  // namespace
}  // namespace conclave::test
