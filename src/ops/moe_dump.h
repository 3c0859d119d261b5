// The routing dump: one look at how a batch was laid out over the experts, for people who debug routing.
//
// CONCLAVE_MOE_DUMP=1 asks for it; CONCLAVE_MOE_DUMP_PAIRS=N waits for a batch of at least N pairs. It is written once
// per device, to stderr as one line and to the profile as a `moe_dump` event: kind of ids, pairs, block size, experts,
// padded total, active blocks, distinct experts, the first 48 ids, the expert of the first 32 blocks. Ops that group
// without blocks (moe_group, moe_ffn) show blocks of one row. It is refused while a graph is captured.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "ops/op.h"
#include "ops/profile.h"

namespace conclave {

struct MoeDumpRequest {
  std::int64_t min_pairs = 1;  // an empty batch shows nothing
};
// What the two variables ask for; nothing where CONCLAVE_MOE_DUMP is unset, empty or 0. Throws on a value that is no
// number.
std::optional<MoeDumpRequest> moe_dump_from_environment();

class MoeDump {
 public:
  using Sink = std::function<void(const std::string& line)>;

  // Without a sink, to stderr.
  explicit MoeDump(std::optional<MoeDumpRequest> request, Sink sink = {}) : request_(request), sink_(std::move(sink)) {}

  bool pending() const { return request_.has_value(); }
  // Looks at an op that has just run, its tensors in host memory. Writes if the op groups pairs and there are enough.
  void offer(const Op& op, Profile* profile);

 private:
  std::optional<MoeDumpRequest> request_;
  Sink sink_;
};

}  // namespace conclave
