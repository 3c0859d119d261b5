#include "ops/device.h"

#include "base/fail.h"

namespace conclave {

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
