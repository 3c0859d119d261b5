# The Metal backend. On Apple's systems it is compiled for their GPUs. Elsewhere the same kernels are compiled by clang
# through src/backends/metal/shim and executed on the CPU, for tests: that takes clang 16 or newer, which has half
# precision on x86.
set(CONCLAVE_METAL AUTO CACHE STRING "build the Metal backend: ON, OFF, or AUTO (on macOS, and where clang 16 or newer is found)")
option(CONCLAVE_METALLIB "on macOS: compile the Metal kernels when building, not at load" OFF)
set(metal_dir ${PROJECT_SOURCE_DIR}/src/backends/metal)

if(CONCLAVE_FUZZ OR CMAKE_CROSSCOMPILING OR CONCLAVE_PORTABLE OR CONCLAVE_SANITIZE MATCHES "thread")
  set(CONCLAVE_METAL OFF)  # the executor has the thread sanitizer's callbacks for itself
endif()
if(NOT APPLE AND NOT CONCLAVE_METAL STREQUAL "OFF")
  find_program(CONCLAVE_METAL_CLANG NAMES clang++-20 clang++-19 clang++-18 clang++-17 clang++-16 clang++)
  set(metal_found OFF)
  if(CONCLAVE_METAL_CLANG)
    execute_process(COMMAND ${CONCLAVE_METAL_CLANG} -dumpversion OUTPUT_VARIABLE metal_clang_version
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(metal_clang_version VERSION_GREATER_EQUAL 16)
      set(metal_found ON)
    endif()
  endif()
  if(NOT metal_found)
    if(CONCLAVE_METAL STREQUAL "ON")
      message(FATAL_ERROR "CONCLAVE_METAL=ON needs clang 16 or newer (Debian: apt-get install clang-16)")
    endif()
    message(NOTICE "NO METAL BACKEND: its kernels are compiled by clang 16 or newer, which is not here (Debian: apt-get install clang-16)")
    set(CONCLAVE_METAL OFF)
  endif()
endif()
if(NOT CONCLAVE_METAL STREQUAL "OFF")
  set(CONCLAVE_METAL ON)
endif()
set(CONCLAVE_METAL_BUILT ${CONCLAVE_METAL} CACHE INTERNAL "whether the Metal backend is part of this build")

# conclave_metal_object(OBJECT SOURCE OPTION FAULT): an object of kernels, and the check of their address spaces.
set(metal_flags -x c++ -std=c++14 -ffp-contract=off -fno-math-errno -fsigned-char -fno-exceptions -fno-rtti -Wall -Wextra -Werror
                -Wno-unknown-attributes -Wno-unused-function -isystem ${metal_dir}/shim -I ${PROJECT_SOURCE_DIR}/src)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(metal_arch -march=x86-64-v3)
endif()
function(conclave_metal_object object source option fault)
  add_custom_command(
    OUTPUT ${object}
    # Pointers of different address spaces do not mix.
    COMMAND ${CONCLAVE_METAL_CLANG} ${metal_flags} -fsyntax-only -DCONCLAVE_METAL_ADDRESS_SPACES ${option} ${source}
    # Loads and stores call the executor, through the callbacks of a sanitizer that is not linked. It has none for more
    # than 16 bytes at a time: no wider vectors are made.
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${CONCLAVE_METAL_CLANG} ${metal_flags} ${metal_arch} -O2 -g1 -fPIC
            -fsanitize=thread -mllvm -tsan-instrument-func-entry-exit=0 -mllvm -tsan-instrument-read-before-write
            -fno-vectorize -fno-slp-vectorize -mprefer-vector-width=128 -DCONCLAVE_METAL_FAULT=${fault} ${option}
            -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} ${metal_dir}/shim/metal_stdlib
    DEPFILE ${object}.d
    COMMENT "Metal kernels ${fault} ${source}"
    VERBATIM)
endfunction()

