// The step loop: inputs are cut into chunks; a chunk gets its places in the cache, runs as one program, and its rows
// go to the hooks.
#include "conclave/session.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <vector>

#include "base/fail.h"
#include "engine/begun_steps.h"
#include "engine/loaded_model.h"
#include "engine/request_check.h"
#include "engine/session_plan.h"
#include "engine/step_programs.h"
#include "ops/profile.h"

namespace conclave {
namespace {

// A row of the chunk whose logits, or last routing, somebody wants.
struct WantedRow {
  std::int32_t row;
  std::size_t input;
  std::size_t token;
  bool logits;
};

Phase phase_of(const StepInput& input, bool exact_prompts) {
  if (exact_prompts) return Phase::decode;
  if (input.kind == TokenKind::by_count) return input.tokens.size() > 1 ? Phase::prefill : Phase::decode;
  return input.kind == TokenKind::prompt ? Phase::prefill : Phase::decode;
}

// Consecutive tokens of one input that are in the chunk.
struct Piece {
  std::size_t input;
  std::size_t first;  // of the input's tokens
  std::size_t count;
};

}  // namespace

static_assert(kTopLogits == Workspace::kTopLogits);

struct Session::Impl {
  Impl(const Model& of, const SessionOptions& options)
      : model(of),
        device(*of.impl().device),
        config(of.impl().description.config),
        plan(plan_session(config, options, device.available_bytes(), device.usual_rows())),
        kv(device, config, plan.kv),
        workspace(device, config, plan.workspace),
        inputs(device, plan.inputs()),
        programs(device, {config, of.impl().weights, kv, workspace, inputs},
                 {.n_tokens = plan.workspace.max_tokens,
                  .n_out = plan.workspace.max_out,
                  .context = plan.kv.options.context}),
        request_check(kv, plan.kv.pages.n_seqs, config.n_vocab),
        begun({device, kv, inputs, programs, workspace, request_check},
              static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(plan.workspace.max_out)))),
        exact_prompts(options.exact_prompts) {
    pieces.reserve(static_cast<std::size_t>(chunk()));
    wanted.reserve(static_cast<std::size_t>(chunk()));
    out_rows.reserve(static_cast<std::size_t>(chunk()));
    best.reserve(static_cast<std::size_t>(plan.workspace.max_out));
    top.reserve(static_cast<std::size_t>(2 * plan.workspace.max_out * kTopLogits));
    if (plan.workspace.trace_routing) {
      experts.resize(static_cast<std::size_t>(chunk() * config.experts.rule.top_k));
      weights.resize(experts.size());
    }
  }

  std::int64_t chunk() const { return plan.workspace.max_tokens; }

  void step(std::span<const StepInput> requests, const StepHooks& hooks);
  std::int64_t check(std::span<const StepInput> requests, const StepHooks& hooks);
  std::size_t fill_chunk(std::span<const StepInput> requests, bool every_row, Piece& cursor);
  void run_chunk(std::span<const StepInput> requests, const StepHooks& hooks, Profile* profile);
  void give_logits(std::span<const WantedRow> rows, const StepHooks& hooks);
  void give_best(std::span<const WantedRow> rows, const StepHooks& hooks);
  void give_top(std::span<const WantedRow> rows, const StepHooks& hooks, Profile* profile);
  void give_routing(std::span<const WantedRow> rows, std::int64_t layer, const StepHooks& hooks);
  std::span<const float> logit_row(std::int64_t i);
  std::vector<std::int64_t> expert_counts();

  Model model;
  Device& device;
  const ModelConfig& config;
  SessionPlan plan;
  KvCache kv;
  Workspace workspace;
  StepInputs inputs;
  StepPrograms programs;
  RequestCheck request_check;
  BegunSteps begun;

  // Of the chunk that is being worked on; kept for the next one.
  Phase phase = Phase::decode;
  std::int64_t longest = 0;  // text of it, with what it adds
  std::vector<Piece> pieces;
  std::vector<WantedRow> wanted;
  std::vector<std::int32_t> out_rows;
  bool exact_prompts;
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
  std::vector<float> logits;  // where the host cannot see the device's
  std::vector<std::int32_t> best;
  std::vector<std::int32_t> top;           // ids of the best logits of some rows, then the bits of the logits
  std::vector<std::uint32_t> seen_counts;  // the device's, which start anew at 2^32, when they were last asked for
  std::vector<std::int64_t> total_counts;
};

