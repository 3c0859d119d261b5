// ARMv8-A as every 64-bit ARM has it.
#include "backends/cpu/isa/neon/vec.h"
#include "backends/cpu/isa/rows.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/product.h"
#include "backends/cpu/kernels/rows.h"

namespace conclave {

constinit const CpuKernels kNeonKernels{.name = "neon",
                                        .product = Product<Neon>::table(),
                                        .row = make_row_kernels<Neon>(),
                                        .attention = make_attention_kernels<Neon>()};

}  // namespace conclave
