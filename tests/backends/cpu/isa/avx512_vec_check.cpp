#include "backends/cpu/isa/avx512/vec.h"

#include "backends/cpu/vec_test.h"

namespace conclave {

void run_avx512_vec(const VecRun& run) {
  run_vec<Avx512>(run);
}

}  // namespace conclave
