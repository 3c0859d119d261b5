#include "backends/cpu/cpu_device.h"

#include <algorithm>
#include <chrono>

#include "backends/cpu/cpu_op.h"
#include "backends/cpu/matmul.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "ops/host_transfer.h"
#include "ops/scratch.h"

namespace conclave {

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(CpuDevice& device, const Program& program)
      : device_(device), ops_(program.ops().begin(), program.ops().end()) {
    std::int64_t shared = 0;
    std::int64_t local = 0;
    const auto take = [&](std::unique_ptr<CpuOp> op) {
      shared = std::max(shared, op->shared_bytes());
      local = std::max(local, op->local_bytes());
      return op;
    };
    for (const Op& op : ops_) {
      ready_.push_back(take(std::visit([&](const auto& o) { return make_cpu_op(o, device.kernels()); }, op)));
    }
    for (std::size_t i = 0; i < ops_.size();) {
      const std::size_t together = matmuls_together(std::span(ops_).subspan(i));
      if (together > 1) {
        fused_.push_back(take(make_matmuls(std::span(ops_).subspan(i, together), device.kernels())));
        whole_.push_back(fused_.back().get());
      } else {
        whole_.push_back(ready_[i].get());
      }
      i += std::max<std::size_t>(together, 1);
    }
    ScratchLayout layout;
    layout.add(1, shared);
    locals_at_ = layout.bytes();
    local_stride_ = (local + kApart - 1) / kApart * kApart;
    layout.add(device.threads(), local_stride_);
    scratch_ = HostBuffer::make(std::max<std::int64_t>(layout.bytes(), 1));
  }

  void run(Profile* profile) override {
    if (profile == nullptr && !device_.dump_.pending()) {
      run_ops(whole_);
      return;
    }
    for (std::size_t i = 0; i < ready_.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      const CpuOp* const one = ready_[i].get();
      run_ops({&one, 1});
      const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
      if (profile != nullptr) profile->op_event(ops_[i], device_.name(), elapsed.count());
      device_.dump_.offer(ops_[i], profile);
    }
  }

 private:
  static constexpr std::int64_t kApart = 128;  // no cache line of two threads

  void run_ops(std::span<const CpuOp* const> ops) {
    device_.pool_.run([&](int rank) {
      Region region(device_.pool_, rank);
      Region one = Region::alone(device_.pool_);
      std::byte* local = scratch_->host() + locals_at_ + rank * local_stride_;
      const CpuRun together{region, scratch_->host(), local};
      const CpuRun alone{one, scratch_->host(), local};
      for (std::size_t i = 0; i < ops.size(); ++i) {
        if (!ops[i]->alone()) {
          ops[i]->run(together);
          continue;
        }
        if (rank == 0) ops[i]->run(alone);
        if (i + 1 == ops.size() || !ops[i + 1]->alone()) region.barrier();
      }
    });
  }

  CpuDevice& device_;
  std::vector<Op> ops_;
  std::vector<std::unique_ptr<CpuOp>> ready_;  // one by one, as a profile and the routing dump want them
  std::vector<std::unique_ptr<CpuOp>> fused_;  // each stands for several
  std::vector<const CpuOp*> whole_;            // of both, the program
  std::shared_ptr<HostBuffer> scratch_;
  std::int64_t locals_at_ = 0;
  std::int64_t local_stride_ = 0;
};

CpuDevice::CpuDevice(const CpuOptions& options)
    : kernels_(choose_cpu_kernels(options.kernels)),
      pool_(options.threads > 0 ? options.threads : default_threads()),
      dump_(options.dump) {}

void CpuDevice::upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) {
  host_upload(to, offset, bytes);
}

void CpuDevice::download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) {
  host_download(from, offset, bytes);
}

Selection CpuDevice::select(const Op& op) const {
  // Sizes that no memory could hold are refused before any work.
  try {
    std::visit([&](const auto& o) { make_cpu_op(o, kernels_); }, op);
  } catch (const Error& error) {
    return {.refusal = error.what()};
  }
  return {.plan = std::string(kernels_.name)};
}

std::unique_ptr<Executable> CpuDevice::build(const Program& program, CompileOptions options) {
  if (options.capture && dump_.pending()) {
    fail(ErrorCode::unsupported, "cpu: the routing dump (CONCLAVE_MOE_DUMP) cannot be taken while a graph is captured");
  }
  return std::make_unique<CpuExecutable>(*this, program);
}

}  // namespace conclave
