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

constinit const StripKernels kPairsOfTiles = Product<Avx512>::strips();

constexpr CpuKernels make_row(std::string_view name, const StripKernels* strips) {
  CpuKernels row{.name = name,
                 .product = FewRows::over(StreamedTile<Avx512>::over(Product<Avx512>::table())),
                 .row = make_row_kernels<Avx512>(),
                 .attention = make_attention_kernels<Avx512>()};
  row.product.strips = strips;
  return row;
}

}  // namespace

constinit const CpuKernels kAvx512Kernels = make_row("avx512", &kPairsOfTiles);
constinit const CpuKernels kAmxKernels = make_row("amx", &kAmxStrips);

}  // namespace conclave
