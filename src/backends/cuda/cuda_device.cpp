#include "backends/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/fusion.h"
#include "backends/cuda/host_stage.h"
#include "backends/cuda/stream_wait.h"
#include "backends/cuda/weight_planes.h"
#include "base/fail.h"
#include "ops/host_transfer.h"

namespace conclave {
namespace {

using cuda::check;
using cuda::CudaBuffer;

// Ids, page tables and a row of logits go through it; what is larger is copied as it lies.
constexpr std::size_t kStageBytes = std::size_t{1} << 20;
constexpr std::int64_t kMostAhead = 2;

// A range inside a buffer of this device.
std::byte* address(const Buffer& buffer, std::int64_t offset, std::size_t bytes) {
  check_range(buffer, offset, bytes);
  return static_cast<const CudaBuffer&>(buffer).data() + offset;
}

}  // namespace

std::string cuda_absence(int device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) return "no CUDA device";
  if (error == cudaErrorInsufficientDriver)
    return "no CUDA device: there is no driver, or it is older than this build needs";
  if (error != cudaSuccess) return fmt::format("no CUDA device: {}", cudaGetErrorString(error));
  if (device < 0 || device >= count) return fmt::format("no CUDA device {}: there are {}", device, count);
  int major = 0;
  int minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (major < 8) return fmt::format("CUDA device {} has compute capability {}.{}, 8.0 is needed", device, major, minor);
  check(cudaSetDevice(device));
  int architecture = 0;
  const auto built = static_cast<cudaError_t>(cuda::built_for(&architecture));
  static_cast<void>(cudaGetLastError());
  if (built != cudaSuccess) {
    return fmt::format(
        "this build has no code for CUDA device {} (compute capability {}.{}; CONCLAVE_CUDA_ARCHS={}{} makes it): {}",
        device, major, minor, major, minor, cudaGetErrorString(built));
  }
  return {};
}

// Ops in order on the device's stream. The second run is captured as a graph, unless an op cannot be part of one: what is
// run once is not worth it.
class CudaExecutable final : public Executable {
 public:
  CudaExecutable(CudaDevice& device, const Program& program, bool capture)
      : device_(device), ops_(program.ops().begin(), program.ops().end()) {
    std::int64_t scratch = 0;
    for (const Op& op : ops_) {
      ready_.push_back(std::visit([&](const auto& o) { return cuda::make_cuda_op(o, device.target()); }, op));
      scratch = std::max(scratch, ready_.back()->scratch_bytes());
      capturable_ = capturable_ && ready_.back()->capture_refusal().empty();
      if (capture && !ready_.back()->capture_refusal().empty()) {
        fail(ErrorCode::unsupported, "{}: {}", op_name(op), ready_.back()->capture_refusal());
      }
    }
    bank_ = CudaBuffer::make(device.target().device, cuda::hand_over_bytes(ops_, device.target()), device.stream());
    fused_ = cuda::fuse(ops_, device.target(), bank_->data());
    for (const cuda::FusedOps& fused : fused_) scratch = std::max(scratch, fused.op->scratch_bytes());
    scratch_ = CudaBuffer::make(device.target().device, scratch, device.stream());
    if (capture) make_graph();
  }

  ~CudaExecutable() override {
    cudaStreamSynchronize(device_.stream());
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }

  void run(Profile* profile) override {
    check(cudaSetDevice(device_.target().device));
    if (profile != nullptr || device_.dump_.pending()) {
      run_one_by_one(profile);
      return;
    }
    if (graph_ == nullptr && capturable_ && ran_) {
      try {
        make_graph();
      } catch (const Error&) {  // no memory for it, say: one by one still works
        capturable_ = false;
      }
    }
    if (graph_ != nullptr) {
      check(cudaGraphLaunch(graph_, device_.stream()), "a step's graph");
    } else {
      enqueue_all();
    }
    device_.wait_->begin(this);
    ran_ = true;
  }

 private:
  void enqueue(const cuda::CudaOp& op) const {
    op.enqueue({{device_.stream(), device_.target().capability >= 90}, scratch_->data()});
  }
  void enqueue_all() const {
    auto fused = fused_.begin();
    for (std::size_t i = 0; i < ops_.size();) {
      if (fused != fused_.end() && fused->first == i) {
        enqueue(*fused->op);
        i += fused->count;
        ++fused;
      } else {
        enqueue(*ready_[i++]);
      }
    }
  }

