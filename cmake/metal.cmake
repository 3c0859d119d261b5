# The Metal backend. On Apple's systems it is compiled for their GPUs. Elsewhere the same kernels are compiled by clang
# through src/backends/metal/shim and executed on the CPU, for tests: that takes clang 16 or newer, which has half
# precision on x86.
set(CONCLAVE_METAL AUTO CACHE STRING "build the Metal backend: ON, OFF, or AUTO (on macOS, and where clang 16 or newer is found)")
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
    message(WARNING "NO METAL BACKEND: its kernels are compiled by clang 16 or newer, which is not here (Debian: apt-get install clang-16)")
    set(CONCLAVE_METAL OFF)
  endif()
endif()
if(NOT CONCLAVE_METAL STREQUAL "OFF")
  set(CONCLAVE_METAL ON)
endif()

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

function(conclave_metal_library)
  conclave_library(backends/metal conclave_ops)
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
  # Nothing refers to a kernel by name: one object holds them all, and the executor refers to that.
  add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/metal/kernels.o
                     COMMAND ${CMAKE_LINKER} -r -o ${CMAKE_BINARY_DIR}/metal/kernels.o ${objects}
                     DEPENDS ${objects} VERBATIM)
  set_source_files_properties(${CMAKE_BINARY_DIR}/metal/kernels.o PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_sources(conclave_backends_metal PRIVATE ${CMAKE_BINARY_DIR}/metal/kernels.o)
endfunction()
