// Routings that cases share: which experts a batch of tokens asks for, from kind to ill-mannered.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/case.h"

namespace conclave::test {

enum class Spread {
  even,          // distinct experts, all alike
  skewed,        // distinct experts, low ones preferred
  one_hot,       // everybody asks for the same expert first
  duplicates,    // any expert, also twice in one token
  some_invalid,  // ids below 0 and past the end among them
  all_invalid,
};

struct RoutingShape {
  std::string name;
  std::int64_t n_tokens = 1;
  std::int64_t top_k = 1;
  std::int64_t n_experts = 1;
  Spread spread = Spread::even;
  std::optional<std::int64_t> live;  // a device-side count, sensible or not
};

// The list every grouping op and every expert product goes through.
std::vector<RoutingShape> standard_routings();
RoutingShape random_routing(Rng& rng, std::int64_t max_tokens, std::int64_t max_experts);

std::vector<std::int32_t> make_ids(Rng& rng, const RoutingShape& shape);
Tensor ids_tensor(CaseBuilder& b, const RoutingShape& shape, const std::vector<std::int32_t>& ids);
Tensor live_tensor(CaseBuilder& b, const RoutingShape& shape);  // not defined() without a count

// The groups of `ids`, as inputs for a product.
struct GroupInputs {
  Tensor offsets;   // i32 [n_experts + 1]
  Tensor row_pair;  // i32 [n_pairs]
  Tensor pair_row;  // i32 [n_tokens, top_k]
};
GroupInputs group_inputs(CaseBuilder& b, const RoutingShape& shape, const std::vector<std::int32_t>& ids);

// The formats in the order cases cycle through them.
std::vector<DType> weight_formats();
DType random_float(Rng& rng);
// A width that whole blocks of the format fill, near `wish`.
std::int64_t width_for(DType type, std::int64_t wish);

}  // namespace conclave::test
