// Runs a case on a device, on copies of its buffers, and looks at every byte afterwards.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/device.h"
#include "support/case.h"

namespace conclave::test {

// What a tensor that an op writes held afterwards (dense_bits).
using Outputs = std::map<std::string, std::vector<std::uint32_t>, std::less<>>;

struct Outcome {
  Outputs outputs;    // of roles out, inout and host_out
  std::string fault;  // not empty: bytes changed that the op may not write, or the op was refused
  Case after;         // the case with copies of its buffers as they are after the run, in host memory
};

// With a profile, the run adds its events.
Outcome execute(const Case& test_case, Device& device, Profile* profile = nullptr);

// A copy of the case on buffers of its own.
Case clone(const Case& test_case);

// The op with every tensor moved to another buffer, at the same offset.
Op rebind(Op op, const std::map<const Buffer*, Buffer*>& to);

}  // namespace conclave::test
