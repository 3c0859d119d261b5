// SamplerOptions: how the next token is chosen from logits. sample/sampler.h says what each step computes.
#pragma once

#include <cstdint>

namespace conclave {

struct SamplerOptions {
  double temperature = 0.8;       // 0 .. 1e6; 0: greedy
  std::int64_t top_k = 40;        // >= 0; 0: all
  double top_p = 0.95;            // 0 .. 1; 1: all
  double min_p = 0.05;            // 0 .. 1; 0: all
  double repeat_penalty = 1.0;    // > 0; 1: none, above: against repetition
  double presence_penalty = 0.0;  // subtracted once from what occurred; below 0: in favour of it
  double frequency_penalty = 0.0;
  std::int64_t repeat_last_n = 64;  // how far back penalties look; 0: they are off, -1: at all accepted tokens
  std::uint64_t seed = 0;

  static constexpr double kMaxTemperature = 1e6;
  // Penalties take 1 / kMaxPenalty .. kMaxPenalty, and -kMaxPenalty .. kMaxPenalty for the subtracted ones.
  static constexpr double kMaxPenalty = 1e6;
  static constexpr std::int64_t kMaxRepeatLastN = 1 << 24;
};

}  // namespace conclave
