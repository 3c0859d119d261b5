#include "backends/cpu/isa/generic/vec.h"

#include "backends/cpu/vec_test.h"

namespace conclave {

void run_generic_vec(const VecRun& run) {
  run_vec<Generic>(run);
}

}  // namespace conclave
