// StepPrograms: the model compiled for each size of step, when that size first comes up.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "model/transformer.h"
#include "ops/device.h"

namespace conclave {

class StepPrograms {
 public:
  // Steps of up to `largest.n_tokens` tokens that see up to `largest.context` positions, with up to `largest.n_out`
  // rows through the head at a time.
  StepPrograms(Device& device, const Transformer& model, const StepSize& largest)
      : device_(device), model_(model), largest_(largest) {}

  struct Step {
    StepSize size;
    std::unique_ptr<Executable> run;
  };
  // For steps of at least this size: sizes are powers of two, and the largest one. One wanted row, as at the end of a
  // prompt, has a program of its own, and so have generated tokens of short texts: backends choose how they attend by
  // what tokens could see.
  const Step& step(const StepSize& wanted);
  // Other rows of whatever step ran last, which was of that phase.
  Executable& outputs(Phase phase);
  struct Top {
    std::int64_t n_rows;  // that it has room for
    std::unique_ptr<Executable> run;
  };
  // The best of the n_rows rows of logits that are there.
  const Top& top(std::int64_t n_rows);

 private:
  Device& device_;
  Transformer model_;
  StepSize largest_;
  std::vector<Step> steps_;
  std::array<std::unique_ptr<Executable>, 2> outputs_;  // of each phase
  std::array<Top, 2> top_;                              // of one row, of as many as there may be
};

}  // namespace conclave
