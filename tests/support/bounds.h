// Derived tolerances: how far a backend's result may lie from the reference's, element by element, from the sizes, the
// magnitudes of what was summed, and the rounding of each operand; and how much noise the rounding of activations is to
// be expected to make. Nothing here is tuned.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"
#include "support/compare.h"

namespace conclave::test {

// How a backend computes.
struct Arithmetic {
  // Relative rounding of one step of a sum or of a function: 2^-24 for f32. The reference sums in f64; a little slack
  // over 2^-53 covers the library functions.
  double unit = 0x1p-24;
  // Rounding of an activation before a product, relative to the largest of its row: 0 where it is used as it is, 2^-9
  // for bf16, 1/254 for int8 blocks. Products with block weights have it.
  double activation = 0;
  // Whether the others have it too: products with f32, f16 and bf16 weights, and attention's with any cache.
  bool rounds_for_plain_weights = false;
  // Attention over a cache of f16 alone, relative: rounding of a query before its product with keys, and of a softmax
  // weight before its product with values. 0 where they are used as they are.
  double query = 0;
  double softmax_weight = 0;
  // Prefill alone, where it has an arithmetic of its own: rounding of the scale, of the minimum and of the decoded weight
  // of a block format before its product, each relative to itself; rounding of a query.
  double prefill_weight = 0;
  double prefill_query = 0;
  // Ceiling on the normalised mean squared error: 1e-6 on f32 paths, 5e-4 with rounded activations. Storing an output
  // as bf16 alone costs up to 2^-16 / 3, so outputs of 16 bits get that much more.
  double nmse = 1e-6;
};
inline constexpr Arithmetic kReferenceArithmetic{.unit = 0x1p-50};
// f32 throughout, with activations as they are.
inline constexpr Arithmetic kFloatArithmetic{};
// The CPU backend: f32, and int8 activations in products with block weights.
inline constexpr Arithmetic kInt8Arithmetic{.activation = 1.0 / 254, .nmse = 5e-4};
// The CUDA backend: the same, and attention on tensor cores. Prefill has weights and activations of bf16, whose rounding
// (2^-9) the one of int8 covers, or is as decode where layouts ask for that; with plain weights of 16 bits, rows of theirs.
inline constexpr Arithmetic kCudaArithmetic{.activation = 1.0 / 254,
                                            .query = 0x1p-22,
                                            .softmax_weight = 0x1p-11,
                                            .prefill_weight = 0x1p-9,
                                            .prefill_query = 0x1p-11 + 0x1p-22,
                                            .nmse = 5e-4};

// Of one tensor, one per element.
struct Tolerance {
  std::vector<double> bound;  // no error is larger
  std::vector<Noise> noise;   // from rounded activations alone: without them there is none
};
using Tolerances = std::map<std::string, Tolerance, std::less<>>;
using Bounds = std::map<std::string, std::vector<double>, std::less<>>;

// For each float tensor that `op` writes; integers have none: they are equal or wrong. The op's tensors are in host
// memory and the reference has run, so outputs and scratch hold its results.
Tolerances tolerances_of(const Op& op, const Arithmetic& arithmetic);
// The bounds alone.
Bounds bounds_of(const Op& op, const Arithmetic& arithmetic);

// The largest error of storing `value` in the type, twice: once for each side of the comparison.
double storage_error(DType type, double value);

}  // namespace conclave::test
