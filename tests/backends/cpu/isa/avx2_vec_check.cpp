#include "backends/cpu/isa/avx2/vec.h"

#include "backends/cpu/vec_test.h"

namespace conclave {

void run_avx2_vec(const VecRun& run) {
  run_vec<Avx2>(run);
}

}  // namespace conclave
