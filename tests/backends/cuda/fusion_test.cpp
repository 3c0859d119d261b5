#include "backends/cuda/fusion.h"

#include <gtest/gtest.h>

#include <cstring>

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
  Tensor weights(DType type, const std::vector<std::int64_t>& dims) {
    std::vector<float> v(static_cast<std::size_t>(dense_bytes(DType::f32, dims) / 4));
    for (float& x : v) x = static_cast<float>(rng.normal());
    std::vector<std::byte> encoded(static_cast<std::size_t>(dense_bytes(type, dims)));
    encode(type, v, encoded);
    const Tensor stored = put(type, dims, encoded);
    device.upload(*buffers.back(), 0, encoded);
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
    p.matmul({.x = x, .w = weights(DType::q4_k, kHeads * d_head), .live = alive, .out = q});
    p.matmul({.x = x,
              .w = weights(DType::q4_k, kKvHeads * d_head),
              .bias = values({kKvHeads * d_head}),
              .live = alive,
              .out = k});
    p.matmul({.x = x, .w = weights(DType::q6_k, kKvHeads * d_head), .live = alive, .out = v});
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
    constexpr std::int64_t kExperts = 8;
    constexpr std::int64_t kTopK = 3;
    constexpr std::int64_t kWidth = 256;
    Program p;
    const Tensor residual = values({n_tokens, kModel});
    const Tensor alive = ints({1}, {live});
    const Tensor normed = blank(DType::f32, {n_tokens, kModel});
    const Tensor logits = blank(DType::f32, {n_tokens, kExperts});
    p.add({.a = residual, .b = values({n_tokens, kModel}), .live = alive, .out = residual});
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
    return p;
  }

  // From the heads of one token to what they attend to. `seq` and `at`: of the token; its page is there twice.
  Program record_attention(std::int32_t seq, std::int32_t at, std::int64_t n_heads) {
    constexpr std::int64_t kSlots = 16;
    constexpr std::int64_t kTable = 80;
    Program p;
    const Tensor q = values({1, n_heads, d_head});
    const Tensor k = values({1, kKvHeads, d_head});
    const Tensor alive = ints({1}, {1});
    if (norms) {
      p.rms_norm({.x = q, .weight = values({d_head}), .live = alive, .eps = 1e-6F, .out = q});
      p.rms_norm({.x = k, .weight = values({d_head}), .live = alive, .eps = 1e-6F, .out = k});
    }
    const Tensor positions = ints({1}, {at});
    for (const Tensor& t : {q, k}) {
      p.rope({.x = t, .positions = positions, .live = alive, .n_rot = d_head, .style = style, .out = t});
    }
    std::vector<std::int32_t> pages;
    for (std::int32_t i = 0; i < 2 * kTable; ++i) pages.push_back((i * 37 + 5) % (2 * kTable));
    pages[kTable + 2] = pages[static_cast<std::size_t>(kTable + at / kSlots)];
    pages[kTable + 1] = -1;
    const KvView kv{.k = weights(DType::f16, {2 * kTable, kSlots, kKvHeads, d_head}),
                    .v = weights(DType::f16, {2 * kTable, kSlots, kKvHeads, d_head}),
                    .pages = ints({2, kTable}, pages)};
    const Tensor seqs = ints({1}, {seq});
    p.kv_write(
        {.k = k, .v = values({1, kKvHeads, d_head}), .seqs = seqs, .positions = positions, .live = alive, .kv = kv});
    p.attention({.q = q,
                 .kv = kv,
                 .lengths = ints({2}, {3, at + 1}),
                 .seqs = seqs,
                 .positions = positions,
                 .live = alive,
                 .scale = 0.1F,
                 .out = blank(DType::f32, {1, n_heads, d_head})});
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

void expect_the_same_together(CudaDevice& device, Block& block, const Program& program, std::size_t launches,
                              std::int64_t n_tokens) {
  const auto bank = cuda::CudaBuffer::make(0, cuda::kBankBytes, device.stream());
  EXPECT_EQ(cuda::fuse(program.ops(), device.target(), bank->data()).size(), launches) << n_tokens << " tokens";
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
}

// One launch where blocks form clusters; else attention goes by itself.
TEST(CudaFusion, AttentionTakesTheHeadsOfOneToken) {
  if (const std::string absence = cuda_absence(); !absence.empty()) GTEST_SKIP() << "skipped: " << absence;
  CudaDevice device;
  struct Kind {
    std::int64_t d_head;
    std::int64_t n_heads;
    bool norms;
    RopeStyle style;
  };
  for (const Kind& kind : {Kind{128, 16, true, RopeStyle::neox}, Kind{64, 32, true, RopeStyle::interleaved},
                           Kind{256, 2, false, RopeStyle::neox}, Kind{128, 6, false, RopeStyle::interleaved}}) {
    for (const std::int32_t at : {0, 31, 63, 64, 700, 1200}) {
      for (const std::int32_t seq : {1, 7}) {
        Block block{.device = device, .d_head = kind.d_head, .norms = kind.norms, .style = kind.style};
        const Program program = block.record_attention(seq, at, kind.n_heads);
        const auto fused = cuda::fuse(program.ops(), device.target(), nullptr);
        ASSERT_EQ(fused.size(), 1U);
        EXPECT_EQ(fused[0].count, program.ops().size() - (device.target().capability >= 90 ? 0 : 1));
        expect_the_same_together(device, block, program, 1, 1);
      }
    }
  }
}

}  // namespace
}  // namespace conclave::test
