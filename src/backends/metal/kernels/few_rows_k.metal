// Products of few rows with superblocks of 256 weights.
#include "backends/metal/kernels/few_rows.h"

FEW_ROWS(q4_k, Q4_K)
FEW_ROWS(q5_k, Q5_K)
FEW_ROWS(q6_k, Q6_K)
