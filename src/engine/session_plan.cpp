#include "engine/session_plan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>

#include "base/checked.h"
#include "base/fail.h"
#include "base/memory.h"

namespace conclave {
namespace {

constexpr std::int64_t kUsualContext = 4096;
// Positions are 32-bit, and so are page numbers.
constexpr std::int64_t kMaxSessionContext = (std::int64_t{1} << 31) - KvCachePlan::kPageSize;
constexpr std::int64_t kMaxSequences = 4096;
constexpr std::int64_t kMaxChunk = 8192;
constexpr std::int64_t kLeastChunk = 512;  // to which the usual one is halved where memory is short
// Logits of a large vocabulary are large: at most so many bytes of them at a time.
constexpr std::int64_t kLogitBytes = std::int64_t{48} << 20;

std::int64_t in_range(std::string_view what, std::int64_t value, std::int64_t max) {
  if (value >= 1 && value <= max) return value;
  fail(ErrorCode::invalid_argument, "{} is {}, must be 1 to {}", what, value, max);
}

DType cache_type(KvType type) {
  switch (type) {
    case KvType::f16:
      return DType::f16;
    case KvType::q8_0:
      return DType::q8_0;
    case KvType::bf16:
      return DType::bf16;
    case KvType::f32:
      return DType::f32;
  }
  fail(ErrorCode::invalid_argument, "the type of the KV cache is not one of f16, q8_0, bf16, f32");
}

std::int64_t rows_of_head(const ModelConfig& config, const SessionOptions& options, std::int64_t chunk) {
  if (options.logit_rows != 0)
    return std::min(chunk, in_range("the number of logit rows", options.logit_rows, kMaxChunk));
  const std::int64_t fit = std::max<std::int64_t>(kLogitBytes / (4 * config.n_vocab), 1);
  return std::min(chunk, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(fit))));
}

[[noreturn]] void refuse(const SessionPlan& plan, std::int64_t available) {
  const auto size = [](std::int64_t bytes) { return size_text(static_cast<std::uint64_t>(bytes)); };
  const std::int64_t left = std::max<std::int64_t>(available - plan.workspace_bytes, 0);
  const std::int64_t bytes_per_page = plan.kv.bytes / plan.kv.pages.max_pages;  // of all sequences together
  const std::int64_t would_fit = left / bytes_per_page * KvCachePlan::kPageSize;
  fail(ErrorCode::out_of_memory,
       "a context of {} tokens{} needs {} ({} for the {} cache, {} to compute in), and {} are available; {}",
       plan.kv.options.context,
       plan.kv.pages.n_seqs == 1 ? "" : fmt::format(" for each of {} sequences", plan.kv.pages.n_seqs),
       size(plan.kv.bytes + plan.workspace_bytes), size(plan.kv.bytes), dtype_info(plan.kv.options.type).name,
       size(plan.workspace_bytes), size(available),
       would_fit > 0 ? fmt::format("a context of {} would fit", would_fit) : "no context would fit");
}

// With workspace for so many tokens at once.
SessionPlan plan_chunks(const ModelConfig& config, const SessionOptions& options, const KvCachePlan& kv,
                        std::int64_t chunk) {
  SessionPlan plan{.kv = kv,
                   .workspace = {.max_tokens = chunk,
                                 .max_out = rows_of_head(config, options, chunk),
                                 .trace_routing = options.trace_routing}};
  plan.workspace_bytes = Workspace::bytes_for(config, plan.workspace);
  return plan;
}

bool fits(const SessionPlan& plan, std::optional<std::int64_t> available) {
  const auto total = checked_add(plan.kv.bytes, plan.workspace_bytes);
  if (!total) fail(ErrorCode::out_of_memory, "the session is larger than 64 bits can count");
  return !available || *total <= *available;
}

}  // namespace

SessionPlan plan_session(const ModelConfig& config, const SessionOptions& options,
                         std::optional<std::int64_t> available, std::int64_t usual_chunk) {
  const std::int64_t asked = options.context == 0 ? std::min(kUsualContext, config.n_context) : options.context;
  const std::int64_t context = in_range("the context", asked, kMaxSessionContext);
  const std::int64_t n_seqs = in_range("the number of sequences", options.max_sequences, kMaxSequences);
  // More than all sequences can take is never used.
  std::int64_t chunk =
      std::min(in_range("the chunk", options.chunk == 0 ? usual_chunk : options.chunk, kMaxChunk), context * n_seqs);
  const KvCachePlan kv(config, {.type = cache_type(options.kv_type), .context = context, .max_sequences = n_seqs});
  if (kv.pages.n_pages() > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorCode::invalid_argument, "{} sequences of {} tokens are more than can be numbered", n_seqs, context);
  }
  SessionPlan plan = plan_chunks(config, options, kv, chunk);
  while (!fits(plan, available) && options.chunk == 0 && chunk > kLeastChunk) {
    chunk = std::max(chunk / 2, kLeastChunk);
    plan = plan_chunks(config, options, kv, chunk);
  }
  if (!fits(plan, available)) refuse(plan, *available);
  return plan;
}

}  // namespace conclave
