// Ops of one token that go by the kernels of lone_row_plan.h, alone and with their neighbours. Host code alone.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/lone_row_plan.h"

namespace conclave::cuda {

struct FusedOps;

// Whether an MoE layer is such a one.
std::optional<LoneFfnArgs> lone_ffn_of(const MoeFfn& op, const Target& target);
// All of it but a shared expert's own products. `norms`: with the next norm, where there is one.
std::unique_ptr<CudaOp> make_lone_ffn(const MoeFfn& op, const LoneFfnArgs& args, bool norms);

// What becomes of the ops from `first` on, where it is one of these; none, else:
//
//   rms_norm, matmul[, matmul[, matmul]]    the products norm their row
//   matmul, add                             to the residual
//   rms_norm, matmul                        of plain weights: a router
//   moe_ffn, matmul[, matmul[, matmul]]     the products norm the row that it leaves
std::vector<FusedOps> fuse_lone(std::span<const Op> ops, std::size_t first, const Target& target);

}  // namespace conclave::cuda
