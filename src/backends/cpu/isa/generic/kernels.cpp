// The row that runs anywhere.
#include "backends/cpu/isa/generic/scaled_tile.h"
#include "backends/cpu/isa/generic/vec.h"
#include "backends/cpu/isa/rows.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/product.h"
#include "backends/cpu/kernels/rows.h"

namespace conclave {

constinit const CpuKernels kGenericKernels{.name = "generic",
                                           .product = ScaledTile::over(Product<Generic>::table()),
                                           .row = make_row_kernels<Generic>(),
                                           .attention = make_attention_kernels<Generic>()};

}  // namespace conclave