// Everything that can be wrong with a request, before anything is changed. Gives the number of tokens.
std::int64_t Session::Impl::check(std::span<const StepInput> requests, const StepHooks& hooks) {
  if (hooks.routing && !plan.workspace.trace_routing) {
    fail(ErrorCode::invalid_argument, "the routing was asked for, but the session does not trace it");
  }
  if (begun.under_way() > 0) {
    fail(ErrorCode::invalid_argument, "steps that were begun are under way: they must be finished or forgotten first");
  }
  request_check.start();
  std::int64_t total = 0;
  for (const StepInput& input : requests) {
    const auto count = static_cast<std::int64_t>(input.tokens.size());
    request_check.sequence(input.sequence, count);
    for (std::size_t i = 0; i < input.tokens.size(); ++i) request_check.token(i, input.tokens[i]);
    total += count;
  }
  return total;
}

// Takes tokens from where the cursor stands until the chunk is full, the phase is another, or there are none left; gives
// their number. `every_row`: all of them go through the last layer, whether or not their logits are wanted.
std::size_t Session::Impl::fill_chunk(std::span<const StepInput> requests, bool every_row, Piece& cursor) {
  inputs.clear();
  pieces.clear();
  wanted.clear();
  longest = 0;
  auto room = static_cast<std::size_t>(chunk());
  const auto phase_at = [&](std::size_t input) { return phase_of(requests[input], exact_prompts); };
  phase = phase_at(cursor.input);
  while (room > 0 && cursor.input < requests.size() && phase_at(cursor.input) == phase) {
    const StepInput& request = requests[cursor.input];
    cursor.count = std::min(room, request.tokens.size() - cursor.first);
    pieces.push_back(cursor);
    room -= cursor.count;
    cursor.first += cursor.count;
    if (cursor.first == request.tokens.size()) cursor = {.input = cursor.input + 1};
  }
  for (const Piece& piece : pieces) {
    const StepInput& request = requests[piece.input];
    const std::int64_t length = kv.length(request.sequence);
    kv.make_room(request.sequence, static_cast<std::int64_t>(piece.count));
    inputs.set_length(request.sequence, length + static_cast<std::int64_t>(piece.count));
    longest = std::max(longest, length + static_cast<std::int64_t>(piece.count));
    for (std::size_t i = 0; i < piece.count; ++i) {
      const std::size_t token = piece.first + i;
      const bool logits_wanted =
          request.logits == LogitRows::all || (request.logits == LogitRows::last && token + 1 == request.tokens.size());
      if (logits_wanted || every_row) {
        wanted.push_back({static_cast<std::int32_t>(inputs.n_tokens()), piece.input, token, logits_wanted});
      }
      inputs.add(request.tokens[token], request.sequence, length + static_cast<std::int64_t>(i));
    }
  }
  kv.upload_pages();
  return static_cast<std::size_t>(chunk()) - room;
}

