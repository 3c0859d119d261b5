// Compiled with the flags of avx512 and -mamx-tile -mamx-int8 -mamx-bf16. What is not a superblock product is borrowed from avx512.
#include "backends/cpu/isa/amx/product.h"
#include "backends/cpu/isa/rows.h"
#include "backends/cpu/kernels/attention.h"
#include "backends/cpu/kernels/rows.h"

namespace conclave {

constinit const CpuKernels kAmxKernels{.name = "amx",
                                       .product = AmxProduct::table(),
                                       .row = make_row_kernels<Avx512>(),
                                       .attention = make_attention_kernels<Avx512>()};

}  // namespace conclave
