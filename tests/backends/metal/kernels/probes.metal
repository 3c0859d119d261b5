// Kernels for the executor's own tests: what it must give, and what it must notice.
#include "backends/metal/kernels/kernel.h"
#include "backends/metal/kernels/probe_args.h"

static device int* out_of(Buffers buffers) {
  return (device int*)buffers.at[ProbeArgs::kOut];
}

// What the functions of a simdgroup give, one row of 32 for each.
static void simd_functions(constant ProbeArgs&, Buffers buffers, threadgroup uchar*, Place at) {
  device int* out = out_of(buffers) + at.index;
  const int x = int(at.lane) + 1;
  out[0 * 32] = simd_sum(x);
  out[1 * 32] = int(simd_max(uint(x)));
  out[2 * 32] = int(simd_min(uint(x)));
  out[3 * 32] = simd_prefix_exclusive_sum(x);
  out[4 * 32] = simd_shuffle(x, ushort(7));
  out[5 * 32] = simd_shuffle_xor(x, ushort(5));
  out[6 * 32] = simd_any(x == 32) ? 1 : 0;
  out[7 * 32] = simd_all(x == 32) ? 1 : 0;
  out[8 * 32] = int(simd_sum(float(x)));
  out[9 * 32] = int(simd_max(float(x)));
}

// d = a * b + a, with b transposed as it is loaded; 8 by 8.
static void matrices(constant ProbeArgs&, Buffers buffers, threadgroup uchar* shared, Place at) {
  threadgroup float* m = (threadgroup float*)shared;
  for (int i = int(at.index); i < 64; i += 32) m[i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 a;
  simdgroup_float8x8 b;
  simdgroup_load(a, m, 8);
  simdgroup_load(b, m, 8, ulong2{0, 0}, true);
  simdgroup_multiply_accumulate(a, a, b, a);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_store(a, m, 8);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = int(at.index); i < 64; i += 32) out_of(buffers)[i] = int(m[i]);
}

// Each thread hands a value to its neighbour, through a barrier of the threadgroup or of the simdgroup.
static void neighbours(constant ProbeArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  threadgroup int* values = (threadgroup int*)shared;
  values[at.index] = int(at.index);
  if (args.mode == 0) threadgroup_barrier(mem_flags::mem_threadgroup);
  if (args.mode == 1) simdgroup_barrier(mem_flags::mem_threadgroup);
  if (args.mode == 2) threadgroup_barrier(mem_flags::mem_device);  // not the memory that is meant
  const uint next = args.mode == 1 ? at.index / 32 * 32 + (at.index + 1) % 32 : (at.index + 1) % at.count;
  out_of(buffers)[at.index] = values[next];
}

static void overwrites_what_others_read(constant ProbeArgs&, Buffers buffers, threadgroup uchar* shared, Place at) {
  threadgroup int* values = (threadgroup int*)shared;
  values[at.index] = int(at.index);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int seen = values[0];
  if (at.index == 33) values[0] = 7;
  out_of(buffers)[at.index] = seen;
}

