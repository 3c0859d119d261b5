// NEON with the dot product instructions of ARMv8.2-A: four products of bytes per lane in one.
#pragma once

#include "backends/cpu/isa/neon/vec.h"

namespace conclave {

#define CONCLAVE_INLINE [[gnu::always_inline]] static inline

struct NeonDotprod : Neon {
  CONCLAVE_INLINE I dot(I acc, I levels, I x) {
    return {dot4(acc.a, levels.a, x.a), dot4(acc.b, levels.b, x.b), dot4(acc.c, levels.c, x.c),
            dot4(acc.d, levels.d, x.d)};
  }
  CONCLAVE_INLINE I dot_signed(I acc, I levels, I x) { return dot(acc, levels, x); }

 private:
  CONCLAVE_INLINE int32x4_t dot4(int32x4_t acc, int32x4_t levels, int32x4_t x) {
    return vdotq_s32(acc, vreinterpretq_s8_s32(levels), vreinterpretq_s8_s32(x));
  }
};

#undef CONCLAVE_INLINE

}  // namespace conclave
