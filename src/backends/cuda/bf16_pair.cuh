// Two bf16 in a word.
#pragma once

namespace conclave::cuda {

// a b + c of each, rounded once. Numbers below the normal ones are numbers like others.
__device__ __forceinline__ unsigned bf16_pair_fma(unsigned a, unsigned b, unsigned c) {
  unsigned y;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
  return y;
}
__device__ __forceinline__ unsigned bf16_pair(float low, float high) {
  unsigned y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
// One of the two, twice.
__device__ __forceinline__ unsigned bf16_low_twice(unsigned pair) {
  unsigned y;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {low, low};\n}" : "=r"(y) : "r"(pair));
  return y;
}
__device__ __forceinline__ unsigned bf16_high_twice(unsigned pair) {
  unsigned y;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {high, high};\n}" : "=r"(y) : "r"(pair));
  return y;
}

}  // namespace conclave::cuda