  void make_graph() {
    check(cudaSetDevice(device_.target().device));
    check(cudaStreamBeginCapture(device_.stream(), cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      enqueue_all();
    } catch (...) {
      cudaStreamEndCapture(device_.stream(), &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      static_cast<void>(cudaGetLastError());
      throw;
    }
    check(cudaStreamEndCapture(device_.stream(), &graph), "capturing a step");
    const cudaError_t error = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "making a step's graph");
  }

  // One op at a time, waited for: what a profile and the routing dump look at.
  void run_one_by_one(Profile* profile) {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      device_.synchronize();
      const auto start = std::chrono::steady_clock::now();
      enqueue(*ready_[i]);
      device_.synchronize();
      const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
      if (profile != nullptr) profile->op_event(ops_[i], device_.name(), elapsed.count());
      device_.offer_dump(ops_[i], profile);
    }
  }

  CudaDevice& device_;
  std::vector<Op> ops_;
  std::vector<std::unique_ptr<cuda::CudaOp>> ready_;
  std::vector<cuda::FusedOps> fused_;  // what stands for several of them
  std::shared_ptr<CudaBuffer> scratch_;
  std::shared_ptr<CudaBuffer> bank_;  // what fused ops hand over
  bool capturable_ = true;
  bool ran_ = false;
  cudaGraphExec_t graph_ = nullptr;
};

// Copied on the device's stream, into host memory of its own.
class CudaFetch final : public Fetch {
 public:
  CudaFetch(CudaDevice& device, const std::byte* from, std::size_t bytes) : device_(device), from_(from), copy_(bytes) {
    check(cudaEventCreateWithFlags(&copied_, cudaEventDisableTiming), "an event");
  }
  ~CudaFetch() override {
    cudaStreamSynchronize(device_.stream());
    cudaEventDestroy(copied_);
  }

  void begin() override {
    check(cudaSetDevice(device_.target().device));
    check(cudaMemcpyAsync(copy_.data(), from_, copy_.size(), cudaMemcpyDeviceToHost, device_.stream()), "download");
    check(cudaEventRecord(copied_, device_.stream()), "download");
    at_ = device_.wait_->place();
    staged_ = device_.stage_->taken();
  }

  std::span<const std::byte> wait() override {
    check(cudaSetDevice(device_.target().device));
    device_.wait_->wait(copied_, at_);
    device_.stage_->release(staged_);
    return {copy_.data(), copy_.size()};
  }

 private:
  CudaDevice& device_;
  const std::byte* from_;
  cuda::PinnedBytes copy_;
  cudaEvent_t copied_ = nullptr;
  cuda::StreamWait::Place at_;  // of the copy on the stream
  std::uint64_t staged_ = 0;
};

CudaDevice::CudaDevice(const CudaOptions& options)
    : name_(fmt::format("cuda:{}", options.device)), dump_(options.dump) {
  if (const std::string absence = cuda_absence(options.device); !absence.empty()) {
    fail(ErrorCode::unsupported, "{}", absence);
  }
  if (!options.path.empty() && options.path != "sm80") {
    fail(ErrorCode::invalid_argument, "CONCLAVE_CUDA: there is no '{}'; there is: sm80", options.path);
  }
  check(cudaSetDevice(options.device));
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, options.device));
  gpu_ = properties.name;
  int architecture = 0;  // what kernels can do is what they were compiled for, which may be less than the GPU has
  check(cuda::built_for(&architecture));
  target_ = {.device = options.device,
             .capability = options.path == "sm80" ? 80 : architecture,
             .multiprocessors = properties.multiProcessorCount,
             .l2_bytes = properties.l2CacheSize,
             .shared_bytes = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin)};
  stage_ = std::make_unique<cuda::HostStage>(kStageBytes);
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  wait_ = std::make_unique<cuda::StreamWait>(stream_);
}

CudaDevice::~CudaDevice() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

std::shared_ptr<Buffer> CudaDevice::allocate(std::int64_t bytes) {
  return CudaBuffer::make(target_.device, bytes, stream_);
}

void CudaDevice::upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) {
  std::byte* at = address(to, offset, bytes.size());
  if (bytes.empty()) return;
  check(cudaSetDevice(target_.device));
  // The host is never more than two programs ahead of the GPU.
  if (wait_->under_way() >= kMostAhead) wait();
  const bool staged = bytes.size() <= stage_->size();
  const std::byte* from = bytes.data();
  if (staged) {
    const std::span<std::byte> place = stage(bytes.size());
    std::memcpy(place.data(), bytes.data(), bytes.size());
    from = place.data();
  }
  check(cudaMemcpyAsync(at, from, bytes.size(), cudaMemcpyHostToDevice, stream_), "upload");
  if (!staged) wait();  // the caller's bytes may go
}

