// Products of many rows with plain numbers, and with every format that has no faster way.
#include "backends/metal/kernels/many_rows.h"

MANY_ROWS(f32, Plain32)
MANY_ROWS(f16, Plain16)
MANY_ROWS(bf16, PlainB16)
MANY_ROWS(any, AnyFormat)
