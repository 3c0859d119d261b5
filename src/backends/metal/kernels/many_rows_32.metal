// Products of many rows with blocks of 32 weights.
#include "backends/metal/kernels/many_rows.h"

MANY_ROWS(q8_0, Q8_0)
MANY_ROWS(q4_0, Q4_0)
MANY_ROWS(mxfp4, Mxfp4)
