// Cases of the ops that turn a routing into lists: moe_group, moe_pairs_by_token, moe_expert_ids, moe_align_blocks,
// moe_routing_upload.
#include "base/fail.h"
#include "support/cases/op_cases.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

Op group(CaseBuilder& b, const RoutingShape& shape) {
  const Tensor experts = ids_tensor(b, shape, make_ids(b.rng, shape));
  return MoeGroup{.experts = experts,
                  .live = live_tensor(b, shape),
                  .n_experts = shape.n_experts,
                  .out = {.offsets = b.output(DType::i32, {shape.n_experts + 1}),
                          .row_pair = b.output(DType::i32, {shape.n_tokens * shape.top_k}),
                          .pair_row = b.output(DType::i32, {shape.n_tokens, shape.top_k})}};
}

Op pairs_by_token(CaseBuilder& b, const RoutingShape& shape) {
  const Tensor experts = ids_tensor(b, shape, make_ids(b.rng, shape));
  return MoePairsByToken{.experts = experts,
                         .live = live_tensor(b, shape),
                         .n_experts = shape.n_experts,
                         .packed_row = b.output(DType::i32, {shape.n_tokens, shape.top_k}),
                         .row_token = b.output(DType::i32, {shape.n_tokens * shape.top_k}),
                         .offsets = b.output(DType::i32, {shape.n_experts + 1})};
}

struct ExpertIdsShape {
  std::int64_t nr0 = 4;
  std::int64_t nr1 = 8;
  std::int64_t d_ff = 100;
  std::int64_t d_model = 64;
  std::int64_t spare = 0;  // row_stride beyond what is needed
};

Op expert_ids(CaseBuilder& b, const RoutingShape& shape, const ExpertIdsShape& plan) {
  const Tensor experts = ids_tensor(b, shape, make_ids(b.rng, shape));
  return MoeExpertIds{.experts = experts,
                      .live = live_tensor(b, shape),
                      .n_experts = shape.n_experts,
                      .nr0 = plan.nr0,
                      .nr1 = plan.nr1,
                      .d_ff = plan.d_ff,
                      .d_model = plan.d_model,
                      .ids = b.output(DType::i32, {shape.n_experts, shape.n_tokens * shape.top_k + plan.spare}),
                      .tpe = b.output(DType::i32, {shape.n_experts}),
                      .max_rows = b.output(DType::i32, {1}),
                      .grid_gate_up = b.output(DType::u32, {3}),
                      .grid_down = b.output(DType::u32, {3})};
}

Op align_blocks(CaseBuilder& b, const RoutingShape& shape, std::int64_t block_size, RowIds ids, std::int64_t spare) {
  const Tensor experts = ids_tensor(b, shape, make_ids(b.rng, shape));
  const std::int64_t blocks = worst_case_blocks(shape.n_tokens * shape.top_k, shape.n_experts, block_size);
  return MoeAlignBlocks{.experts = experts,
                        .live = live_tensor(b, shape),
                        .n_experts = shape.n_experts,
                        .block_size = block_size,
                        .ids = ids,
                        .out = {.sorted_ids = b.output(DType::i32, {blocks * block_size + spare}),
                                .block_expert = b.output(DType::i32, {blocks + spare}),
                                .n_padded = b.output(DType::i32, {1})}};
}

Op upload_routing(CaseBuilder& b, const RoutingShape& shape) {
  const Dims dims = {shape.n_tokens, shape.top_k};
  return MoeRoutingUpload{
      .from = {.experts = ids_tensor(b, shape, make_ids(b.rng, shape)), .weights = b.values(DType::f32, dims)},
      .to = {.experts = b.output(DType::i32, dims), .weights = b.output(DType::f32, dims)}};
}

Op upload_blocks(CaseBuilder& b, std::int64_t blocks, std::int64_t block_size, std::int64_t spare) {
  const std::int64_t capacity = blocks * block_size;
  const std::int64_t n_pairs = capacity;
  return MoeRoutingUpload{.from_blocks = {.sorted_ids = b.integers({capacity}, 0, n_pairs),
                                          .block_expert = b.integers({blocks}, -1, 7),
                                          .n_padded = b.integers({1}, capacity / 2, capacity)},
                          .to_blocks = {.sorted_ids = b.output(DType::i32, {capacity + spare}),
                                        .block_expert = b.output(DType::i32, {blocks + spare}),
                                        .n_padded = b.output(DType::i32, {1})},
                          .n_pairs = n_pairs};
}

}  // namespace

std::vector<CaseSpec> moe_group_cases() {
  CaseList list("moe_group");
  for (const RoutingShape& shape : standard_routings()) {
    list.add_small(shape.name, [shape](CaseBuilder& b) { return group(b, shape); });
  }
  for (const std::int64_t n : {31, 33, 60, 72, 128, 160, 257, 384, 512, 896, 1024}) {
    const RoutingShape shape{.n_tokens = 9, .top_k = 4, .n_experts = n, .spread = Spread::skewed};
    list.add(fmt::format("{} experts, skewed", n), [shape](CaseBuilder& b) { return group(b, shape); });
  }
  return list.take();
}

