// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mfma -mf16c.
#include "backends/cpu/isa/avx512/few_rows.h"
#include "backends/cpu/isa/avx512/vec.h"
#include "backends/cpu/isa/rows.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/product.h"
#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/streamed_tile.h"

namespace conclave {

namespace {

// Up to `few` rows of q4_k and q5_k straight from their blocks.
template <int few>
constexpr CpuKernels make_row(std::string_view name, const StripKernels* strips) {
  CpuKernels row{.name = name,
                 .product = FewRows::over<few>(StreamedTile<Avx512>::over(Product<Avx512>::table())),
                 .row = make_row_kernels<Avx512>(),
                 .attention = make_attention_kernels<Avx512>()};
  row.product.strips = strips;
  return row;
}

}  // namespace

constinit const CpuKernels kAvx512Kernels = make_row<1>("avx512", nullptr);
constinit const CpuKernels kAmxKernels = make_row<3>("amx", &kAmxStrips);

}  // namespace conclave
