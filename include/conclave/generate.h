// Generator: a prompt in, tokens out, one by one.
//
//   conclave::Generator generator(session);
//   generator.generate(text.prompt("Once upon a time"), {.end_ids = text.end_ids()},
//                      {.token = [&](std::int32_t id) { ...; return true; }});
//
// What comes out depends on the prompt, the options and the model's weights alone: not on threads, not on what was
// generated before. A prompt is always given whole; the part at its start that is in the cache already, because an
// earlier prompt and its answer began the same, is not computed again. So a chat gives its whole conversation each time.
// Where prompts have an arithmetic of their own (SessionOptions::exact_prompts), an answer that a later prompt repeats
// stays as it was generated: the bits are then not those of a session that got all of it as a prompt.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "conclave/sampling.h"
#include "conclave/session.h"

namespace conclave {

struct GenerateOptions {
  SamplerOptions sampling;
  std::optional<std::int64_t> max_tokens;  // none: until the model ends or the context is full
  std::vector<std::int32_t> end_ids;       // any of these ends the answer and is not part of it
};

// What is told while it works; each may be empty. False stops: at the next token, or at the end of the prompt's chunk.
struct GenerateHooks {
  std::function<bool(std::int32_t id)> token;
  std::function<bool(std::int64_t n_done, std::int64_t n_tokens)> prompt;  // of what has to be computed
};

enum class StopReason {
  end,      // the model ended: a token of end_ids
  length,   // max_tokens are there
  context,  // the context is full
  hook,     // a hook said so
};

struct Generation {
  std::vector<std::int32_t> tokens;
  StopReason stop = StopReason::end;
  std::int64_t n_prompt = 0;    // tokens of the prompt
  std::int64_t n_cached = 0;    // of these, in the cache already
  std::int64_t n_computed = 0;  // the rest, unless a hook stopped it
  double prompt_seconds = 0;
  std::int64_t n_steps = 0;  // tokens of the answer that went through the model to get the next one
  double step_seconds = 0;

  double prompt_speed() const;  // tokens per second; 0 where nothing was computed
  double step_speed() const;
};

class Generator {
 public:
  // Takes one of the session's sequences. The session must outlive it.
  explicit Generator(Session& session);
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;
  ~Generator();

  // Throws Error, before anything is computed, for a prompt that is empty, that the context does not hold or that has
  // ids outside the vocabulary, and for options out of range.
  Generation generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                      const GenerateHooks& hooks = {});

 private:
  // What comes after a token: the largest logit's token, the best logits, or all of them: as little as will do.
  enum class Wanted { best, top, logits };
  struct Outcome {
    std::int32_t best = -1;
    std::size_t n_top = 0;
    std::array<std::int32_t, kTopLogits> top_ids;
    std::array<float, kTopLogits> top_logits;
    std::span<const float> logits;
  };
  Outcome feed(const StepInput& input, Wanted wanted, const GenerateHooks& hooks, bool& stopped);
  std::int32_t feed_ahead(std::int32_t id, bool one_more);

  Session& session_;
  SequenceId sequence_;
  std::vector<std::int32_t> cached_;  // the tokens of the sequence
};

}  // namespace conclave