std::vector<CaseSpec> moe_pairs_by_token_cases() {
  CaseList list("moe_pairs_by_token");
  for (const RoutingShape& shape : standard_routings()) {
    list.add_small(shape.name, [shape](CaseBuilder& b) { return pairs_by_token(b, shape); });
  }
  for (const std::int64_t n : {60, 257, 1024}) {
    const RoutingShape shape{.n_tokens = 9, .top_k = 4, .n_experts = n, .spread = Spread::duplicates};
    list.add(fmt::format("{} experts, duplicates", n), [shape](CaseBuilder& b) { return pairs_by_token(b, shape); });
  }
  return list.take();
}

std::vector<CaseSpec> moe_expert_ids_cases() {
  CaseList list("moe_expert_ids");
  for (const RoutingShape& shape : standard_routings()) {
    list.add_small(shape.name, [shape](CaseBuilder& b) { return expert_ids(b, shape, {}); });
  }
  const RoutingShape shape{.n_tokens = 21, .top_k = 2, .n_experts = 5, .spread = Spread::skewed};
  int i = 0;
  for (const ExpertIdsShape& plan : {ExpertIdsShape{1, 1, 1, 1, 0}, ExpertIdsShape{64, 32, 768, 2048, 0},
                                     ExpertIdsShape{64, 32, 769, 2047, 0}, ExpertIdsShape{128, 1, 127, 129, 7},
                                     ExpertIdsShape{3, 7, 100, 200, 50}, ExpertIdsShape{32, 64, 2048, 768, 1}}) {
    list.add(fmt::format("plan {}", i++), [=](CaseBuilder& b) { return expert_ids(b, shape, plan); });
  }
  return list.take();
}

std::vector<CaseSpec> moe_align_blocks_cases() {
  CaseList list("moe_align_blocks");
  for (const RoutingShape& shape : standard_routings()) {
    for (const RowIds ids : {RowIds::packed, RowIds::pair}) {
      list.add_small(fmt::format("{}, {} ids", shape.name, name(ids)),
                     [=](CaseBuilder& b) { return align_blocks(b, shape, 4, ids, 0); });
    }
  }
  for (const std::int64_t block_size : {1, 2, 3, 16, 17, 64, 100, 255, 256}) {
    const RoutingShape shape{.n_tokens = 19, .top_k = 2, .n_experts = 6, .spread = Spread::skewed};
    list.add(fmt::format("block size {}", block_size),
             [=](CaseBuilder& b) { return align_blocks(b, shape, block_size, RowIds::packed, block_size % 2 * 5); });
  }
  return list.take();
}

std::vector<CaseSpec> moe_routing_upload_cases() {
  CaseList list("moe_routing_upload");
  for (const RoutingShape& shape : standard_routings()) {
    if (shape.live) continue;
    list.add_small(shape.name, [shape](CaseBuilder& b) { return upload_routing(b, shape); });
  }
  for (const std::int64_t block_size : {1, 4, 16, 100, 256}) {
    for (const std::int64_t blocks : {0, 1, 5}) {
      list.add(fmt::format("{} blocks of {}", blocks, block_size),
               [=](CaseBuilder& b) { return upload_blocks(b, blocks, block_size, blocks * 3 % 4); });
    }
  }
  return list.take();
}

Op random_moe_group(CaseBuilder& b) {
  return group(b, random_routing(b.rng, 60, 70));
}
Op random_moe_pairs_by_token(CaseBuilder& b) {
  return pairs_by_token(b, random_routing(b.rng, 60, 70));
}
Op random_moe_expert_ids(CaseBuilder& b) {
  const RoutingShape shape = random_routing(b.rng, 30, 30);
  return expert_ids(b, shape,
                    {b.rng.integer(1, 64), b.rng.integer(1, 64), b.rng.integer(1, 3000), b.rng.integer(1, 3000),
                     b.rng.integer(0, 9)});
}
Op random_moe_align_blocks(CaseBuilder& b) {
  const RoutingShape shape = random_routing(b.rng, 40, 40);
  const std::int64_t block_size = b.rng.chance(0.5) ? b.rng.integer(1, 20) : b.rng.integer(1, 256);
  return align_blocks(b, shape, block_size, b.rng.chance(0.5) ? RowIds::packed : RowIds::pair, b.rng.integer(0, 10));
}
Op random_moe_routing_upload(CaseBuilder& b) {
  if (b.rng.chance(0.5)) return upload_routing(b, random_routing(b.rng, 30, 30));
  return upload_blocks(b, b.rng.integer(0, 9), b.rng.integer(1, 40), b.rng.integer(0, 9));
}

}  // namespace conclave::test
