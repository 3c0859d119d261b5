// attention for streams that decode and for a prompt, kv_write and rope. The cache is in memory of its own; runs take
// turns over its pages, so decode reads them from memory as a model with many layers does.
#include <algorithm>
#include <cmath>

#include "bench/kernels/kinds.h"
#include "bench/kernels/permutations.h"

namespace conclave::bench {
namespace {

constexpr std::int64_t kPageSize = 64;
constexpr std::int64_t kContext = 4096;
constexpr int kSampledTokens = 2;

std::int64_t page_bytes(const CaseMaker& maker) {
  return 2 *
         dense_bytes(maker.key.format, Dims{kPageSize, maker.shape.n_kv_heads, maker.shape.d_head});  // keys and values
}

KvView blank_cache(CaseMaker& maker, std::int64_t n_pages) {
  const Dims dims = {n_pages, kPageSize, maker.shape.n_kv_heads, maker.shape.d_head};
  return {.k = maker.blocks(maker.key.format, dims, 1), .v = maker.blocks(maker.key.format, dims, 1)};
}

// `n_seqs` sequences of `length` cached positions each; token t is at positions[t] of sequence seqs[t].
struct Batch {
  std::int64_t n_seqs = 1;
  std::int64_t length = 0;
  std::vector<std::int32_t> seqs;
  std::vector<std::int32_t> positions;
};

BenchCase attention_case(CaseMaker& maker, const Batch& batch) {
  const ModelShape& m = maker.shape;
  const std::int64_t pages_per_seq = (batch.length + kPageSize - 1) / kPageSize;
  const std::int64_t pages_per_run = batch.n_seqs * pages_per_seq;
  const std::int64_t slots =
      maker.slots_for(static_cast<double>(pages_per_run * page_bytes(maker)), std::int64_t{1} << 20);
  const std::int64_t n_pages = slots * pages_per_run;
  Attention op{
      .q = maker.values({maker.n_tokens, m.n_heads, m.d_head}),
      .kv = blank_cache(maker, n_pages),
      .lengths = maker.ints({batch.n_seqs}, std::vector<std::int32_t>(static_cast<std::size_t>(batch.n_seqs),
                                                                      static_cast<std::int32_t>(batch.length))),
      .seqs = maker.ints({maker.n_tokens}, batch.seqs),
      .positions = maker.ints({maker.n_tokens}, batch.positions),
      .scale = 1 / std::sqrt(static_cast<float>(m.d_head)),
      .out = maker.blank(DType::f32, {maker.n_tokens, m.n_heads, m.d_head})};
  // In a random order: the cache of a server that has run for a while.
  const Tensor tables = maker.ints({slots, batch.n_seqs, pages_per_seq}, shuffled(n_pages, maker.rng));
  BenchCase made;
  for (std::int64_t i = 0; i < slots; ++i) {
    op.kv.pages = select_outer(tables, i);
    made.slots.emplace_back(op);
  }
  double seen = 0;  // pairs of a token and a position
  for (const std::int32_t position : batch.positions) seen += position + 1;
  for (int i = 0; i < std::min<std::int64_t>(kSampledTokens, maker.n_tokens); ++i) {
    const Window token = i == 0 ? Window{maker.n_tokens - 1, 1} : window(maker.n_tokens, 1, maker.rng);
    Attention sample = std::get<Attention>(made.slots[0]);
    sample.q = slice(sample.q, 0, token);
    sample.seqs = slice(sample.seqs, 0, token);
    sample.positions = slice(sample.positions, 0, token);
    sample.out = slice(sample.out, 0, token);
    const double share = (batch.positions[static_cast<std::size_t>(token.first)] + 1) / seen;
    made.samples.push_back({.op = sample, .share = share});
  }
  const double cache_share =
      static_cast<double>(batch.n_seqs * batch.length) / static_cast<double>(n_pages * kPageSize);
  made.work = {.bytes = moved_bytes(made.slots[0], {{"k_pool", cache_share}, {"v_pool", cache_share}}),
               .ops = 4 * seen * static_cast<double>(m.n_heads * m.d_head)};
  return maker.finish(std::move(made));
}

}  // namespace

BenchCase attention_decode_case(CaseMaker& maker) {
  const auto n = static_cast<std::size_t>(maker.n_tokens);
  return attention_case(maker, {.n_seqs = maker.n_tokens,
                                .length = kContext,
                                .seqs = counting(maker.n_tokens),
                                .positions = std::vector<std::int32_t>(n, kContext - 1)});
}

BenchCase attention_prefill_case(CaseMaker& maker) {
  return attention_case(maker, {.n_seqs = 1,
                                .length = maker.n_tokens,
                                .seqs = std::vector<std::int32_t>(static_cast<std::size_t>(maker.n_tokens), 0),
                                .positions = counting(maker.n_tokens)});
}

BenchCase kv_write_case(CaseMaker& maker) {
  const ModelShape& m = maker.shape;
  const std::int64_t n_pages = (maker.n_tokens + kPageSize - 1) / kPageSize;
  KvWrite op{
      .k = maker.values({maker.n_tokens, m.n_kv_heads, m.d_head}),
      .v = maker.values({maker.n_tokens, m.n_kv_heads, m.d_head}),
      .seqs = maker.ints({maker.n_tokens}, std::vector<std::int32_t>(static_cast<std::size_t>(maker.n_tokens), 0)),
      .positions = maker.ints({maker.n_tokens}, counting(maker.n_tokens)),
      .kv = blank_cache(maker, n_pages)};
  op.kv.pages = maker.ints({1, n_pages}, shuffled(n_pages, maker.rng));
  // The tokens' places are written and not read: half of what is written in place.
  const double share = 0.5 * static_cast<double>(maker.n_tokens) / static_cast<double>(n_pages * kPageSize);
  return maker.finish({.slots = {op},
                       .samples = {{.op = op, .share = 1}},
                       .work = {.bytes = moved_bytes(op, {{"k_pool", share}, {"v_pool", share}})}});
}

BenchCase rope_case(CaseMaker& maker) {
  const Dims dims = {maker.n_tokens, maker.shape.n_heads, maker.shape.d_head};
  const Rope op{.x = maker.values(dims),
                .positions = maker.ints({maker.n_tokens}, counting(maker.n_tokens)),
                .n_rot = maker.shape.d_head,
                .base = 1e6F,
                .out = maker.blank(DType::f32, dims)};
  const Window tokens = window(maker.n_tokens, 64, maker.rng);
  Rope sample = op;
  sample.x = slice(op.x, 0, tokens);
  sample.positions = slice(op.positions, 0, tokens);
  sample.out = slice(op.out, 0, tokens);
  const double share = static_cast<double>(tokens.count) / static_cast<double>(maker.n_tokens);
  return maker.finish({.slots = {op}, .samples = {{.op = sample, .share = share}}, .work = {.bytes = moved_bytes(op)}});
}

}  // namespace conclave::bench