void Session::Impl::run_chunk(std::span<const StepInput> requests, const StepHooks& hooks, Profile* profile) {
  const StepPrograms::Step& step = programs.step({.n_tokens = inputs.n_tokens(),
                                                  .n_out = static_cast<std::int64_t>(wanted.size()),
                                                  .context = longest,
                                                  .phase = phase});
  std::size_t done = 0;
  const auto take_rows = [&](std::int64_t at_most) {
    const std::size_t count = std::min(wanted.size() - done, static_cast<std::size_t>(at_most));
    const std::span<const WantedRow> rows(wanted.data() + done, count);
    out_rows.clear();
    for (const WantedRow& row : rows) out_rows.push_back(row.row);
    inputs.set_out_rows(out_rows);
    inputs.upload(step.size.n_tokens);
    done += count;
    return rows;
  };
  std::span<const WantedRow> rows = take_rows(step.size.n_out);
  step.run->run(profile);
  for (const Piece& piece : pieces) {
    kv.advance(requests[piece.input].sequence, static_cast<std::int64_t>(piece.count));
  }
  if (hooks.routing) {
    for (std::int64_t layer = 0; layer + 1 < config.n_layers; ++layer) give_routing(wanted, layer, hooks);
  }
  while (!rows.empty()) {
    if (hooks.routing) give_routing(rows, config.n_layers - 1, hooks);
    if (hooks.logits) give_logits(rows, hooks);
    if (hooks.best) give_best(rows, hooks);
    if (hooks.top) give_top(rows, hooks, profile);
    if (done == wanted.size()) break;
    rows = take_rows(plan.workspace.max_out);
    programs.outputs(phase).run(profile);
  }
}

// Row i of the logits as the host sees it.
std::span<const float> Session::Impl::logit_row(std::int64_t i) {
  const Tensor row = select_outer(workspace.logits(plan.workspace.max_out), i);
  const auto width = static_cast<std::size_t>(config.n_vocab);
  if (const std::byte* host = row.buffer->host()) {
    return {reinterpret_cast<const float*>(host + row.byte_offset), width};
  }
  logits.resize(width);
  device.download(*row.buffer, row.byte_offset, std::as_writable_bytes(std::span(logits)));
  return logits;
}

void Session::Impl::give_logits(std::span<const WantedRow> rows, const StepHooks& hooks) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].logits) continue;
    hooks.logits({rows[i].input, rows[i].token, logit_row(static_cast<std::int64_t>(i))});
  }
}

void Session::Impl::give_best(std::span<const WantedRow> rows, const StepHooks& hooks) {
  const Tensor ids = workspace.best(plan.workspace.max_out);
  best.resize(rows.size());
  device.download(*ids.buffer, ids.byte_offset, std::as_writable_bytes(std::span(best)));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].logits) hooks.best({rows[i].input, rows[i].token, best[i]});
  }
}

void Session::Impl::give_top(std::span<const WantedRow> rows, const StepHooks& hooks, Profile* profile) {
  const StepPrograms::Top& program = programs.top(static_cast<std::int64_t>(rows.size()));
  program.run->run(profile);
  const Tensor at = workspace.top(program.n_rows).ids;
  top.resize(static_cast<std::size_t>(2 * program.n_rows * kTopLogits));
  device.download(*at.buffer, at.byte_offset, std::as_writable_bytes(std::span(top)));
  constexpr auto kWidth = static_cast<std::size_t>(kTopLogits);
  const std::span<const std::int32_t> all_ids = std::span(top).first(top.size() / 2);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].logits) continue;
    const auto ids = all_ids.subspan(i * kWidth, kWidth);
    const auto n = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), -1) - ids.begin());
    std::array<float, kWidth> logits_of;
    std::memcpy(logits_of.data(), top.data() + all_ids.size() + i * kWidth, sizeof logits_of);
    hooks.top({rows[i].input, rows[i].token, ids.first(n), std::span(logits_of).first(n)});
  }
}

// The rows of a routing, in order, are those of the step; of the last layer, those that went through it together.
void Session::Impl::give_routing(std::span<const WantedRow> rows, std::int64_t layer, const StepHooks& hooks) {
  const auto top_k = static_cast<std::size_t>(config.experts.rule.top_k);
  const Routing routing = workspace.routing(layer);
  const std::span<std::int32_t> ids(experts.data(), rows.size() * top_k);
  const std::span<float> shares(weights.data(), rows.size() * top_k);
  device.download(*routing.experts.buffer, routing.experts.byte_offset, std::as_writable_bytes(ids));
  device.download(*routing.weights.buffer, routing.weights.byte_offset, std::as_writable_bytes(shares));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    hooks.routing(
        {rows[i].input, rows[i].token, layer, ids.subspan(i * top_k, top_k), shares.subspan(i * top_k, top_k)});
  }
}

