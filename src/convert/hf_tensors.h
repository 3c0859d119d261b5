// Which tensors of a checkpoint make which tensor of the GGUF file, held to the family's shapes.
#pragma once

#include <string>
#include <vector>

#include "convert/checkpoint.h"
#include "convert/hf_config.h"
#include "convert/recode.h"

namespace conclave {

struct PlannedTensor {
  std::vector<std::int64_t> dims;  // outermost first
  DType source = DType::f32;       // holds every piece's values exactly
  bool floats = false;             // a norm, a bias, a router: stored in f32 whatever the format
  RecodeJob job;                   // with the file's name for the tensor; `to` is still open
};

struct TensorPlan {
  std::vector<PlannedTensor> tensors;  // in file order
  bool has_head = true;
  std::vector<float> rope_factors;  // what rope_freqs.weight is made of
};

// Every tensor that the family asks for, from one tensor each, or from one for each expert, or from a half of a tensor
// that has gate and up of all experts. Throws Error naming the checkpoint's tensor: missing, of another shape, of a type
// that is not converted, or left over (without it the results would silently differ). The plan's bytes lie in the
// checkpoint, which must outlive it.
TensorPlan plan_tensors(const Checkpoint& checkpoint, HfModel& model);

}  // namespace conclave
