// The instructions that C++ has no name for: matrices, copies, powers, reciprocals, a counter. sm_80 and later.
#pragma once

#include <cstdint>

namespace conclave::cuda {

// c = a b + start: 16 x 32 times 32 x 8, int8.
__device__ __forceinline__ void mma_s8_k32(int* c, const unsigned* a, unsigned b0, unsigned b1, int start = 0) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}
// c = a b: 16 x 32 times 32 x 8, a unsigned and b signed.
__device__ __forceinline__ void mma_u8_k32(int* c, const unsigned* a, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(0));
}
// c += a b.
__device__ __forceinline__ void add_mma_u8_k32(int* c, const unsigned* a, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// c = a b: 16 x 16 times 16 x 8, int8.
__device__ __forceinline__ void mma_s8_k16(int* c, unsigned a0, unsigned a1, unsigned b) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
      : "=r"(c[0]), "=r"(c[1]), "=r"(c[2]), "=r"(c[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(0));
}
// c = a b: 16 x 16 times 16 x 8, f16, summed in f32.
__device__ __forceinline__ void mma_f16_k16(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0F));
}

// c += a b: the same, on top of what c holds.
__device__ __forceinline__ void add_mma_f16_k16(float* c, const unsigned* a, unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x, off by at most 2^-22 of itself; 0 below 2^-126.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x of a normal x, off by at most one unit in the last place.
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The lanes before this one, a bit each.
__device__ __forceinline__ unsigned lanes_before() {
  unsigned lanes;
  asm("mov.u32 %0, %lanemask_lt;" : "=r"(lanes));
  return lanes;
}

// The larger one; a NaN where one of them is.
__device__ __forceinline__ float max_or_nan(float a, float b) {
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

// Byte i of a word, with its sign.
template <int i>
__device__ __forceinline__ int signed_byte(unsigned word) {
  int y;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(y) : "r"(word), "n"(0x8880 + 0x1111 * i));
  return y;
}

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
// Four tiles of eight rows of 16 bytes; lane l names a row of tile l / 8 and gets bytes 4(l % 4) of row l / 4 of each.
__device__ __forceinline__ void load_tiles(unsigned* to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}
// The same with each tile turned: a lane gets rows 2(l % 4) and the next of column l / 4.
__device__ __forceinline__ void load_tiles_turned(unsigned* to, const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row)));
}

// To an address in shared memory.
__device__ __forceinline__ void copy_16(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}
// What lies around it is wanted soon.
__device__ __forceinline__ void copy_16_of_many(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from));
}
__device__ __forceinline__ void copy_8(unsigned to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from));
}
__device__ __forceinline__ void copy_4(unsigned to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from));
}
__device__ __forceinline__ void copy_16(void* to, const void* from) {
  copy_16(shared_address(to), from);
}
// Zeros where it is not `there`; nothing is read then.
__device__ __forceinline__ void copy_16_or_zeros(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0));
}
__device__ __forceinline__ void copy_8(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(to)), "l"(from));
}
__device__ __forceinline__ void copy_4(void* to, const void* from) {
  copy_4(shared_address(to), from);
}
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;");
}
template <int kPending>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending));
}

// Counts one more; what was there. By one thread of a block, between two barriers: the block then sees in memory what
// the blocks that counted before had written.
__device__ __forceinline__ std::int32_t count_in_order(std::int32_t* count) {
  std::int32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(count) : "memory");
  return before;
}

}  // namespace conclave::cuda
