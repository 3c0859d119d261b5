// What every kernel is written with: its parameters, elements of any float type, rows of any tensor, sums over a
// threadgroup. Metal Shading Language; the tests compile it with clang through shim/metal_stdlib.
//
// A kernel is a function (args, buffers, shared, at) that KERNEL() gives its entry point. Vectors are initialised with
// braces, half is loaded, stored and converted and never computed with, collectives stand in uniform control flow.
#pragma once

#include <metal_stdlib>

#include "backends/metal/kernels/arguments.h"

using namespace metal;

// docs/numerics.md: a fused multiply-add is written as one or does not happen.
#pragma clang fp contract(off)

struct Buffers {
  device uchar* at[kMaxBuffers];
};

struct Place {
  uint3 group;  // which threadgroup, of how many
  uint3 groups;
  uint index;  // of the thread in its threadgroup
  uint count;  // threads of a threadgroup
  uint lane;
  uint simd;  // simdgroup of the threadgroup, of how many
  uint simds;
};

#ifdef CONCLAVE_METAL_SHIM
#define SHARED_ARGUMENT
#else
#define SHARED_ARGUMENT [[threadgroup(0)]]
#define REGISTER_KERNEL(name, Args)
#endif

// The entry point `name` of the kernel function that is the rest of the arguments. One order of parameters for all.
#define KERNEL(name, Args, ...)                                                                                       \
  kernel void name(constant Args& args [[buffer(0)]], device uchar* b0 [[buffer(1)]], device uchar* b1 [[buffer(2)]], \
                   device uchar* b2 [[buffer(3)]], device uchar* b3 [[buffer(4)]], device uchar* b4 [[buffer(5)]],    \
                   device uchar* b5 [[buffer(6)]], device uchar* b6 [[buffer(7)]], device uchar* b7 [[buffer(8)]],    \
                   device uchar* b8 [[buffer(9)]], device uchar* b9 [[buffer(10)]], device uchar* b10 [[buffer(11)]], \
                   device uchar* b11 [[buffer(12)]], device uchar* b12 [[buffer(13)]],                                \
                   device uchar* b13 [[buffer(14)]], threadgroup uchar* shared SHARED_ARGUMENT,                       \
                   uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],              \
                   uint index [[thread_index_in_threadgroup]], uint3 count [[threads_per_threadgroup]],               \
                   uint lane [[thread_index_in_simdgroup]], uint simd [[simdgroup_index_in_threadgroup]]) {           \
    const Buffers buffers = {{b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11, b12, b13}};                           \
    const Place at = {group, groups, index, count.x, lane, simd, (count.x + 31) / 32};                                \
    __VA_ARGS__(args, buffers, shared, at);                                                                           \
  }                                                                                                                   \
  REGISTER_KERNEL(name, Args)

