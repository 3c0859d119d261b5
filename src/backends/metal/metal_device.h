// The Metal backend: programs as command buffers of our own kernels, on Apple's GPUs, or on the executor that stands in for
// one in tests.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backends/metal/gpu.h"
#include "backends/metal/metal_op.h"
#include "ops/device.h"
#include "ops/moe_dump.h"

namespace conclave {

struct MetalOptions {
  std::optional<MoeDumpRequest> dump;
  metal::Target::Products products = metal::Target::Products::by_rows;
};

// Why there is no Metal device here; empty where there is one.
std::string metal_absence();

class MetalDevice final : public Device {
 public:
  explicit MetalDevice(const MetalOptions& options = {});
  MetalDevice(std::unique_ptr<metal::Gpu> gpu, const MetalOptions& options);
  ~MetalDevice() override;

  std::string_view name() const override { return "metal"; }
  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override;
  void upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) override;
  void download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) override;
  std::optional<std::int64_t> available_bytes() const override { return gpu_->available_bytes(); }
  bool reaches(const Buffer& buffer) const override { return gpu_->reaches(buffer); }
  Selection select(const Op& op) const override;

  metal::Gpu& gpu() { return *gpu_; }
  const metal::Target& target() const { return target_; }

 protected:
  std::unique_ptr<Executable> build(const Program& program, CompileOptions options) override;

 private:
  friend class MetalExecutable;
  std::shared_ptr<Buffer> scratch(std::int64_t bytes);

  std::unique_ptr<metal::Gpu> gpu_;
  metal::Target target_;
  MoeDump dump_;
  std::shared_ptr<Buffer> scratch_;
};

}  // namespace conclave
