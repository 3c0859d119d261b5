// CudaOp: one op made ready to be put on a stream. Nothing in it waits for the GPU, allocates, or depends on contents, so
// that a program can be captured as a graph and replayed with any routing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backends/cuda/view.h"
#include "ops/op.h"

namespace conclave::cuda {

// What a GPU has, as far as plans ask.
struct Target {
  int device = 0;
  int capability = 0;  // 90 for sm_90
  int multiprocessors = 1;
  std::int64_t l2_bytes = 0;
  std::int64_t shared_bytes = 48 * 1024;  // of a block, at most
};

struct CudaRun {
  Stream stream;
  std::byte* scratch;  // on the device, aligned to 256, scratch_bytes() of the op; holds anything
};

class CudaOp {
 public:
  virtual ~CudaOp() = default;
  virtual std::int64_t scratch_bytes() const { return 0; }
  // Whether it can be part of a graph; if not, why.
  virtual std::string capture_refusal() const { return {}; }
  virtual void enqueue(const CudaRun& run) const = 0;
};

// One per op, in the file of its name (or of the family it belongs to). Throws an Error where the op is refused.
#define CONCLAVE_CUDA_OP(Op) std::unique_ptr<CudaOp> make_cuda_op(const Op& op, const Target& target)
CONCLAVE_CUDA_OP(MoeRoute);
CONCLAVE_CUDA_OP(MoeRouteToHost);
CONCLAVE_CUDA_OP(MoeRoutingUpload);
CONCLAVE_CUDA_OP(MoeGroup);
CONCLAVE_CUDA_OP(MoePairsByToken);
CONCLAVE_CUDA_OP(MoeExpertIds);
CONCLAVE_CUDA_OP(MoeAlignBlocks);
CONCLAVE_CUDA_OP(MoeMatmul);
CONCLAVE_CUDA_OP(MoeGateUp);
CONCLAVE_CUDA_OP(SiluMul);
CONCLAVE_CUDA_OP(MoeDown);
CONCLAVE_CUDA_OP(MoeSharedExpert);
CONCLAVE_CUDA_OP(MoeCombine);
CONCLAVE_CUDA_OP(MoeCombineResidual);
CONCLAVE_CUDA_OP(MoeCombineResidualNorm);
CONCLAVE_CUDA_OP(MoeFfn);
CONCLAVE_CUDA_OP(Embed);
CONCLAVE_CUDA_OP(RmsNorm);
CONCLAVE_CUDA_OP(Matmul);
CONCLAVE_CUDA_OP(Rope);
CONCLAVE_CUDA_OP(KvWrite);
CONCLAVE_CUDA_OP(Attention);
CONCLAVE_CUDA_OP(Add);
CONCLAVE_CUDA_OP(Softmax);
CONCLAVE_CUDA_OP(Argmax);
CONCLAVE_CUDA_OP(TopK);
#undef CONCLAVE_CUDA_OP

}  // namespace conclave::cuda
