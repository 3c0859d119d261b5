// The expert products one by one: moe_matmul, moe_gate_up, moe_down. Samples are single rows of one expert.
#include <map>

#include "bench/kernels/kinds.h"
#include "ops/host_access.h"

namespace conclave::bench {
namespace {

constexpr std::int64_t kColumns = 32;
constexpr int kRows = 4;

// A packed row, its pair and its expert.
struct PackedRow {
  Window row;
  std::int64_t pair = 0;
  Window expert;
};

PackedRow any_row(const ExpertGroups& groups, std::int64_t n_pairs, test::Rng& rng) {
  const Window row = window(n_pairs, 1, rng);
  std::int64_t expert = 0;
  while (load_i32(groups.offsets, {expert + 1}) <= row.first) ++expert;
  return {.row = row, .pair = load_i32(groups.row_pair, {row.first}), .expert = {.first = expert, .count = 1}};
}

// Groups of the routings of all variants, made once each.
class Groups {
 public:
  explicit Groups(CaseMaker& maker) : maker_(maker) {}
  const ExpertGroups& of(const CaseMaker::ExpertSlot& slot) {
    const auto found = made_.find(slot.variant);
    return found != made_.end() ? found->second : made_[slot.variant] = groups_of(maker_, slot.routing);
  }

 private:
  CaseMaker& maker_;
  std::map<std::int64_t, ExpertGroups> made_;
};

// Fills in what the three have in common: slots from op_of(slot, groups), samples from sample_of(first op, row, columns).
template <class OpOf, class SampleOf>
BenchCase expert_product(CaseMaker& maker, std::int64_t n, double ops_per_column,
                         const std::vector<std::string_view>& stacks, OpOf&& op_of, SampleOf&& sample_of) {
  const std::vector<CaseMaker::ExpertSlot> slots = maker.expert_slots();
  Groups groups(maker);
  BenchCase made{.distinct_experts = slots.front().routing.n_distinct(), .n_experts = maker.n_experts};
  for (const CaseMaker::ExpertSlot& slot : slots) made.slots.emplace_back(op_of(slot, groups.of(slot)));
  const std::int64_t n_pairs = maker.n_tokens * maker.shape.top_k;
  const auto rows = static_cast<double>(n_pairs);
  for (int i = 0; i < kRows; ++i) {
    const PackedRow row = any_row(groups.of(slots.front()), n_pairs, maker.rng);
    const Window columns = window(n, kColumns, maker.rng);
    made.samples.push_back({.op = sample_of(made.slots[0], row, columns),
                            .share = static_cast<double>(columns.count) / (rows * static_cast<double>(n))});
  }
  std::vector<Share> shares;
  shares.reserve(stacks.size());
  const double share = static_cast<double>(made.distinct_experts) / static_cast<double>(maker.n_experts);
  for (const std::string_view stack : stacks) shares.push_back({stack, share});
  made.work = {.bytes = moved_bytes(made.slots[0], shares),
               .ops = rows * static_cast<double>(n) * ops_per_column,
               .in = dots_of(maker.key.format)};
  return maker.finish(std::move(made));
}

}  // namespace

BenchCase moe_matmul_case(CaseMaker& maker) {
  const ModelShape& m = maker.shape;
  const Tensor x = maker.values({maker.n_tokens, 1, m.d_model});
  const Tensor out = maker.blank(DType::f32, {maker.n_tokens, m.top_k, m.d_ff});
  const Tensor one_row = maker.ints({2}, {0, 1});
  const Tensor one_pair = maker.ints({1}, {0});
  return expert_product(
      maker, m.d_ff, product_ops(1, 1, m.d_model), {"w"},
      [&](const CaseMaker::ExpertSlot& slot, const ExpertGroups& groups) {
        return MoeMatmul{.x = x,
                         .w = slot.weights[0],
                         .rows = GroupedRows{.offsets = groups.offsets, .row_pair = groups.row_pair},
                         .out = out};
      },
      [&](const Op& whole, const PackedRow& row, const Window& columns) {
        MoeMatmul op = std::get<MoeMatmul>(whole);
        const Window token{.first = row.pair / m.top_k, .count = 1};
        const Window slot{.first = row.pair % m.top_k, .count = 1};
        op.x = slice(op.x, 0, token);
        op.w = slice(slice(op.w, 0, row.expert), 1, columns);
        op.rows = GroupedRows{.offsets = one_row, .row_pair = one_pair};
        op.out = slice(slice(slice(op.out, 0, token), 1, slot), 2, columns);
        return op;
      });
}

BenchCase moe_gate_up_case(CaseMaker& maker) {
  const ModelShape& m = maker.shape;
  const Tensor x = maker.values({maker.n_tokens, m.d_model});
  const Tensor out = maker.blank(DType::f32, {maker.n_tokens * m.top_k, m.d_ff});
  const Tensor one_row = maker.ints({2}, {0, 1});
  const Tensor one_pair = maker.ints({1}, {0});
  return expert_product(
      maker, m.d_ff, 2 * product_ops(1, 1, m.d_model), {"gate", "up"},
      [&](const CaseMaker::ExpertSlot& slot, const ExpertGroups& groups) {
        return MoeGateUp{.x = x,
                         .gate = slot.weights[0],
                         .up = slot.weights[1],
                         .offsets = groups.offsets,
                         .row_pair = groups.row_pair,
                         .top_k = m.top_k,
                         .out = out};
      },
      [&](const Op& whole, const PackedRow& row, const Window& columns) {
        MoeGateUp op = std::get<MoeGateUp>(whole);
        op.x = slice(op.x, 0, {.first = row.pair / m.top_k, .count = 1});
        op.gate = slice(slice(op.gate, 0, row.expert), 1, columns);
        op.up = slice(slice(op.up, 0, row.expert), 1, columns);
        op.offsets = one_row;
        op.row_pair = one_pair;
        op.top_k = 1;
        op.out = slice(slice(op.out, 0, row.row), 1, columns);
        return op;
      });
}

BenchCase moe_down_case(CaseMaker& maker) {
  const ModelShape& m = maker.shape;
  const Tensor x = maker.values({maker.n_tokens * m.top_k, m.d_ff});
  const Tensor out = maker.blank(DType::f32, {maker.n_tokens * m.top_k, m.d_model});
  const Tensor one_row = maker.ints({2}, {0, 1});
  return expert_product(
      maker, m.d_model, product_ops(1, 1, m.d_ff), {"down"},
      [&](const CaseMaker::ExpertSlot& slot, const ExpertGroups& groups) {
        return MoeDown{.x = x, .down = slot.weights[0], .offsets = groups.offsets, .out = out};
      },
      [&](const Op& whole, const PackedRow& row, const Window& columns) {
        MoeDown op = std::get<MoeDown>(whole);
        op.x = slice(op.x, 0, row.row);
        op.down = slice(slice(op.down, 0, row.expert), 1, columns);
        op.offsets = one_row;
        op.out = slice(slice(op.out, 0, row.row), 1, columns);
        return op;
      });
}

}  // namespace conclave::bench
