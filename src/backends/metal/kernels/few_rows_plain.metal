// Products of few rows with plain numbers, and with every format that has no faster way.
#include "backends/metal/kernels/few_rows.h"

FEW_ROWS(f32, Plain32)
FEW_ROWS(f16, Plain16)
FEW_ROWS(bf16, PlainB16)
FEW_ROWS(any, AnyFormat)
