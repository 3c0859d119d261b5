// Compiled with -mavx2 -mfma -mf16c.
#include "backends/cpu/isa/avx2/vec.h"
#include "backends/cpu/isa/rows.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/product.h"
#include "backends/cpu/kernels/rows.h"

namespace conclave {

constinit const CpuKernels kAvx2Kernels{.name = "avx2",
                                        .product = Product<Avx2>::table(),
                                        .row = make_row_kernels<Avx2>(),
                                        .attention = make_attention_kernels<Avx2>()};

}  // namespace conclave
