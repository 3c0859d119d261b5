// The machine's f32 peak: fused multiply-adds on registers, with the widest instructions there are.
#pragma once

#include <cstdint>

namespace conclave::bench {

// `rounds` rounds of independent chains; returns operations done (a multiply-add is two). 0 where this machine has no
// fused multiply-add that is worth a bound. `sink` keeps the result alive.
double fma_peak(std::int64_t rounds, float* sink);

}  // namespace conclave::bench
