// The whole model, recorded as programs.
//
// The last layer's experts and the head run only for tokens whose logits are wanted: those rows are gathered after the
// last attention. Where more rows are wanted than go through the head at a time, record_outputs() does the next ones;
// what it gathers from is still there.
#pragma once

#include "model/config.h"
#include "model/kv_cache.h"
#include "model/step_inputs.h"
#include "model/weights.h"
#include "model/workspace.h"
#include "ops/program.h"

namespace conclave {

// What programs are recorded over; all of it must outlive them.
struct Transformer {
  const ModelConfig& config;
  const ModelWeights& weights;
  const KvCache& kv;
  const Workspace& workspace;
  const StepInputs& inputs;
};

struct StepSize {
  std::int64_t n_tokens = 1;  // at most
  std::int64_t n_out = 1;     // at most
  std::int64_t context = 1;   // positions that its tokens see, at most
  Phase phase = Phase::decode;
  bool follows = false;  // its tokens are those that the step before found the best, row by row: n_tokens is n_out

  bool operator==(const StepSize&) const = default;
};

// From token ids to the logits of the first n_out rows that want them, and which of them is the largest.
Program record_step(const Transformer& model, const StepSize& size);
// The best of the first n_out rows of logits that are there.
Program record_top(const Transformer& model, std::int64_t n_out);
// The logits of other rows of the step that ran last.
Program record_outputs(const Transformer& model, const StepSize& size);

}  // namespace conclave
