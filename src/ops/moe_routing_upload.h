// moe_routing_upload: a routing made on the host, put on the device. Two forms, chosen by which members are given:
//
//   a Routing            experts and weights [n_tokens, top_k]
//   an aligned triple    sorted_ids, block_expert and n_padded as moe_align_blocks writes them
//
// Bits are copied as they are: an expert id out of range stays so, and later ops skip it. Destination entries past the
// source's length (a smaller host triple in a device triple of worst-case capacity) get the padding that
// moe_align_blocks would write: n_pairs in sorted_ids, -1 in block_expert.
#pragma once

#include "ops/members.h"
#include "ops/moe_align_blocks.h"
#include "ops/routing.h"

namespace conclave {

struct MoeRoutingUpload {
  static constexpr std::string_view kName = "moe_routing_upload";
  static constexpr bool kInPlace = false;

  Routing from;               // in HOST memory
  Routing to;                 // the same shape
  AlignedBlocks from_blocks;  // in HOST memory
  AlignedBlocks to_blocks;    // at least as long
  std::int64_t n_pairs = 0;   // of the aligned triple: what padding holds

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(host_in, "from_experts", op.from.experts);
    v.tensor(host_in, "from_weights", op.from.weights);
    v.tensor(host_in, "from_sorted_ids", op.from_blocks.sorted_ids);
    v.tensor(host_in, "from_block_expert", op.from_blocks.block_expert);
    v.tensor(host_in, "from_n_padded", op.from_blocks.n_padded);
    v.param("n_pairs", op.n_pairs);
    v.tensor(out, "experts", op.to.experts);
    v.tensor(out, "weights", op.to.weights);
    v.tensor(out, "sorted_ids", op.to_blocks.sorted_ids);
    v.tensor(out, "block_expert", op.to_blocks.block_expert);
    v.tensor(out, "n_padded", op.to_blocks.n_padded);
  }
};

void validate(const MoeRoutingUpload& op);
void reference(const MoeRoutingUpload& op);

}  // namespace conclave
