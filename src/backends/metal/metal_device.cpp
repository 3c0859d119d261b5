#include "backends/metal/metal_device.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "backends/metal/hazards.h"
#include "backends/metal/launch.h"
#include "base/fail.h"
#include "ops/host_transfer.h"

namespace conclave {

using metal::Dispatch;
using metal::HostStep;
using metal::MetalOp;

// A program made ready: pipelines, bindings and barriers are all known; a run puts them into a command buffer.
class MetalExecutable final : public Executable {
 public:
  MetalExecutable(MetalDevice& device, const Program& program)
      : device_(device), ops_(program.ops().begin(), program.ops().end()) {
    std::int64_t scratch = 0;
    std::int64_t constants = 0;
    for (const Op& op : ops_) {
      made_.push_back(std::visit([&](const auto& o) { return metal::make_metal_op(o, device.target()); }, op));
      scratch = std::max(scratch, made_.back().scratch_bytes);
      constants_at_.push_back(constants);
      constants += metal::ceil_div(static_cast<std::int64_t>(made_.back().constants.size()), metal::kBindAlignment) *
                   metal::kBindAlignment;
    }
    scratch_ = device.scratch(scratch);
    constants_ = device.gpu().allocate(constants);
    for (std::size_t i = 0; i < ops_.size(); ++i) ready_.push_back(prepare(i));
  }

  void run(Profile* profile) override {
    const bool one_by_one = profile != nullptr || device_.dump_.pending();
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (const Step& step : ready_[i]) put(step);
      if (!one_by_one) continue;
      settle();
      const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
      if (profile != nullptr) profile->op_event(ops_[i], device_.name(), elapsed.count());
      device_.dump_.offer(ops_[i], profile);
    }
    settle();  // memory is shared: whoever looks at it next may be the host
  }

 private:
  struct Step {
    metal::Encoded kernel;
    bool barrier = false;            // before it
    const HostStep* host = nullptr;  // instead of a kernel
  };

  metal::Binding bind(const metal::Range& range, std::size_t op) const {
    using In = metal::Range::In;
    if (range.in == In::nothing) return {};
    const Buffer* buffer = range.in == In::buffer    ? range.buffer
                           : range.in == In::scratch ? scratch_.get()
                                                     : constants_.get();
    const std::int64_t base = range.in == In::constants ? constants_at_[op] : 0;
    return {.buffer = buffer,
            .offset = (base + range.begin) / metal::kBindAlignment * metal::kBindAlignment,
            .begin = base + range.begin,
            .end = base + range.end,
            .writes = range.writes};
  }

  std::uint32_t threads_of(const Dispatch& dispatch) {
    const std::uint32_t most =
        device_.gpu().max_threads(device_.gpu().pipeline(dispatch.kernel)) / metal::kSimdWidth * metal::kSimdWidth;
    if (most == 0 || (dispatch.needs_all_threads && most < dispatch.threads)) {
      fail(ErrorCode::unsupported, "metal: {} has {} threads in a threadgroup for {}, {} are needed",
           device_.gpu().name(), most, dispatch.kernel, dispatch.threads);
    }
    return std::min(most, dispatch.threads);
  }

  std::vector<Step> prepare(std::size_t op) {
    MetalOp& made = made_[op];
    std::copy(made.constants.begin(), made.constants.end(), constants_->host() + constants_at_[op]);
    std::vector<Step> steps;
    for (const auto& step : made.steps) {
      Step ready;
      if (const auto* host = std::get_if<HostStep>(&step)) {
        ready.host = host;
        hazards_.clear();  // all kernels before it have ended
      } else {
        const auto& dispatch = std::get<Dispatch>(step);
        ready.kernel = {.pipeline = device_.gpu().pipeline(dispatch.kernel),
                        .args = dispatch.args,
                        .groups = dispatch.groups,
                        .threads = threads_of(dispatch),
                        .shared_bytes = dispatch.shared_bytes};
        std::vector<metal::Binding> touched;
        for (std::size_t i = 0; i < dispatch.ranges.size(); ++i) {
          ready.kernel.bindings[i] = bind(dispatch.ranges[i], op);
          touched.push_back(ready.kernel.bindings[i]);
        }
        if (dispatch.indirect) {
          ready.kernel.indirect = bind(*dispatch.indirect, op);
          touched.push_back(*ready.kernel.indirect);
        }
        ready.barrier = hazards_.add(touched);
      }
      steps.push_back(ready);
    }
    return steps;
  }

  void put(const Step& step) {
    if (step.host != nullptr) {
      settle();
      step.host->run(scratch_->host());
      return;
    }
    if (step.barrier) device_.gpu().barrier();
    device_.gpu().dispatch(step.kernel);
  }

  void settle() {
    device_.gpu().commit();
    device_.gpu().wait();
  }

  MetalDevice& device_;
  std::vector<Op> ops_;
  std::vector<MetalOp> made_;
  std::vector<std::int64_t> constants_at_;
  std::shared_ptr<Buffer> scratch_;
  std::shared_ptr<Buffer> constants_;
  metal::Hazards hazards_;
  std::vector<std::vector<Step>> ready_;  // of each op
};

std::string metal_absence() {
  return metal::gpu_absence();
}

MetalDevice::MetalDevice(const MetalOptions& options) : MetalDevice(metal::make_gpu(), options) {}

MetalDevice::MetalDevice(std::unique_ptr<metal::Gpu> gpu, const MetalOptions& options)
    : gpu_(std::move(gpu)),
      target_{.has_device_fence = gpu_->has_device_fence(), .products = options.products},
      dump_(options.dump) {}

MetalDevice::~MetalDevice() = default;

std::shared_ptr<Buffer> MetalDevice::allocate(std::int64_t bytes) {
  return gpu_->allocate(bytes);
}

void MetalDevice::upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) {
  host_upload(to, offset, bytes);
}

void MetalDevice::download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) {
  host_download(from, offset, bytes);
}

// Programs run one after another: they share what is left over between ops. A larger one gets a larger piece, which those
// that are compiled after it share.
std::shared_ptr<Buffer> MetalDevice::scratch(std::int64_t bytes) {
  if (!scratch_ || scratch_->bytes() < bytes) scratch_ = gpu_->allocate(bytes);
  return scratch_;
}

Selection MetalDevice::select(const Op& op) const {
  try {
    const MetalOp made = std::visit([&](const auto& o) { return metal::make_metal_op(o, target_); }, op);
    std::string plan = "metal";
    for (const auto& step : made.steps) {
      if (const auto* dispatch = std::get_if<Dispatch>(&step)) plan += " " + dispatch->kernel;
    }
    return {.plan = plan};
  } catch (const Error& error) {
    return {.refusal = error.what()};
  }
}

std::unique_ptr<Executable> MetalDevice::build(const Program& program, CompileOptions options) {
  if (options.capture && dump_.pending()) {
    fail(ErrorCode::unsupported,
         "metal: the routing dump (CONCLAVE_MOE_DUMP) cannot be taken while a graph is captured");
  }
  if (options.capture) {
    for (const Op& op : program.ops()) {
      const MetalOp made = std::visit([&](const auto& o) { return metal::make_metal_op(o, target_); }, op);
      if (!made.capture_refusal.empty()) fail(ErrorCode::unsupported, "{}: {}", op_name(op), made.capture_refusal);
    }
  }
  return std::make_unique<MetalExecutable>(*this, program);
}

}  // namespace conclave
