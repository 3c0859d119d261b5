// The CUDA backend: programs as streams of kernels on an NVIDIA GPU, replayed as graphs. No CUDA header is needed to
// include this one.
#pragma once

#include <optional>
#include <string>

#include "backends/cuda/cuda_op.h"
#include "ops/device.h"
#include "ops/moe_dump.h"

namespace conclave {

namespace cuda {
class HostStage;
class StreamWait;
}  // namespace cuda

struct CudaOptions {
  int device = 0;
  std::string path;  // "sm80": what GPUs before Hopper run; empty: the best for this one
  std::optional<MoeDumpRequest> dump;
};

// Why there is no such GPU here; empty where there is one.
std::string cuda_absence(int device = 0);

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options = {});
  ~CudaDevice() override;

  std::string_view name() const override { return name_; }
  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override;
  void upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) override;
  void download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) override;
  std::unique_ptr<Fetch> fetch(const Buffer& from, std::int64_t offset, std::int64_t bytes) override;
  bool runs_ahead() const override { return true; }
  std::optional<std::int64_t> available_bytes() const override;
  std::int64_t usual_rows() const override { return 4096; }
  bool reaches(const Buffer& buffer) const override;
  // Spreads blocks that no 16-byte word holds into planes (weight_planes.h): at most 2% more memory, else as stored.
  std::vector<Tensor> prepare(std::span<const Tensor> weights) override;
  Selection select(const Op& op) const override;

  const std::string& gpu() const { return gpu_; }  // its name, as the driver has it
  const cuda::Target& target() const { return target_; }
  CUstream_st* stream() const { return stream_; }
  // Until everything that was put on the stream has run. Throws where it failed. It keeps a core busy, to be exact:
  // this is for measuring. Downloads wait in a way that does not (wait_plan.h).
  void synchronize();

 protected:
  std::unique_ptr<Executable> build(const Program& program, CompileOptions options) override;

 private:
  friend class CudaExecutable;
  friend class CudaFetch;
  void offer_dump(const Op& op, Profile* profile);
  void wait();
  std::span<std::byte> stage(std::size_t bytes);

  std::string name_;
  std::string gpu_;
  cuda::Target target_;
  CUstream_st* stream_ = nullptr;
  std::unique_ptr<cuda::StreamWait> wait_;
  std::unique_ptr<cuda::HostStage> stage_;
  MoeDump dump_;
  std::vector<std::shared_ptr<Buffer>> prepared_;  // what prepare() made
};

}  // namespace conclave
