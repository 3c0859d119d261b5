// Compiled with -march=armv8.2-a+dotprod.
#include "backends/cpu/isa/neon/vec_dotprod.h"
#include "backends/cpu/isa/rows.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/product.h"
#include "backends/cpu/kernels/rows.h"

namespace conclave {

constinit const CpuKernels kNeonDotprodKernels{.name = "neon_dotprod",
                                               .product = Product<NeonDotprod>::table(),
                                               .row = make_row_kernels<NeonDotprod>(),
                                               .attention = make_attention_kernels<NeonDotprod>()};

}  // namespace conclave
