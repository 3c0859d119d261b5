// Which rows a benchmark has: kinds of work, times models, formats, token counts and skews, as far as they were asked
// for.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/kernels/model_shapes.h"
#include "bench/kernels/skewed_routing.h"
#include "tensor/dtype.h"

namespace conclave::bench {

using Dims = std::vector<std::int64_t>;

struct BenchCase;
class CaseMaker;

enum class Formats {
  weights,  // any weight type
  cache,    // the types of a KV cache
  f32,      // nothing to choose
};

// One thing that is measured: an op, or one of its uses.
struct Kind {
  std::string_view op;
  std::string_view part;  // which use; empty where there is one
  Formats formats = Formats::f32;
  bool skews = false;  // measured under every skew
  std::int64_t fewest = 1;
  std::int64_t most = 1 << 20;           // tokens
  std::span<const std::int64_t> tokens;  // of the short list
  // Shapes of a layer's weights in the row's format, the experts' stacks first; null where there are none. An empty list
  // where the model has none.
  std::vector<Dims> (*weights)(const ModelShape& model, std::int64_t n_experts) = nullptr;
  BenchCase (*make)(CaseMaker& maker) = nullptr;
};
std::span<const Kind> all_kinds();

struct RowKey {
  const Kind* kind = nullptr;
  const ModelShape* model = nullptr;
  DType format = DType::f32;
  std::int64_t n_tokens = 1;
  Skew skew = Skew::uniform;

  std::string title() const;  // "moe_ffn qwen3-30b-a3b q4_k 8 tokens"
};

// What was asked for. An empty list leaves the choice to the short list: every op for the main model, moe_ffn for the
// others.
struct RowFilter {
  std::vector<std::string> ops;
  std::vector<std::string> models;
  std::vector<std::string> formats;
  std::vector<std::string> tokens;
  std::vector<std::string> skews;
  bool all = false;  // the whole product instead of the short list
};

// Throws an Error that names the first name or number that is none, and where nothing is left.
std::vector<RowKey> plan_rows(const RowFilter& filter);

// The row of one kind; both must exist.
RowKey row_of(std::string_view op, std::string_view model, DType format, std::int64_t n_tokens);

// "a,b,c" as given to an option, maybe several times: empty parts are dropped.
std::vector<std::string> split_lists(const std::vector<std::string>& lists);

}  // namespace conclave::bench
