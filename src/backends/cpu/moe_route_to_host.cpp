#include "backends/cpu/cpu_op.h"

namespace conclave {

// This device's memory is the host's: there is nothing to copy.
std::unique_ptr<CpuOp> make_cpu_op(const MoeRouteToHost& op, const CpuKernels& kernels) {
  return make_cpu_op(op.route(), kernels);
}

}  // namespace conclave
