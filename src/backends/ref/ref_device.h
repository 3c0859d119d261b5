// The reference backend: runs programs by calling the references, one op after another, in host memory. It is the
// oracle that every other backend is tested against; it is right, and it is slow.
#pragma once

#include "base/memory.h"
#include "ops/device.h"
#include "ops/moe_dump.h"

namespace conclave {

class RefDevice final : public Device {
 public:
  explicit RefDevice(std::optional<MoeDumpRequest> dump = std::nullopt);

  std::string_view name() const override { return "ref"; }
  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override { return HostBuffer::make(bytes); }
  void upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) override;
  void download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) override;
  std::optional<std::int64_t> available_bytes() const override { return available_memory(); }
  bool reaches(const Buffer& buffer) const override { return buffer.host() != nullptr; }
  Selection select(const Op&) const override { return {.plan = "scalar"}; }

  // The scratch that moe_route_to_host has grown to: it never shrinks.
  std::int64_t host_copy_bytes() const { return host_copy_ == nullptr ? 0 : host_copy_->bytes(); }

 protected:
  std::unique_ptr<Executable> build(const Program& program, CompileOptions options) override;

 private:
  friend class RefExecutable;
  void run_one(const Op& op, Profile* profile);
  void route_to_host(const MoeRouteToHost& op);

  MoeDump dump_;
  std::shared_ptr<HostBuffer> host_copy_;
};

}  // namespace conclave
