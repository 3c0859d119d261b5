// Compiled with the flags of avx512 and -mamx-tile -mamx-int8 -mamx-bf16.
#include "backends/cpu/isa/amx/product.h"
#include "backends/cpu/isa/rows.h"

namespace conclave {

constinit const StripKernels kAmxStrips = AmxProduct::table();

}  // namespace conclave
