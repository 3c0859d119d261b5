// The CPU backend: programs run by a team of threads in one parallel region, with the kernels of the best instruction
// set of this machine.
#pragma once

#include <optional>
#include <string>

#include "backends/cpu/kernels.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "ops/device.h"
#include "ops/moe_dump.h"

namespace conclave {

struct CpuOptions {
  int threads = 0;      // 0: the physical cores that this process may use
  std::string kernels;  // the name of a row of the table; empty: the best that runs here
  std::optional<MoeDumpRequest> dump;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options = {});

  std::string_view name() const override { return "cpu"; }
  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override { return HostBuffer::make(bytes); }
  void upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) override;
  void download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) override;
  std::optional<std::int64_t> available_bytes() const override { return available_memory(); }
  bool reaches(const Buffer& buffer) const override { return buffer.host() != nullptr; }
  Selection select(const Op& op) const override;

  const CpuKernels& kernels() const { return kernels_; }
  int threads() const { return pool_.size(); }
  ThreadPool& pool() { return pool_; }

 protected:
  std::unique_ptr<Executable> build(const Program& program, CompileOptions options) override;

 private:
  friend class CpuExecutable;

  const CpuKernels& kernels_;
  ThreadPool pool_;
  MoeDump dump_;
};

}  // namespace conclave
