// The rows of the kernel table, one per instruction set, each filled in its own folder.
#pragma once

#include "backends/cpu/kernels.h"

namespace conclave {

extern const CpuKernels kGenericKernels;  // anywhere
extern const CpuKernels kAvx2Kernels;     // AVX2, FMA, F16C
extern const CpuKernels kAvx512Kernels;   // AVX-512 F, BW, VL, DQ, VNNI
extern const CpuKernels kAmxKernels;      // the same, with AMX's strips
extern const StripKernels kAmxStrips;     // AMX-INT8, AMX-BF16
extern const CpuKernels kNeonKernels;     // ARMv8-A
extern const CpuKernels kNeonDotprodKernels;

}  // namespace conclave