void CudaDevice::download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) {
  const std::byte* at = address(from, offset, bytes.size());
  if (bytes.empty()) return;
  check(cudaSetDevice(target_.device));
  const bool staged = bytes.size() <= stage_->size();
  if (!staged) wait();  // a copy to memory of the caller's would wait inside CUDA, and keep a core busy
  std::byte* const to = staged ? stage(bytes.size()).data() : bytes.data();
  check(cudaMemcpyAsync(to, at, bytes.size(), cudaMemcpyDeviceToHost, stream_), "download");
  wait();
  if (staged) std::memcpy(bytes.data(), to, bytes.size());
}

std::unique_ptr<Fetch> CudaDevice::fetch(const Buffer& from, std::int64_t offset, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  return std::make_unique<CudaFetch>(*this, address(from, offset, size), size);
}

void CudaDevice::wait() {
  wait_->wait();
  stage_->release_all();
}

// Some of the stage; where copies still use it all, they are waited for.
std::span<std::byte> CudaDevice::stage(std::size_t bytes) {
  if (!stage_->has_room(bytes)) wait();
  return stage_->take(bytes);
}

std::optional<std::int64_t> CudaDevice::available_bytes() const {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaSetDevice(target_.device));
  check(cudaMemGetInfo(&free, &total));
  return static_cast<std::int64_t>(free);
}

bool CudaDevice::reaches(const Buffer& buffer) const {
  const auto* ours = dynamic_cast<const CudaBuffer*>(&buffer);
  return ours != nullptr && ours->stream() == stream_;  // work on it is in the order of its own stream
}

std::vector<Tensor> CudaDevice::prepare(std::span<const Tensor> weights) {
  std::vector<Tensor> prepared(weights.begin(), weights.end());
  for (Tensor& w : prepared) {
    const bool q6_k = w.dtype == DType::q6_k;
    if (!w.defined() || !(q6_k || cuda::is_block_32(w.dtype)) || row_count(w) == 0 || w.inner() == 0) continue;
    const std::int64_t blocks = w.inner() / (q6_k ? 256 : 32);
    const std::int64_t stride =
        q6_k ? cuda::PlanesQ6K{blocks}.row_bytes() : cuda::Planes32{w.dtype, blocks}.row_bytes();
    const std::int64_t rows = row_count(w);
    // Rows must follow one another evenly, and padding must not cost more than it is worth.
    const auto stored_stride = cuda::even_stride(cuda::view_of(w));
    if (!stored_stride || stride * 50 > row_bytes(w) * 51) continue;
    const auto buffer = CudaBuffer::make(target_.device, rows * stride, stream_);
    buffer->set_planes();
    check(cuda::launch_spread({cuda::view_of(w).data, buffer->data(), *stored_stride, rows, blocks, w.dtype},
                              {stream_, false}),
          "prepare");
    Tensor made = w;
    made.buffer = buffer.get();
    made.byte_offset = 0;
    made.strides[static_cast<std::size_t>(w.rank - 2)] = stride;
    if (w.rank == 3) made.strides[0] = stride * w.dim(1);
    prepared_.push_back(buffer);
    w = made;
  }
  synchronize();
  return prepared;
}

Selection CudaDevice::select(const Op& op) const {
  try {
    std::visit([&](const auto& o) { cuda::make_cuda_op(o, target_); }, op);
  } catch (const Error& error) {
    return {.refusal = error.what()};
  }
  return {.plan = fmt::format("sm_{}", target_.capability)};
}

void CudaDevice::synchronize() {
  wait_->forget();
  wait();
}

std::unique_ptr<Executable> CudaDevice::build(const Program& program, CompileOptions options) {
  if (options.capture && dump_.pending()) {
    fail(ErrorCode::unsupported, "{}: the routing dump (CONCLAVE_MOE_DUMP) cannot be taken while a graph is captured",
         name_);
  }
  return std::make_unique<CudaExecutable>(*this, program, options.capture);
}

// The dump looks at the op's index tensors, in host memory: they are copied there.
void CudaDevice::offer_dump(const Op& op, Profile* profile) {
  if (!dump_.pending()) return;
  std::vector<std::shared_ptr<HostBuffer>> copies;
  Op on_host = op;
  std::visit(
      [&](auto& o) {
        for_each_tensor(o, [&](Role role, std::string_view, Tensor& t) {
          const ByteRange range = byte_range(t);
          if (!is_integer(t.dtype) || is_host(role) || range.empty()) return;
          copies.push_back(HostBuffer::make(range.end - range.begin));
          download(*t.buffer, range.begin, {copies.back()->host(), static_cast<std::size_t>(range.end - range.begin)});
          t.buffer = copies.back().get();
          t.byte_offset -= range.begin;
        });
      },
      on_host);
  dump_.offer(on_host, profile);
}

}  // namespace conclave
