// What a model says, on its way to stdout, and what there is to say about it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "conclave/generate.h"
#include "interrupt.h"
#include "progress.h"

namespace conclave {

// stdout while a text comes piece by piece. Who reads it may leave before the end: that is no error, but there is no point
// in going on. Once one was made, a closed pipe does not end the program by itself.
class AnswerOutput {
 public:
  AnswerOutput();

  // Shown at once. On a terminal without control characters but line breaks and tabs: what a model says must not move the
  // cursor or change settings. False where nobody reads any more; any other failure is an Error.
  bool write(std::string_view text);
  bool open() const { return open_; }
  // A line break, unless the text ended with one.
  void end_line();

 private:
  bool on_terminal_;
  bool open_ = true;
  bool at_line_start_ = true;
};

// For GenerateHooks::prompt: shows how far a prompt of several chunks is, and stops at an interruption.
std::function<bool(std::int64_t, std::int64_t)> prompt_hook(ProgressBar& bar, const InterruptGuard& interrupt);

// What to say where the session holds more than the model was trained for; else empty.
std::string long_context_note(const Session& session);

std::string_view name_of(StopReason reason);  // "end", "length", "context", "interrupted"

// "prompt: 12 tokens, 350.1 tokens/s; answer: 64 tokens, 52.3 tokens/s; seed 7"
std::string summary(const Generation& generation, std::uint64_t seed);
// "experts: the busiest has 2.31 times an even share (3 of layer 7); evenness 0.914; 12 of 256 were never chosen"
std::string load_summary(Session& session);

}  // namespace conclave
