#include "backends/cpu/isa/neon/vec_dotprod.h"

#include "backends/cpu/vec_test.h"

namespace conclave {

void run_neon_dotprod_vec(const VecRun& run) {
  run_vec<NeonDotprod>(run);
}

}  // namespace conclave
