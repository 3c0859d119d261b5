#include "backends/ref/ref_device.h"

#include <chrono>
#include <cstring>

#include "base/fail.h"
#include "ops/host_access.h"
#include "ops/host_transfer.h"

namespace conclave {

class RefExecutable final : public Executable {
 public:
  RefExecutable(RefDevice& device, const Program& program)
      : device_(device), ops_(program.ops().begin(), program.ops().end()) {}

  void run(Profile* profile) override {
    for (const Op& op : ops_) device_.run_one(op, profile);
  }

 private:
  RefDevice& device_;
  std::vector<Op> ops_;
};

RefDevice::RefDevice(std::optional<MoeDumpRequest> dump) : dump_(dump) {}

void RefDevice::upload(Buffer& to, std::int64_t offset, std::span<const std::byte> bytes) {
  host_upload(to, offset, bytes);
}

void RefDevice::download(const Buffer& from, std::int64_t offset, std::span<std::byte> bytes) {
  host_download(from, offset, bytes);
}

std::unique_ptr<Executable> RefDevice::build(const Program& program, CompileOptions options) {
  if (options.capture) {
    if (dump_.pending()) {
      fail(ErrorCode::unsupported,
           "ref: the routing dump (CONCLAVE_MOE_DUMP) cannot be taken while a graph is captured");
    }
    for (const Op& op : program.ops()) {
      const auto* route = std::get_if<MoeRouteToHost>(&op);
      if (route != nullptr && route->scratch_bytes() > host_copy_bytes()) {
        fail(ErrorCode::unsupported,
             "moe_route_to_host: needs {} bytes of scratch and has {}, and cannot grow while a graph is captured; run "
             "it "
             "once at this shape first",
             route->scratch_bytes(), host_copy_bytes());
      }
    }
  }
  return std::make_unique<RefExecutable>(*this, program);
}

void RefDevice::run_one(const Op& op, Profile* profile) {
  const auto start = std::chrono::steady_clock::now();
  if (const auto* route = std::get_if<MoeRouteToHost>(&op)) {
    route_to_host(*route);
  } else {
    reference(op);
  }
  const std::chrono::duration<double, std::micro> elapsed = std::chrono::steady_clock::now() - start;
  if (profile != nullptr) profile->op_event(op, name(), elapsed.count());
  dump_.offer(op, profile);
}

// As a device with memory of its own does it: route into scratch, then copy out what was written.
void RefDevice::route_to_host(const MoeRouteToHost& op) {
  if (op.scratch_bytes() > host_copy_bytes()) host_copy_ = HostBuffer::make(op.scratch_bytes());
  const std::int64_t n_tokens = op.logits.dim(0);
  const std::int64_t top_k = op.rule.top_k;
  if (n_tokens == 0) return;
  MoeRoute route = op.route();
  route.out = {.experts = dense(*host_copy_, 0, DType::i32, {n_tokens, top_k}),
               .weights = dense(*host_copy_, n_tokens * top_k * 4, DType::f32, {n_tokens, top_k})};
  reference(route);
  const std::int64_t n_live = live_rows(op.live, n_tokens);
  const auto copy_rows = [&](const Tensor& from, const Tensor& to) {
    for (std::int64_t t = 0; t < n_live; ++t) {
      std::memcpy(row_address(to, {t}), row_address(from, {t}), static_cast<std::size_t>(row_bytes(from)));
    }
  };
  copy_rows(route.out.experts, op.out.experts);
  copy_rows(route.out.weights, op.out.weights);
}

}  // namespace conclave
