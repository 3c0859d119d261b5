// A case: one op at one shape, as many times as it takes for its weights to come from memory, with samples to check it
// by and the work it is. CaseMaker: how cases are made.
#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

#include "bench/kernels/bound.h"
#include "bench/kernels/check.h"
#include "bench/kernels/row_plan.h"
#include "bench/kernels/skewed_routing.h"
#include "bench/kernels/weight_pile.h"
#include "support/rng.h"

namespace conclave::bench {

struct BenchCase {
  std::vector<Op> slots;        // run in turn
  std::vector<Sample> samples;  // of slots[0]
  Work work;                    // of one run: the same for every slot
  std::int64_t distinct_experts = 0;
  std::int64_t n_experts = 0;  // in memory; 0 where the op has none
  std::vector<std::shared_ptr<HostBuffer>> buffers;
};

// How often consecutive runs may not meet the same weights.
struct RotationRule {
  std::int64_t bytes = 0;         // that must lie between two uses of a weight
  std::int64_t memory_limit = 0;  // for the weights of one case
};
// Four times the last-level cache, and never below 256 MiB.
RotationRule rotation_rule(std::int64_t memory_limit);

// How many of the model's experts fit into the limit: at least top_k, else an Error.
std::int64_t experts_in_memory(const RowKey& key, std::int64_t memory_limit);
// Bytes of one layer's weights, as they lie in the pile; 0 where the op has none of the row's format.
std::int64_t layer_bytes(const RowKey& key, std::int64_t memory_limit);
// What a pile must have for this row.
std::int64_t pile_bytes(const RowKey& key, const RotationRule& rule);

class CaseMaker {
 public:
  CaseMaker(const RowKey& key, const WeightPile* pile, const RotationRule& rule);

  const RowKey key;
  const ModelShape& shape;
  const std::int64_t n_tokens;
  const std::int64_t n_experts;
  test::Rng rng;

  Tensor values(const Dims& dims, double size = 1);  // f32
  Tensor floats(const Dims& dims, const std::vector<float>& content);
  Tensor ints(const Dims& dims, const std::vector<std::int32_t>& content);
  Tensor blocks(DType type, const Dims& dims, double size);  // random, in memory of their own
  Tensor blank(DType type, const Dims& dims);                // zeros

  std::int64_t n_layers() const;
  // The weights of one layer, in the order of the kind's list.
  std::vector<Tensor> layer(std::int64_t i) const;
  // How many runs it takes to read past the rotation's bytes where each reads this many; at least 1, at most `most`.
  std::int64_t slots_for(double bytes_per_run, std::int64_t most) const;

  // One run after another over the experts of one layer after another.
  struct ExpertSlot {
    DrawnRouting routing;
    std::int64_t variant = 0;  // of the routing: slots of one variant share what is made of it
    std::vector<Tensor> weights;
  };
  std::vector<ExpertSlot> expert_slots();

  // The case with this maker's buffers.
  BenchCase finish(BenchCase made);

 private:
  const WeightPile* pile_;
  RotationRule rule_;
  std::vector<std::shared_ptr<HostBuffer>> buffers_;
};

// Bytes that an op moves once: of the named tensors only the given share, scratch not at all, what is added to twice.
struct Share {
  std::string_view name;
  double share;
};
double moved_bytes(const Op& op, const std::vector<Share>& shares = {});

// Windows to sample: about `count` of `n` from a random place on.
struct Window {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
Window window(std::int64_t n, std::int64_t count, test::Rng& rng);
Tensor slice(const Tensor& t, int dim, const Window& w);

}  // namespace conclave::bench
