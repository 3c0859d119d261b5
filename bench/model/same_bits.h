// No speed without right output: tokens that come one at a time, in a batch, and all at once must give the same bits.
#pragma once

#include <string>

#include "conclave/session.h"

namespace conclave::bench {

// A few tokens of `batch` sequences. Empty where all is well, else what is wrong.
std::string check_same_bits(const Model& model, std::int64_t batch, const SessionOptions& options);

// Where a row is not finite, or is not bit for bit what was expected.
std::string difference(std::span<const float> row, std::span<const float> expected);

}  // namespace conclave::bench