# All kernels as one source: what Apple's compiler gets at load, and clang here as a check.
set(metal_flat ${CMAKE_BINARY_DIR}/metal/kernels.metal)
set(metal_flat_cpp ${CMAKE_BINARY_DIR}/metal/kernel_source.cpp)
function(conclave_metal_flat)
  file(GLOB kernels CONFIGURE_DEPENDS ${metal_dir}/kernels/*)
  add_custom_command(
    OUTPUT ${metal_flat} ${metal_flat_cpp}
    COMMAND ${CMAKE_COMMAND} -DKERNELS=${metal_dir}/kernels -DOUT=${metal_flat} -DCPP=${metal_flat_cpp} -P
            ${PROJECT_SOURCE_DIR}/cmake/flatten_kernels.cmake
    DEPENDS ${kernels} ${PROJECT_SOURCE_DIR}/cmake/flatten_kernels.cmake
    VERBATIM)
endfunction()

if(APPLE AND CONCLAVE_METAL)
  enable_language(OBJCXX)
endif()
function(conclave_metal_apple_library)
  conclave_library(backends/metal conclave_ops "-framework Metal" "-framework Foundation")
  conclave_metal_flat()
  target_sources(conclave_backends_metal PRIVATE ${metal_dir}/apple_gpu.mm ${metal_flat_cpp})
  set_target_properties(conclave_backends_metal PROPERTIES OBJCXX_STANDARD 20 OBJCXX_STANDARD_REQUIRED ON)
  set_source_files_properties(${metal_dir}/apple_gpu.mm PROPERTIES COMPILE_OPTIONS "-fobjc-arc")
  if(CONCLAVE_METALLIB)  # compiled now instead of at load
    set(metallib ${CMAKE_BINARY_DIR}/bin/conclave.metallib)
    add_custom_command(
      OUTPUT ${metallib}
      COMMAND xcrun -sdk macosx metal -std=metal3.2 -fno-fast-math -ffp-contract=off -o ${metallib} ${metal_flat}
      DEPENDS ${metal_flat} VERBATIM)
    add_custom_target(conclave_metallib DEPENDS ${metallib})
    add_dependencies(conclave_backends_metal conclave_metallib)
    target_compile_definitions(conclave_backends_metal PRIVATE CONCLAVE_METALLIB="${metallib}")
  endif()
endfunction()

function(conclave_metal_library)
  if(APPLE)
    conclave_metal_apple_library()
    return()
  endif()
  conclave_library(backends/metal conclave_ops)
  conclave_metal_flat()
  file(GLOB shim CONFIGURE_DEPENDS ${metal_dir}/shim/*.cpp)
  file(GLOB kernels CONFIGURE_DEPENDS ${metal_dir}/kernels/*.metal)
  target_sources(conclave_backends_metal PRIVATE ${shim})
  set(objects "")
  foreach(kernel ${kernels})
    get_filename_component(stem ${kernel} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/metal/${stem}.o)
    set(option -DCONCLAVE_METAL_KERNELS)
    if(stem STREQUAL "rows")
      set(option -DCONCLAVE_METAL_ANCHOR)
    endif()
    conclave_metal_object(${object} ${kernel} ${option} "")
    list(APPEND objects ${object})
  endforeach()
  # Apple's compiler sees one source: names must not clash in it, and it must be whole.
  set(kernel_objects ${objects})
  set(flat_checked ${CMAKE_BINARY_DIR}/metal/kernels.checked)
  add_custom_command(
    OUTPUT ${flat_checked}
    COMMAND ${CONCLAVE_METAL_CLANG} ${metal_flags} -fsyntax-only -DCONCLAVE_METAL_ADDRESS_SPACES ${metal_flat}
    COMMAND ${CMAKE_COMMAND} -E touch ${flat_checked}
    DEPENDS ${metal_flat} ${metal_dir}/shim/metal_stdlib VERBATIM)
  list(APPEND objects ${flat_checked})
  # Nothing refers to a kernel by name: one object holds them all, and the executor refers to that.
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/metal/kernels.o
                     COMMAND ${CMAKE_LINKER} -r -o ${CMAKE_BINARY_DIR}/metal/kernels.o ${kernel_objects}
                     DEPENDS ${objects} VERBATIM)
  set_source_files_properties(${CMAKE_BINARY_DIR}/metal/kernels.o PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(conclave_backends_metal PRIVATE ${CMAKE_BINARY_DIR}/metal/kernels.o)
  set_property(GLOBAL APPEND PROPERTY CONCLAVE_PART_OBJECTS ${CMAKE_BINARY_DIR}/metal/kernels.o)
endfunction()
