// Gpu: the little that this backend asks of a GPU. Everything above it is plain C++; below it are two implementations:
// Apple's Metal (apple_gpu.mm), and the executor that runs the same kernels on a CPU for tests (shim/executor_gpu.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "backends/metal/kernels/arguments.h"
#include "tensor/buffer.h"

namespace conclave::metal {

struct Grid {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t z = 1;
  friend bool operator==(const Grid&, const Grid&) = default;
};

// A range of a buffer, as it is bound to a kernel.
struct Binding {
  const Buffer* buffer = nullptr;  // null: nothing is bound
  std::int64_t offset = 0;         // where the kernel's address points: a multiple of 256
  std::int64_t begin = 0;          // bytes of the buffer that the kernel may touch
  std::int64_t end = 0;
  bool writes = false;
};

struct Encoded {
  const void* pipeline = nullptr;
  std::span<const std::byte> args;
  std::array<Binding, kMaxBuffers> bindings{};
  Grid groups;
  std::uint32_t threads = 0;        // of a threadgroup
  std::uint32_t shared_bytes = 0;   // of threadgroup memory
  std::optional<Binding> indirect;  // three u32 that the GPU takes the groups from instead
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  virtual std::string_view name() const = 0;  // of the hardware, or that there is none
  // Memory that host and GPU share, filled with zeros.
  virtual std::shared_ptr<Buffer> allocate(std::int64_t bytes) = 0;
  virtual std::optional<std::int64_t> available_bytes() const { return std::nullopt; }
  // Whether kernels can use the buffer: this GPU's own, or pages of the host that it can map (weights in a mapped file).
  virtual bool reaches(const Buffer& buffer) const = 0;
  // Whether kernels can order what different threadgroups do: a fence of device scope (Metal 3.2).
  virtual bool has_device_fence() const = 0;

  // The compute pipeline of a kernel; it lives as long as the GPU does. Throws where there is no such kernel.
  virtual const void* pipeline(std::string_view kernel) = 0;
  // The most threads that a threadgroup of this kernel can have.
  virtual std::uint32_t max_threads(const void* pipeline) const = 0;
  // Puts a kernel into the command buffer that is open. Kernels may overlap until barrier().
  virtual void dispatch(const Encoded& kernel) = 0;
  virtual void barrier() = 0;
  // Starts what was put in; wait() until all of it is done. Throws Error(device_failed) where something went wrong.
  virtual void commit() = 0;
  virtual void wait() = 0;
};

// Apple's GPU, or the executor where this build has that instead.
std::unique_ptr<Gpu> make_gpu();
// Why make_gpu() would fail here; empty where it would not.
std::string gpu_absence();

}  // namespace conclave::metal
