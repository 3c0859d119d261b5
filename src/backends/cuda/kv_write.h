// kv_write as its kernels take it. Host code alone.
#pragma once

#include "backends/cuda/kv_write_plan.h"
#include "ops/kv_write.h"

namespace conclave::cuda {

// All but the places.
KvWriteArgs kv_write_args(const KvWrite& op);

// The places in scratch of kv_write_scratch() bytes.
inline std::int64_t* kv_places_in(std::byte* scratch, std::int64_t n_tokens) {
  return kv_has_places(n_tokens) ? reinterpret_cast<std::int64_t*>(scratch) : nullptr;
}

}  // namespace conclave::cuda
