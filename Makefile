# The front door. CMake (presets in CMakePresets.json) does the work.
#
#   make demo     set up, build, and show the program at work
#   make test     set up, build, and run every test: also under sanitizers, and for 64-bit ARM under an emulator
#   make bench    set up, build, and measure every op of the CPU backend beside this machine's own peaks
#   make format   lay out the sources
#   make tidy     clang-tidy over what is compiled into the program
#   make goldens  recompute the golden answers of the cases with NumPy
#
# All of them install missing Debian packages where they may, and say which command to run where they may not.

BUILD_PACKAGES := g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libgtest-dev
TEST_PACKAGES  := $(BUILD_PACKAGES) clang-14 clang-16 libclang-rt-14-dev clang-format-14 clang-tidy-14 python3 python3-numpy \
                  g++-12-aarch64-linux-gnu qemu-user

.PHONY: demo test bench build format format-check tidy goldens clean

build:
	@scripts/install-packages $(BUILD_PACKAGES)
	@cmake --preset release >/dev/null
	@cmake --build --preset release --target conclave

demo: build
	@scripts/demo

bench: build
	build/release/bin/conclave bench --kernels --targets

test:
	@scripts/install-packages $(TEST_PACKAGES)
	@scripts/test

format:
	@scripts/install-packages clang-format-14
	@scripts/sources | xargs clang-format-14 -i

format-check:
	@scripts/sources | xargs clang-format-14 --dry-run --Werror

tidy:
	@scripts/install-packages $(TEST_PACKAGES)
	@scripts/tidy

# Recomputes the golden answers of every listed case with NumPy. Needed when a case changes; the tests say so.
goldens: build
	@scripts/install-packages python3 python3-numpy
	@scripts/goldens

clean:
	rm -rf build
