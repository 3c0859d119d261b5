// CpuOp: one op made ready to run by a team of threads, as part of one parallel region per program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "backends/cpu/kernels.h"
#include "base/thread_pool.h"
#include "ops/op.h"

namespace conclave {

// What an op gets each time it runs: its rank in the team, scratch that all ranks share, and scratch of its own.
struct CpuRun {
  Region& region;
  std::byte* shared;  // aligned to 64, shared_bytes() of the op; holds anything
  std::byte* local;   // aligned to 64, local_bytes() of the op
};

class CpuOp {
 public:
  virtual ~CpuOp() = default;
  // Sizes are known, checked and allocated before anything runs.
  virtual std::int64_t shared_bytes() const { return 0; }
  virtual std::int64_t local_bytes() const { return 0; }
  // Whether there is so little to do that one thread should do it: ops of that kind in a row then meet the team once.
  virtual bool alone() const { return false; }
  // Called by every rank, in the same order of ops (alone() ones: by a team of one). It ends with all ranks done: what it wrote can be read by any of
  // them. It does not throw and does not allocate.
  virtual void run(const CpuRun& run) const = 0;
};

// One per op, in the file of its name.
#define CONCLAVE_CPU_OP(Op) std::unique_ptr<CpuOp> make_cpu_op(const Op& op, const CpuKernels& kernels)
CONCLAVE_CPU_OP(MoeRoute);
CONCLAVE_CPU_OP(MoeRouteToHost);
CONCLAVE_CPU_OP(MoeRoutingUpload);
CONCLAVE_CPU_OP(MoeGroup);
CONCLAVE_CPU_OP(MoePairsByToken);
CONCLAVE_CPU_OP(MoeExpertIds);
CONCLAVE_CPU_OP(MoeAlignBlocks);
CONCLAVE_CPU_OP(MoeMatmul);
CONCLAVE_CPU_OP(MoeGateUp);
CONCLAVE_CPU_OP(SiluMul);
CONCLAVE_CPU_OP(MoeDown);
CONCLAVE_CPU_OP(MoeSharedExpert);
CONCLAVE_CPU_OP(MoeCombine);
CONCLAVE_CPU_OP(MoeCombineResidual);
CONCLAVE_CPU_OP(MoeCombineResidualNorm);
CONCLAVE_CPU_OP(MoeFfn);
CONCLAVE_CPU_OP(Embed);
CONCLAVE_CPU_OP(RmsNorm);
CONCLAVE_CPU_OP(Matmul);
CONCLAVE_CPU_OP(Rope);
CONCLAVE_CPU_OP(KvWrite);
CONCLAVE_CPU_OP(Attention);
CONCLAVE_CPU_OP(Add);
CONCLAVE_CPU_OP(Softmax);
CONCLAVE_CPU_OP(Argmax);
CONCLAVE_CPU_OP(TopK);
#undef CONCLAVE_CPU_OP

}  // namespace conclave