static void barrier_in_a_branch(constant ProbeArgs&, Buffers buffers, threadgroup uchar*, Place at) {
  if (at.index < 32) threadgroup_barrier(mem_flags::mem_device);
  out_of(buffers)[at.index] = 1;
}
static void barrier_in_two_branches(constant ProbeArgs&, Buffers buffers, threadgroup uchar*, Place at) {
  if (at.index < 32) {
    threadgroup_barrier(mem_flags::mem_device);
  } else {
    threadgroup_barrier(mem_flags::mem_device);
  }
  out_of(buffers)[at.index] = 1;
}
static void missing_lane(constant ProbeArgs&, Buffers buffers, threadgroup uchar*, Place at) {
  if (at.lane == 9) return;
  out_of(buffers)[at.index] = simd_sum(1);
}
static void two_simd_functions(constant ProbeArgs&, Buffers buffers, threadgroup uchar*, Place at) {
  out_of(buffers)[at.index] = at.lane < 16 ? simd_sum(1) : simd_prefix_exclusive_sum(1);
}
static void loads_outside(constant ProbeArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  out_of(buffers)[at.index] = ((const device int*)buffers.at[ProbeArgs::kIn])[int(at.index) + args.mode];
}
static void stores_outside(constant ProbeArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  out_of(buffers)[int(at.index) + args.mode] = 1;
}
static void stores_to_input(constant ProbeArgs&, Buffers buffers, threadgroup uchar*, Place at) {
  ((device int*)buffers.at[ProbeArgs::kIn])[at.index] = 1;
}
static void loads_unwritten_shared(constant ProbeArgs&, Buffers buffers, threadgroup uchar* shared, Place at) {
  threadgroup int* values = (threadgroup int*)shared;
  if (at.index != 5) values[at.index] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out_of(buffers)[at.index] = values[at.index];
}
static void stores_outside_shared(constant ProbeArgs&, Buffers, threadgroup uchar* shared, Place at) {
  ((threadgroup int*)shared)[at.index + 1] = 1;
}
static void threads_share_a_word(constant ProbeArgs&, Buffers buffers, threadgroup uchar*, Place at) {
  out_of(buffers)[at.index / 2] = 1;
}
static void groups_share_a_word(constant ProbeArgs&, Buffers buffers, threadgroup uchar*, Place at) {
  if (at.index == 0) out_of(buffers)[at.group.x / 2] = 1;
}
// Threadgroups hand values on to whichever comes last, with or without fences.
static void last_one_sums(constant ProbeArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  device atomic_int* counter = (device atomic_int*)out_of(buffers);
  device atomic_int* values = counter + 1;
  threadgroup int* is_last = (threadgroup int*)shared;
  if (at.index == 0) {
    atomic_store_explicit(values + at.group.x, int(at.group.x) + 1, memory_order_relaxed);
    if (args.mode == 0) atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
    *is_last = atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) + 1 == int(at.groups.x) ? 1 : 0;
    if (args.mode == 0) atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (*is_last == 0 || at.index != 0) return;
  int sum = 0;
  for (uint i = 0; i < at.groups.x; ++i) sum += int(atomic_load_explicit(values + i, memory_order_relaxed));
  atomic_store_explicit(values + at.groups.x, sum, memory_order_relaxed);
}
static void adds_one(constant ProbeArgs&, Buffers buffers, threadgroup uchar*, Place at) {
  out_of(buffers)[at.index] += 1;
}

KERNEL(probe_simd_functions, ProbeArgs, simd_functions)
KERNEL(probe_matrices, ProbeArgs, matrices)
KERNEL(probe_neighbours, ProbeArgs, neighbours)
KERNEL(probe_overwrites_what_others_read, ProbeArgs, overwrites_what_others_read)
KERNEL(probe_barrier_in_a_branch, ProbeArgs, barrier_in_a_branch)
KERNEL(probe_barrier_in_two_branches, ProbeArgs, barrier_in_two_branches)
KERNEL(probe_missing_lane, ProbeArgs, missing_lane)
KERNEL(probe_two_simd_functions, ProbeArgs, two_simd_functions)
KERNEL(probe_loads_outside, ProbeArgs, loads_outside)
KERNEL(probe_stores_outside, ProbeArgs, stores_outside)
KERNEL(probe_stores_to_input, ProbeArgs, stores_to_input)
KERNEL(probe_loads_unwritten_shared, ProbeArgs, loads_unwritten_shared)
KERNEL(probe_stores_outside_shared, ProbeArgs, stores_outside_shared)
KERNEL(probe_threads_share_a_word, ProbeArgs, threads_share_a_word)
KERNEL(probe_groups_share_a_word, ProbeArgs, groups_share_a_word)
KERNEL(probe_last_one_sums, ProbeArgs, last_one_sums)
KERNEL(probe_adds_one, ProbeArgs, adds_one)