void Session::Impl::step(std::span<const StepInput> requests, const StepHooks& hooks) {
  const std::int64_t total = check(requests, hooks);
  begun.interrupt();
  std::optional<Profile> profile;
  if (hooks.profile) profile.emplace(hooks.profile);
  Piece cursor{};
  for (std::int64_t done = 0; done < total;) {
    done += static_cast<std::int64_t>(fill_chunk(requests, static_cast<bool>(hooks.routing), cursor));
    run_chunk(requests, hooks, profile ? &*profile : nullptr);
    if (hooks.progress && !hooks.progress(done, total)) return;
  }
}

std::vector<std::int64_t> Session::Impl::expert_counts() {
  const Tensor counts = workspace.expert_counts();
  std::vector<std::uint32_t> now(static_cast<std::size_t>(element_count(counts)));
  device.download(*counts.buffer, counts.byte_offset, std::as_writable_bytes(std::span(now)));
  seen_counts.resize(now.size());
  total_counts.resize(now.size());
  for (std::size_t i = 0; i < now.size(); ++i) total_counts[i] += now[i] - seen_counts[i];
  seen_counts = std::move(now);
  return total_counts;
}

Session::Session(const Model& model, const SessionOptions& options) : impl_(std::make_unique<Impl>(model, options)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

SequenceId Session::create() {
  return impl_->kv.create();
}
SequenceId Session::fork(SequenceId sequence) {
  return impl_->kv.fork(sequence);
}
void Session::cut(SequenceId sequence, std::int64_t n_tokens) {
  impl_->kv.cut(sequence, n_tokens);
  impl_->begun.interrupt(sequence);
}
void Session::drop(SequenceId sequence) {
  impl_->kv.drop(sequence);
  impl_->begun.interrupt(sequence);
}
std::int64_t Session::length(SequenceId sequence) const {
  return impl_->kv.length(sequence);
}

void Session::step(std::span<const StepInput> inputs, const StepHooks& hooks) {
  impl_->step(inputs, hooks);
}

std::span<const float> Session::extend(SequenceId sequence, std::span<const std::int32_t> tokens) {
  std::span<const float> last;
  const StepInput input{.sequence = sequence, .tokens = tokens};
  impl_->step({&input, 1}, {.logits = [&last](const LogitRow& row) { last = row.logits; }});
  return last;
}

std::int32_t Session::extend_best(SequenceId sequence, std::span<const std::int32_t> tokens) {
  std::int32_t id = -1;
  const StepInput input{.sequence = sequence, .tokens = tokens};
  impl_->step({&input, 1}, {.best = [&id](const BestRow& row) { id = row.id; }});
  return id;
}

void Session::begin(std::span<const NextToken> tokens) {
  impl_->begun.begin(tokens);
}
std::span<const std::int32_t> Session::finish() {
  return impl_->begun.finish();
}
void Session::forget() {
  impl_->begun.forget();
}
std::int64_t Session::most_begun_sequences() const {
  return impl_->begun.most_sequences();
}
bool Session::runs_ahead() const {
  return impl_->device.runs_ahead();
}

std::vector<std::int64_t> Session::expert_counts() {
  return impl_->expert_counts();
}

const Model& Session::model() const {
  return impl_->model;
}
std::int64_t Session::context() const {
  return impl_->kv.context();
}
std::int64_t Session::chunk() const {
  return impl_->chunk();
}
bool Session::logits_are_near() const {
  return impl_->workspace.logits(1).buffer->host() != nullptr;
}
std::int64_t Session::max_sequences() const {
  return impl_->plan.kv.pages.n_seqs;
}
SessionMemory Session::memory() const {
  return {.kv_bytes = impl_->plan.kv.bytes, .workspace_bytes = impl_->plan.workspace_bytes};
}

}  // namespace conclave
