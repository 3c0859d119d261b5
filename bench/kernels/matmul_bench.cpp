// Dense products: attention projections, the output head, the router; and the embedding, which reads the same table.
#include <algorithm>
#include <set>

#include "bench/kernels/kinds.h"

namespace conclave::bench {
namespace {

constexpr std::int64_t kRows = 4;
constexpr std::int64_t kColumns = 32;
constexpr int kWindows = 3;
constexpr std::int64_t kMaxSlots = 1024;

BenchCase product_case(CaseMaker& maker, Order order) {
  const Tensor first = maker.layer(0).front();
  Matmul op{.x = maker.values({maker.n_tokens, first.dim(1)}),
            .order = order,
            .out = maker.blank(DType::f32, {maker.n_tokens, first.dim(0)})};
  BenchCase made;
  const double weight_bytes = static_cast<double>(row_bytes(first)) * static_cast<double>(row_count(first));
  const std::int64_t slots = maker.slots_for(weight_bytes, std::min(maker.n_layers(), kMaxSlots));
  for (std::int64_t i = 0; i < slots; ++i) {
    op.w = maker.layer(i).front();
    made.slots.emplace_back(op);
  }
  for (int i = 0; i < kWindows; ++i) {
    const Window rows = window(maker.n_tokens, kRows, maker.rng);
    const Window columns = window(first.dim(0), kColumns, maker.rng);
    Matmul sample = std::get<Matmul>(made.slots[0]);
    sample.x = slice(sample.x, 0, rows);
    sample.w = slice(sample.w, 0, columns);
    sample.out = slice(slice(sample.out, 0, rows), 1, columns);
    const double share = static_cast<double>(rows.count * columns.count) / static_cast<double>(element_count(op.out));
    made.samples.push_back({.op = sample, .share = share});
  }
  made.work = {.bytes = moved_bytes(made.slots[0]),
               .ops = product_ops(maker.n_tokens, first.dim(0), first.dim(1)),
               .in = dots_of(maker.key.format)};
  return maker.finish(std::move(made));
}

}  // namespace

BenchCase matmul_case(CaseMaker& maker) {
  return product_case(maker, Order::any);
}

BenchCase router_case(CaseMaker& maker) {
  return product_case(maker, Order::canonical);
}

BenchCase embed_case(CaseMaker& maker) {
  const Tensor table = maker.layer(0).front();
  const double row = static_cast<double>(row_bytes(table));
  BenchCase made;
  const Tensor out = maker.blank(DType::f32, {maker.n_tokens, maker.shape.d_model});
  std::set<std::int32_t> first_ids;
  const std::int64_t slots = maker.slots_for(row * static_cast<double>(maker.n_tokens), kMaxSlots);
  for (std::int64_t i = 0; i < slots; ++i) {
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < maker.n_tokens; ++t) {
      ids.push_back(static_cast<std::int32_t>(maker.rng.integer(0, maker.shape.n_vocab - 1)));
    }
    if (i == 0) first_ids.insert(ids.begin(), ids.end());
    made.slots.emplace_back(Embed{.ids = maker.ints({maker.n_tokens}, ids), .table = table, .out = out});
  }
  made.samples = {{.op = made.slots[0], .share = 1}};
  const double share = static_cast<double>(first_ids.size()) / static_cast<double>(table.dim(0));
  made.work = {.bytes = moved_bytes(made.slots[0], {{"table", share}})};
  return maker.finish(std::move(made));
}

}  // namespace conclave::bench
