// Products of many rows with superblocks of 256 weights.
#include "backends/metal/kernels/many_rows.h"

MANY_ROWS(q4_k, Q4_K)
MANY_ROWS(q5_k, Q5_K)
MANY_ROWS(q6_k, Q6_K)
