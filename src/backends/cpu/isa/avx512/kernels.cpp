// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c.
#include "backends/cpu/isa/avx512/few_rows.h"
#include "backends/cpu/isa/avx512/vec.h"
#include "backends/cpu/isa/rows.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/product.h"
#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/streamed_tile.h"

namespace conclave {

constinit const CpuKernels kAvx512Kernels{
    .name = "avx512",
    .product = FewRows::over<1>(StreamedTile<Avx512>::over(Product<Avx512>::table())),
    .row = make_row_kernels<Avx512>(),
    .attention = make_attention_kernels<Avx512>()};

}  // namespace conclave
