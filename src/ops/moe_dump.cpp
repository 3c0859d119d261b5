#include "ops/moe_dump.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/fail.h"
#include "ops/host_access.h"

namespace conclave {
namespace {

constexpr std::size_t kMaxIds = 48;
constexpr std::size_t kMaxBlocks = 32;

struct Layout {
  RowIds kind = RowIds::packed;
  std::int64_t pairs = 0;
  std::int64_t block_size = 1;
  std::int64_t experts = 0;
  std::int64_t padded = 0;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> block_expert;
};

std::optional<Layout> layout_of(const MoeAlignBlocks& op) {
  Layout layout{.kind = op.ids,
                .pairs = op.experts.dim(0) * op.experts.dim(1),
                .block_size = op.block_size,
                .experts = op.n_experts,
                .padded = load_i32(op.out.n_padded, {0})};
  for (std::int64_t i = 0; i < layout.padded; ++i) layout.ids.push_back(load_i32(op.out.sorted_ids, {i}));
  for (std::int64_t b = 0; b < layout.padded / op.block_size; ++b) {
    layout.block_expert.push_back(load_i32(op.out.block_expert, {b}));
  }
  return layout;
}

// Ops that group without blocks: a block of one row for every pair. What a fused op keeps in scratch may be anything, so the
// pairs are grouped again here from the routing.
Layout layout_of_groups(const Tensor& experts, const Tensor& live, std::int64_t n_experts) {
  Layout layout{.kind = RowIds::pair, .pairs = experts.dim(0) * experts.dim(1), .experts = n_experts};
  std::int32_t expert = 0;
  for (const auto& pairs : pairs_of_experts(experts, live, n_experts)) {
    layout.ids.insert(layout.ids.end(), pairs.begin(), pairs.end());
    layout.block_expert.insert(layout.block_expert.end(), pairs.size(), expert++);
  }
  layout.padded = static_cast<std::int64_t>(layout.ids.size());
  return layout;
}

std::optional<Layout> layout_of(const MoeGroup& op) {
  return layout_of_groups(op.experts, op.live, op.n_experts);
}
std::optional<Layout> layout_of(const MoeFfn& op) {
  return layout_of_groups(op.routing.experts, op.live, op.logits.dim(1));
}
template <class Other>
std::optional<Layout> layout_of(const Other&) {
  return std::nullopt;
}

std::vector<std::int32_t> first(const std::vector<std::int32_t>& list, std::size_t most) {
  return {list.begin(), list.begin() + static_cast<std::ptrdiff_t>(std::min(most, list.size()))};
}

}  // namespace

std::optional<MoeDumpRequest> moe_dump_from_environment() {
  const char* asked = std::getenv("CONCLAVE_MOE_DUMP");
  if (asked == nullptr || *asked == '\0' || std::strcmp(asked, "0") == 0) return std::nullopt;
  if (std::strcmp(asked, "1") != 0)
    fail(ErrorCode::invalid_argument, "CONCLAVE_MOE_DUMP is '{}', expected 0 or 1", asked);
  MoeDumpRequest request;
  const char* pairs = std::getenv("CONCLAVE_MOE_DUMP_PAIRS");
  if (pairs == nullptr || *pairs == '\0') return request;
  const char* end = pairs + std::strlen(pairs);
  const auto [stop, error] = std::from_chars(pairs, end, request.min_pairs);
  if (error != std::errc{} || stop != end || request.min_pairs < 0) {
    fail(ErrorCode::invalid_argument, "CONCLAVE_MOE_DUMP_PAIRS is '{}', expected a number of pairs", pairs);
  }
  return request;
}

void MoeDump::offer(const Op& op, Profile* profile) {
  if (!request_) return;
  const std::optional<Layout> layout = std::visit([](const auto& o) { return layout_of(o); }, op);
  if (!layout || layout->pairs < request_->min_pairs) return;
  request_.reset();
  const std::set<std::int32_t> distinct(layout->block_expert.begin(), layout->block_expert.end());
  const nlohmann::ordered_json event = {{"event", "moe_dump"},
                                        {"kind", name(layout->kind)},
                                        {"pairs", layout->pairs},
                                        {"block_size", layout->block_size},
                                        {"experts", layout->experts},
                                        {"padded", layout->padded},
                                        {"active_blocks", layout->block_expert.size()},
                                        {"distinct_experts", distinct.size()},
                                        {"ids", first(layout->ids, kMaxIds)},
                                        {"blocks", first(layout->block_expert, kMaxBlocks)}};
  const std::string line = event.dump();
  if (sink_) {
    sink_(line);
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  if (profile != nullptr) profile->event(event.dump());
}

}  // namespace conclave
