#include "support/cases/routings.h"

#include <algorithm>

#include "ops/check.h"
#include "ops/moe_group.h"

namespace conclave::test {
namespace {

bool taken(const std::vector<std::int32_t>& ids, std::size_t first, std::int64_t id) {
  return std::find(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end(), id) != ids.end();
}

std::int64_t draw(Rng& rng, const RoutingShape& shape) {
  const std::int64_t last = shape.n_experts - 1;
  if (shape.spread == Spread::skewed)
    return std::min({rng.integer(0, last), rng.integer(0, last), rng.integer(0, last)});
  return rng.integer(0, last);
}

}  // namespace

std::vector<RoutingShape> standard_routings() {
  using enum Spread;
  return {
      {"no tokens", 0, 2, 4, even, {}},
      {"one token", 1, 2, 4, even, {}},
      {"two tokens", 2, 2, 5, even, {}},
      {"one expert", 5, 1, 1, even, {}},
      {"top_k = n_experts", 7, 6, 6, even, {}},
      {"top_k = 1", 9, 1, 8, even, {}},
      {"odd", 13, 3, 7, even, {}},
      {"experts without rows", 3, 2, 33, even, {}},
      {"many experts", 6, 8, 128, even, {}},
      {"257 experts", 4, 8, 257, even, {}},
      {"15 rows", 15, 1, 3, one_hot, {}},
      {"16 rows", 16, 1, 3, one_hot, {}},
      {"17 rows", 17, 1, 3, one_hot, {}},
      {"31 rows", 31, 2, 4, one_hot, {}},
      {"33 rows", 33, 2, 4, one_hot, {}},
      {"63 rows", 63, 1, 2, one_hot, {}},
      {"65 rows", 65, 1, 2, one_hot, {}},
      {"skewed", 40, 4, 16, skewed, {}},
      {"all on one expert", 20, 1, 8, one_hot, {}},
      {"duplicates", 12, 4, 5, duplicates, {}},
      {"some invalid ids", 11, 3, 6, some_invalid, {}},
      {"nothing but invalid ids", 5, 2, 6, all_invalid, {}},
      {"live 4 of 9", 9, 2, 6, even, 4},
      {"live 0", 6, 2, 6, even, 0},
      {"live past the end", 6, 2, 6, even, 99},
      {"live negative", 6, 2, 6, even, -3},
      {"large", 200, 2, 8, skewed, {}},
  };
}

RoutingShape random_routing(Rng& rng, std::int64_t max_tokens, std::int64_t max_experts) {
  RoutingShape shape{.name = "random"};
  shape.n_tokens = rng.chance(0.05) ? 0 : rng.integer(1, max_tokens);
  shape.n_experts = rng.integer(1, max_experts);
  shape.top_k = rng.integer(1, std::min<std::int64_t>(shape.n_experts, 8));
  shape.spread = static_cast<Spread>(rng.integer(0, 5));
  if (rng.chance(0.3)) shape.live = rng.integer(-1, shape.n_tokens + 2);
  return shape;
}

std::vector<std::int32_t> make_ids(Rng& rng, const RoutingShape& shape) {
  std::vector<std::int32_t> ids;
  for (std::int64_t t = 0; t < shape.n_tokens; ++t) {
    const std::size_t first = ids.size();
    for (std::int64_t s = 0; s < shape.top_k; ++s) {
      std::int64_t id = draw(rng, shape);
      switch (shape.spread) {
        case Spread::one_hot:
          if (s == 0) id = shape.n_experts / 2;
          [[fallthrough]];
        case Spread::even:
        case Spread::skewed:
          while (taken(ids, first, id)) id = (id + 1) % shape.n_experts;
          break;
        case Spread::duplicates:
          break;
        case Spread::some_invalid:
          if (rng.chance(0.3)) id = rng.pick(std::vector<std::int64_t>{-1, shape.n_experts, INT32_MIN, INT32_MAX});
          break;
        case Spread::all_invalid:
          id = rng.pick(std::vector<std::int64_t>{-1, shape.n_experts, -77});
          break;
      }
      ids.push_back(static_cast<std::int32_t>(id));
    }
  }
  return ids;
}

Tensor ids_tensor(CaseBuilder& b, const RoutingShape& shape, const std::vector<std::int32_t>& ids) {
  return b.ints(DType::i32, {shape.n_tokens, shape.top_k}, ids);
}

Tensor live_tensor(CaseBuilder& b, const RoutingShape& shape) {
  return shape.live ? b.live(*shape.live) : Tensor{};
}

GroupInputs group_inputs(CaseBuilder& b, const RoutingShape& shape, const std::vector<std::int32_t>& ids) {
  const std::int64_t n_pairs = shape.n_tokens * shape.top_k;
  const std::int64_t n_live = std::clamp<std::int64_t>(shape.live.value_or(shape.n_tokens), 0, shape.n_tokens);
  std::vector<std::int32_t> offsets;
  std::vector<std::int32_t> row_pair;
  std::vector<std::int32_t> pair_row(static_cast<std::size_t>(n_pairs), -1);
  for (std::int64_t e = 0; e < shape.n_experts; ++e) {
    offsets.push_back(static_cast<std::int32_t>(row_pair.size()));
    for (std::int64_t pair = 0; pair < n_live * shape.top_k; ++pair) {
      if (ids[static_cast<std::size_t>(pair)] != e) continue;
      pair_row[static_cast<std::size_t>(pair)] = static_cast<std::int32_t>(row_pair.size());
      row_pair.push_back(static_cast<std::int32_t>(pair));
    }
  }
  offsets.push_back(static_cast<std::int32_t>(row_pair.size()));
  row_pair.resize(static_cast<std::size_t>(n_pairs), -1);
  return {.offsets = b.ints(DType::i32, {shape.n_experts + 1}, offsets),
          .row_pair = b.ints(DType::i32, {n_pairs}, row_pair),
          .pair_row = b.ints(DType::i32, {shape.n_tokens, shape.top_k}, pair_row)};
}

std::vector<DType> weight_formats() {
  return {std::begin(kWeight), std::end(kWeight)};
}

DType random_float(Rng& rng) {
  return rng.pick(kFloat);
}

std::int64_t width_for(DType type, std::int64_t wish) {
  const std::int64_t per_block = dtype_info(type).per_block;
  return std::max<std::int64_t>(1, (wish + per_block - 1) / per_block) * per_block;
}

}  // namespace conclave::test
