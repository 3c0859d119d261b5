# Kernels made wrong on purpose, one change each: faults_test.cpp shows that every one of them is noticed.
#
# conclave_metal_fault(NAME FILE KERNELS OLD NEW): FILE of the kernels with OLD, which stands in it once, replaced by NEW;
# KERNELS is the .metal file that is compiled with it.
set(fault_objects "")
function(conclave_metal_fault name file kernels old new)
  set(from ${metal_dir}/kernels/${file})
  set(folder ${CMAKE_BINARY_DIR}/metal/faults/${name})
  set(to ${folder}/backends/metal/kernels/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${from})
  file(READ ${from} text)
  string(FIND "${text}" "${old}" first)
  string(FIND "${text}" "${old}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "the fault ${name} must find its text once in ${file}: ${old}")
  endif()
  string(REPLACE "${old}" "${new}" text "${text}")
  set(was "")
  if(EXISTS ${to})
    file(READ ${to} was)
  endif()
  if(NOT "${was}" STREQUAL "${text}")
    file(WRITE ${to} "${text}")
  endif()
  set(source ${metal_dir}/kernels/${kernels})
  if(file STREQUAL kernels)
    set(source ${to})
  endif()
  set(object ${folder}/kernels.o)
  conclave_metal_object(${object} ${source} "-iquote${folder}" ${name})
  set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(fault_objects ${fault_objects} ${object} PARENT_SCOPE)
endfunction()

conclave_metal_fault(dropped_barrier product.h many_rows_32.metal
  "    threadgroup_barrier(mem_flags::mem_threadgroup);\n    for (int d = 0; d < kTileDepth; d += 8) {"
  "    for (int d = 0; d < kTileDepth; d += 8) {")
conclave_metal_fault(off_by_one rows.metal rows.metal
  "  for (long i = at.index; i < d; i += at.count) {\n    sum += row_exp("
  "  for (long i = at.index; i <= d; i += at.count) {\n    sum += row_exp(")
conclave_metal_fault(wrong_lane_mask scoring.h canonical.metal
  "ushort half_way = 16" "ushort half_way = 8")
conclave_metal_fault(unwritten_slot group.h routing.metal
  "for (long r = total + long(at.index); r < n_pairs" "for (long r = total + 1 + long(at.index); r < n_pairs")
conclave_metal_fault(stale_shared_value rows.metal rows.metal
  "if (at.lane == 0) places[at.simd] = lowest;" "if (at.index == 0) places[at.simd] = lowest;")
conclave_metal_fault(missing_lane product.h few_rows_32.metal
  "if (r < in.n_rows && c < in.n_weights) sums" "if (r < in.n_rows && c < in.n_weights && lane != 31) sums")
conclave_metal_fault(divergent_barrier rows.metal rows.metal
  "  threadgroup_barrier(mem_flags::mem_threadgroup);\n  if (at.lane == 0) places"
  "  if (at.lane == 0) threadgroup_barrier(mem_flags::mem_threadgroup);\n  if (at.lane == 0) places")
conclave_metal_fault(shared_elements combine.metal combine.metal
  "for (long d = at.index; d < d_model; d += at.count) {\n    float sum = 0.0f;\n    for"
  "for (long d = at.index; d < d_model; d += 32) {\n    float sum = 0.0f;\n    for")
conclave_metal_fault(overlapping_groups few_rows.h few_rows_32.metal
  "const int column = (int(at.group.x) * kFewSimds + int(at.simd)) * wide;"
  "const int column = (int(at.group.x) * (kFewSimds - 1) + int(at.simd)) * wide;")
conclave_metal_fault(missing_fence finish.h few_rows_k.metal
  "  device_fence();\n  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\n  if (int(at.index)"
  "  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);\n  if (int(at.index)")
conclave_metal_fault(lost_tie route.h routing.metal
  "if (held[i] > best && (held[i] < last || (held[i] == last && e > last_expert)))"
  "if (held[i] > best && held[i] < last)")
conclave_metal_fault(wrong_scale decode.h few_rows_k.metal
  "float(signed_at(b, 192 + at / 16));" "float(signed_at(b, 192 + at / 32));")
conclave_metal_fault(uncleared_sum attention.metal attention.metal
  "for (long d = at.lane; d < d_v; d += kSimdWidth) mine[d] = 0.0f;"
  "for (long d = at.lane + 1; d < d_v; d += kSimdWidth) mine[d] = 0.0f;")
conclave_metal_fault(dead_rows rows.metal rows.metal
  "  if (r >= live_rows(args.live, buffers.at[SoftmaxArgs::kLive], args.x.dims[0])) return;\n" "")
