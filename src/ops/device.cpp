#include "ops/device.h"

#include "base/fail.h"

namespace conclave {
namespace {

class DownloadingFetch final : public Fetch {
 public:
  DownloadingFetch(Device& device, const Buffer& from, std::int64_t offset, std::int64_t bytes)
      : device_(device), from_(from), offset_(offset), bytes_(static_cast<std::size_t>(bytes)) {}
  void begin() override { device_.download(from_, offset_, bytes_); }
  std::span<const std::byte> wait() override { return bytes_; }

 private:
  Device& device_;
  const Buffer& from_;
  std::int64_t offset_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<Fetch> Device::fetch(const Buffer& from, std::int64_t offset, std::int64_t bytes) {
  return std::make_unique<DownloadingFetch>(*this, from, offset, bytes);
}

std::unique_ptr<Executable> Device::compile(const Program& program, CompileOptions options) {
  for (const Op& op : program.ops()) {
    validate(op);
    for (const Access& access : accesses(op)) {
      if (is_host(access.role) || reaches(*access.tensor.buffer)) continue;
      fail(ErrorCode::invalid_argument, "{}: {} is not in the memory of {}", op_name(op), access.name, name());
    }
    if (const Selection selection = select(op); !selection.supported()) {
      fail(ErrorCode::unsupported, "{} on {}: {}", op_name(op), name(), selection.refusal);
    }
  }
  return build(program, options);
}

void Device::run(const Op& op, Profile* profile) {
  Program program;
  program.record(op);
  compile(program)->run(profile);
}

}  // namespace conclave
