// Products of few rows with blocks of 32 weights.
#include "backends/metal/kernels/few_rows.h"

FEW_ROWS(q8_0, Q8_0)
FEW_ROWS(q4_0, Q4_0)
FEW_ROWS(mxfp4, Mxfp4)
