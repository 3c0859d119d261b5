#include "backends/cpu/isa/neon/vec.h"

#include "backends/cpu/vec_test.h"

namespace conclave {

void run_neon_vec(const VecRun& run) {
  run_vec<Neon>(run);
}

}  // namespace conclave
