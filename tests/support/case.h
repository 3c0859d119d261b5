// Case: one op with its tensors filled, ready to be run on any device. CaseBuilder: how cases are made.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/op.h"
#include "support/rng.h"

namespace conclave::test {

// The same values can be laid out in two ways: dense, or at odd offsets with padding between rows.
enum class Layout { dense, padded };

struct Case {
  std::string name;
  Op op;
  std::vector<std::shared_ptr<HostBuffer>> buffers;
};

using Dims = std::vector<std::int64_t>;

class CaseBuilder {
 public:
  CaseBuilder(std::uint64_t seed, Layout layout) : rng(seed), layout_rng_(seed ^ 0x5DEECE66DU), layout_(layout) {}

  Rng rng;

  // Activations: normal, times `scale`.
  Tensor values(DType type, const Dims& dims, double scale = 1);
  // Weights of any type, near a standard deviation of 0.1: random bits in every field but the scales.
  Tensor weights(DType type, const Dims& dims);
  Tensor integers(const Dims& dims, std::int64_t low, std::int64_t high);
  Tensor floats(DType type, const Dims& dims, const std::vector<float>& content);
  Tensor ints(DType type, const Dims& dims, const std::vector<std::int32_t>& content);
  // Poison, for the op to write.
  Tensor output(DType type, const Dims& dims);
  // An i32 [1] that says how many rows are live.
  Tensor live(std::int64_t count) { return ints(DType::i32, {1}, {static_cast<std::int32_t>(count)}); }

  // The op's tensors so far become the case's.
  Case finish(std::string name, const Op& op) { return {std::move(name), op, std::move(buffers_)}; }

 private:
  Tensor allocate(DType type, const Dims& dims);

  Rng layout_rng_;
  Layout layout_;
  std::vector<std::shared_ptr<HostBuffer>> buffers_;
};

// A case that can be built in either layout, with the same values each time.
struct CaseSpec {
  std::string name;
  std::uint64_t seed = 0;
  bool small = false;  // in the short list that slow checkers (sanitizers, emulators) run
  std::function<Op(CaseBuilder&)> build;

  Case make(Layout layout) const {
    CaseBuilder builder(seed, layout);
    const Op op = build(builder);
    return builder.finish(name, op);
  }
};

// Collects the listed cases of one op; the seed of each follows from its name.
class CaseList {
 public:
  explicit CaseList(std::string_view op) : op_(op) {}
  void add(std::string name, std::function<Op(CaseBuilder&)> build);
  // The same, in the short list too.
  void add_small(std::string name, std::function<Op(CaseBuilder&)> build);
  std::vector<CaseSpec> take() { return std::move(specs_); }

 private:
  std::string_view op_;
  std::vector<CaseSpec> specs_;
};

// All that is known of one op's cases.
struct OpCases {
  std::string_view op;
  std::vector<CaseSpec> (*list)();
  Op (*random)(CaseBuilder&);  // one random shape and mode
};
std::span<const OpCases> all_op_cases();
CaseSpec random_spec(const OpCases& cases, std::uint64_t seed, std::int64_t index);

// Element and row access for tests, on host tensors: every element as 32 bits (floats and blocks decoded to f32,
// integers as they are), dense, with each type's poison shown as kPoisonF32 or kPoisonInt.
std::vector<std::uint32_t> dense_bits(const Tensor& t);

}  // namespace conclave::test
