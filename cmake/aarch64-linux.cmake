# Builds for 64-bit ARM Linux on a Debian machine of another kind, and runs what was built under qemu:
#
#   apt-get install g++-12-aarch64-linux-gnu qemu-user
#   cmake --preset aarch64 && cmake --build --preset aarch64 --target conclave
#
# Debian's cross compiler looks into /usr/include after its own headers, so that CLI11 and nlohmann-json, which are
# headers alone, are found as they are. Of fmt and GoogleTest there are only libraries for this machine: fmt is used as
# headers, GoogleTest is built from its source (package googletest, which comes with libgtest-dev).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc-12)  # for GoogleTest's configuration
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++-12)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu)

set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)  # never one of this machine's

# Its package description is with the libraries; fmt::fmt-header-only is all that may be used of it.
file(GLOB fmt_DIR /usr/lib/*-linux-gnu/cmake/fmt)
