// Session: sequences of tokens over one model, and the step that extends them.
//
//   const conclave::SequenceId chat = session.create();
//   std::span<const float> logits = session.extend(chat, prompt);      // of the last token, [n_vocab]
//   std::int32_t id = session.extend_best(chat, prompt);               // or only which of them is the largest
//
// A sequence's keys and values are cached in pages. A fork shares them until one of the two writes; cutting a sequence
// back forgets its last tokens. All memory is allocated when the session is made, or when a batch size comes up for the
// first time: a step of a size that was there before allocates nothing.
//
// The same tokens give the same bits, alone or beside others, in one step or in many (see TokenKind), in a fork or from
// the start, at any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "conclave/model.h"

namespace conclave {

enum class KvType { f16, q8_0, bf16, f32 };

struct SessionOptions {
  std::int64_t context = 0;        // tokens of a sequence; 0: 4096, or what the model was trained for if that is less
  std::int64_t max_sequences = 1;  // that exist at a time
  std::int64_t chunk = 0;  // tokens that go through the model at once, 0: 512, with CUDA 4096; longer inputs are cut
  KvType kv_type = KvType::f16;
  std::int64_t logit_rows = 0;  // tokens whose logits are computed at once; 0: as many as 48 MiB hold
  bool trace_routing = false;   // keep every layer's routing: needed for StepHooks::routing
  bool exact_prompts = false;   // compute prompts as generated tokens are, which all devices have in common
};

using SequenceId = std::int32_t;

enum class LogitRows { none, last, all };

// Which tokens an input has. A GPU may have one arithmetic for prompts and another for generated tokens; a token's bits
// depend on which it is (within rounding), never on the step it came in.
enum class TokenKind {
  by_count,  // a single token was generated, more are a prompt
  prompt,
  generated,
};

// New tokens of one sequence.
struct StepInput {
  SequenceId sequence = 0;
  std::span<const std::int32_t> tokens;  // at least one
  LogitRows logits = LogitRows::last;
  TokenKind kind = TokenKind::by_count;
};

// What comes out for one token. The spans are the session's, good until the hook returns.
struct LogitRow {
  std::size_t input;              // which StepInput
  std::size_t token;              // which of its tokens
  std::span<const float> logits;  // [n_vocab]
};
// The token of the largest logit: of equal ones the lowest, and a NaN is never the largest. -1 where every logit is NaN
// or minus infinity.
struct BestRow {
  std::size_t input;
  std::size_t token;
  std::int32_t id;
};
// The largest logits, at most kTopLogits, best first; of equal ones the lowest token first. Fewer where not so many are
// above minus infinity; plus infinity is given as the largest float.
inline constexpr std::int64_t kTopLogits = 64;
struct TopRow {
  std::size_t input;
  std::size_t token;
  std::span<const std::int32_t> ids;
  std::span<const float> logits;  // of each id
};
struct RoutingRow {
  std::size_t input;
  std::size_t token;
  std::int64_t layer;
  std::span<const std::int32_t> experts;  // [top_k], best first
  std::span<const float> weights;         // [top_k]
};

// What a step tells while it runs; each may be empty.
struct StepHooks {
  // For each token that StepInput::logits names; rows of an input in order, inputs in order. The best one and the best
  // ones are found on the device: without the first hook no others leave it.
  std::function<void(const LogitRow&)> logits;
  std::function<void(const BestRow&)> best;
  std::function<void(const TopRow&)> top;
  std::function<void(const RoutingRow&)> routing;  // every token in every layer; the session must trace
  // After each chunk. False stops the step there: what ran so far stays in the sequences.
  std::function<bool(std::int64_t n_done, std::int64_t n_tokens)> progress;
  std::function<void(const std::string&)> profile;  // one JSON line per op that ran
};

// One more token of a sequence, for Session::begin().
struct NextToken {
  SequenceId sequence = 0;
  std::optional<std::int32_t> id;  // none: the one that the step begun before found the best for this sequence
};

// Bytes that a session holds besides the file.
struct SessionMemory {
  std::int64_t kv_bytes = 0;
  std::int64_t workspace_bytes = 0;  // activations; backends add scratch of their own
};

class Session {
 public:
  // Throws Error(out_of_memory), with the numbers and with what would fit, before anything is allocated.
  explicit Session(const Model& model, const SessionOptions& options = {});
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  SequenceId create();                                   // empty; throws where max_sequences exist
  SequenceId fork(SequenceId sequence);                  // a second one with the same tokens
  void cut(SequenceId sequence, std::int64_t n_tokens);  // keeps the first n_tokens
  void drop(SequenceId sequence);
  std::int64_t length(SequenceId sequence) const;  // tokens so far

  // Extends several sequences, each by any number of tokens, each sequence at most once. A request that cannot be (an
  // unknown sequence, an id outside the vocabulary, no tokens, more than the context holds) is an Error that changes
  // nothing, and so is one while steps that were begun are not finished. What a hook throws comes through; the tokens of
  // the chunks that ran are part of their sequences then.
  void step(std::span<const StepInput> inputs, const StepHooks& hooks);
  // One sequence: the logits of its last token, good until the next step.
  std::span<const float> extend(SequenceId sequence, std::span<const std::int32_t> tokens);
  // One sequence: the id of the largest of these logits, as BestRow has it.
  std::int32_t extend_best(SequenceId sequence, std::span<const std::int32_t> tokens);

  // Greedy generation without a pause. A step of one more token for each of some sequences is begun, and the next one
  // too, before the first is finished: it follows from what the first finds, on the device, which never waits for the
  // host.
  //
  //   const NextToken first{chat, id}, next{chat};
  //   session.begin({&first, 1});
  //   do {
  //     session.begin({&next, 1});                  // with the token after `id`, whichever it is
  //     id = session.finish()[0];                   // which it is
  //   } while (goes_on(id));
  //   session.forget();                             // what comes after the last one is not wanted:
  //   session.cut(chat, session.length(chat) - 1);  // it is part of the sequence already
  //
  // Tokens are given for all sequences of a step or for none; where for none, they are those of the step that was begun
  // before, in the same order, with no other step between, and none of the sequences cut or dropped. An Error changes
  // nothing. Where a device does not run ahead (runs_ahead), a step ends when it is begun.
  static constexpr std::int64_t kMostBegun = 2;  // steps under way at a time
  void begin(std::span<const NextToken> tokens);
  // The best token of each sequence of the oldest step, as BestRow has it; good until the next begin().
  std::span<const std::int32_t> finish();
  // Steps that are under way will not be finished. Their tokens are part of the sequences.
  void forget();
  std::int64_t most_begun_sequences() const;  // of one step
  bool runs_ahead() const;

  // How often each expert of each layer was chosen since the session was made: [n_layers][n_experts], layer by layer.
  // Devices count while they route, and are asked here. In the last layer only tokens whose logits were wanted have
  // experts.
  std::vector<std::int64_t> expert_counts();

  const Model& model() const;
  std::int64_t context() const;
  std::int64_t chunk() const;
  std::int64_t max_sequences() const;
  // Whether logits lie where they are computed when a hook gets them: then all of them cost no more than the best.
  bool logits_are_near() const;
  SessionMemory memory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace conclave
