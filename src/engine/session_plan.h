// How large a session is: everything is computed, and held against the memory there is, before anything is allocated.
#pragma once

#include <optional>

#include "conclave/session.h"
#include "model/kv_cache.h"
#include "model/step_inputs.h"
#include "model/workspace.h"

namespace conclave {

struct SessionPlan {
  KvCachePlan kv;
  WorkspaceShape workspace;
  std::int64_t workspace_bytes = 0;

  StepInputs::Shape inputs() const {
    return {.max_tokens = workspace.max_tokens, .max_out = workspace.max_out, .n_seqs = kv.pages.n_seqs};
  }
};

// `available`: bytes that can be had, where that is known; `usual_chunk`: where the options say none, halved where memory
// is short. Throws Error(invalid_argument) for options out of range, and Error(out_of_memory) with the numbers and the
// context that would fit.
SessionPlan plan_session(const ModelConfig& config, const SessionOptions& options,
                         std::optional<std::int64_t> available, std::int64_t usual_chunk = 512);

}  // namespace conclave
