// No speed without right output: tokens that come one at a time, in a batch, and all at once must give the same bits, or,
// on a device whose kernels round by the number of rows, nearly the same numbers; and so must a prompt and the same
// tokens as if they had been generated, or nearly the same where each has its arithmetic.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "conclave/session.h"

namespace conclave::bench {

// A few tokens of `batch` sequences. Empty where all is well, else what is wrong.
std::string check_same_bits(const Model& model, std::int64_t batch, const SessionOptions& options);

// Where a row is not finite, or is not bit for bit what was expected. `allowed`: how far it may be off, of its own length.
std::string difference(std::span<const float> row, std::span<const float> expected, double allowed = 0);

// How far the logits of a token may be off (docs/numerics.md).
struct AllowedDifference {
  double batch = 0;  // in another batch
  double phase = 0;  // as a prompt's instead of a generated one
};
AllowedDifference allowed_difference(std::string_view device);

}  // namespace conclave::bench