// Elements.
static inline float bf16_to_float(ushort bits) {
  return as_type<float>(uint(bits) << 16);
}
// To nearest even; a NaN stays one.
static inline ushort float_to_bf16(float x) {
  const uint bits = as_type<uint>(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return ushort((bits >> 16) | 0x40u);
  return ushort((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

static inline float load_float(int type, const device uchar* row, long i) {
  if (type == kF32) return ((const device float*)row)[i];
  if (type == kF16) return float(((const device half*)row)[i]);
  return bf16_to_float(((const device ushort*)row)[i]);
}
static inline void store_float(int type, device uchar* row, long i, float x) {
  if (type == kF32) {
    ((device float*)row)[i] = x;
  } else if (type == kF16) {
    ((device half*)row)[i] = half(x);
  } else {
    ((device ushort*)row)[i] = float_to_bf16(x);
  }
}

// The address of innermost row r, counted in index order.
static inline device uchar* flat_row(constant View& v, device uchar* base, long r) {
  device uchar* at = base + v.offset;
  for (int i = v.rank - 2; i > 0; --i) {  // most have rank 2: no division
    at += r % v.dims[i] * v.strides[i];
    r /= v.dims[i];
  }
  return v.rank < 2 ? at : at + r * v.strides[0];
}
// Row i of a tensor of rank 2, element i of rank 1.
static inline device uchar* row_at(constant View& v, device uchar* base, long i) {
  return base + v.offset + i * v.strides[0];
}
static inline device uchar* row_at2(constant View& v, device uchar* base, long i, long j) {
  return base + v.offset + i * v.strides[0] + j * v.strides[1];
}
static inline int int_at(constant View& v, device uchar* base, long i) {
  return ((const device int*)(base + v.offset))[i];
}
static inline device int* ints_at(device uchar* base, long offset) {
  return (device int*)(base + offset);
}

static inline long inner_of(constant View& v) {
  return v.dims[v.rank - 1];
}

// Rows that count: `live` held to 0 .. rows.
static inline long live_rows(constant View& live, device uchar* base, long rows) {
  if (live.rank == 0) return rows;
  const long count = int_at(live, base, 0);
  return clamp(count, 0l, rows);
}

// Sums and maxima over a threadgroup, the same in all its threads, in an order that follows from its size. `shared`
// holds 32 numbers and may be used again afterwards.
static inline float group_sum(float x, threadgroup float* shared, Place at) {
  const float part = simd_sum(x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (at.lane == 0) shared[at.simd] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (uint i = 0; i < at.simds; ++i) sum += shared[i];
  return sum;
}
template <class T>
static inline T group_max(T x, threadgroup T* shared, Place at) {
  const T part = simd_max(x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (at.lane == 0) shared[at.simd] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  T largest = shared[0];
  for (uint i = 1; i < at.simds; ++i) largest = max(largest, shared[i]);
  return largest;
}
// Exclusive sums of non-negative integers over the threads of a threadgroup; `total` is that of all. `shared`: 32 ints.
static inline int group_prefix(int x, threadgroup int* shared, Place at, thread int& total) {
  const int before = simd_prefix_exclusive_sum(x);
  const int part = simd_sum(x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (at.lane == 0) shared[at.simd] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int earlier = 0;
  total = 0;
  for (uint i = 0; i < at.simds; ++i) {
    if (i < at.simd) earlier += shared[i];
    total += shared[i];
  }
  return earlier + before;
}

// exp(x - whole ln 2), where that is small.
static inline float exp_of_rest(float x, float whole) {
  float r = fma(whole, -0.693145752f, x);  // ln 2, upper bits: the product is exact
  r = fma(whole, -1.42860677e-6f, r);      // ln 2, the rest
  float p = 1.0f / 5040.0f;
  p = fma(p, r, 1.0f / 720.0f);
  p = fma(p, r, 1.0f / 120.0f);
  p = fma(p, r, 1.0f / 24.0f);
  p = fma(p, r, 1.0f / 6.0f);
  p = fma(p, r, 0.5f);
  p = fma(p, r, 1.0f);
  p = fma(p, r, 1.0f);
  return p;
}

// exp(x) for every x, off by at most 1.3 * 2^-24 of itself; overflow is infinity, NaN stays NaN. The CPU backend's steps.
static inline float row_exp(float x) {
  x = x < -104.0f ? -104.0f : x;  // both leave a NaN as it is
  x = x > 89.0f ? 89.0f : x;
  const float whole = rint(x * 1.44269504f);
  const float p = exp_of_rest(x, whole);
  const int n = isnan(x) ? 0 : int(whole);
  const int first = n >> 1;
  return p * as_type<float>((first + 127) << 23) * as_type<float>((n - first + 127) << 23);
}

// 1 / (1 + exp(-x)) through exp of a non-positive number.
static inline float sigmoid(float x) {
  const float e = row_exp(-fabs(x));
  return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

// x * sigmoid(2 z) * up. A small sigmoid is root * root, and one root goes to x, one to up: nothing underflows before the
// product itself does. A NaN in x stays; the limit at minus infinity is 0, not -inf * 0.
static inline float times_sigmoid(float x, float z, float up) {
  const float root = row_exp(-fabs(z));
  const float part = z < 0.0f ? root : 1.0f;
  const float bounded = x < -1000.0f ? -1000.0f : x;
  return bounded * part / fma(root, root, 1.0f) * (up * part);
}

// act(gate) * up; activations are numbered as conclave::Activation.
static inline float gated(int act, float gate, float up) {
  if (act == 0) return times_sigmoid(gate, 0.5f * gate, up);
  return times_sigmoid(gate, 0.7978845608f * fma(0.044715f * gate * gate, gate, gate), up);
}
