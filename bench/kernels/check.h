// No time without a right result: what a case computed, compared with the reference on a sample of its outputs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/device.h"
#include "support/bounds.h"

namespace conclave::bench {

// A part of an op that is an op itself: the same tensors, sliced to a few tokens, columns or experts. Run by the
// reference, it gives what the op must have written there.
struct Sample {
  Op op;
  double share = 0;  // of the op's work; 0 where the time is not counted
};

struct Checked {
  bool ok = true;
  std::string message;      // of the first bad element
  double reference_us = 0;  // of the whole op
  bool scaled = false;      // from a sample, by its share
};

// Runs `op` once on the device, on outputs filled with poison, and compares every sample.
Checked check_op(Device& device, const Op& op, std::span<const Sample> samples, const test::Arithmetic& arithmetic);

}  // namespace conclave::bench
