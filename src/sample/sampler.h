// Sampler: from the logits of one position to the token that follows.
//
// With l = logits, NaN taken as minus infinity and plus infinity as the largest finite float; a token whose l is minus
// infinity is never chosen. The steps, in this order (that of llama.cpp's default chain, where temperature is last, so
// that the tokens which are cut away do not depend on it):
//
//   penalties    for each token that occurs c > 0 times among the last repeat_last_n accepted ones:
//                l = l > 0 ? l / repeat_penalty : l * repeat_penalty, then l -= c * frequency_penalty +
//                presence_penalty; in double, rounded to float once, kept within the finite floats
//   greedy       temperature 0 ends here: the largest l, a plus infinity before the largest float, which is what the op
//                argmax gives. The steps below do not change which one that is
//   top_k        the k largest l stay
//   top_p        p = softmax of what is left; in order of rank, as few tokens as reach a sum of at least top_p
//   min_p        tokens of less than min_p times the probability of the best one go
//   temperature  p = softmax of l / temperature of what is left
//   draw         u uniform in [0, 1): in order of ids, the first token at which the running sum of p exceeds u
//
// Ranks: larger l first, ties to the LOWER id. The best token always stays. Sums run over ids ascending (top_p's running
// sum: over ranks), in double, with an exp of our own, and each drawn token takes one number from the generator: the same
// options, logits and history give the same token on every machine. Nothing here uses threads.
//
// A Sampler is a value: a copy continues as the original would. After construction nothing is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "conclave/sampling.h"
#include "sample/random.h"

namespace conclave {

// Throws Error, in one line that names the option and its value.
void validate(const SamplerOptions& options);

// `id`, unless it is -1: then the Error of a row without a usable logit.
std::int32_t require_token(std::int32_t id);

class Sampler {
 public:
  // Throws Error where an option cannot be.
  Sampler(const SamplerOptions& options, std::int64_t n_vocab);

  // The token after these logits [n_vocab]. Throws Error where none of them is usable (all NaN or minus infinity). It is
  // not accepted: who keeps it says so.
  std::int32_t next(std::span<const float> logits);
  // The same from the best logits alone: the first needs_best() of them or more, or all that are usable, ranked as above;
  // places without one have id -1.
  std::int32_t next_of_best(std::span<const std::int32_t> ids, std::span<const float> logits);

  // `id` is part of the text, of the prompt or of the answer: penalties see it from now on. Throws Error for an id that
  // is not in 0 .. n_vocab-1.
  void accept(std::int32_t id);

  // Whether next() is the place of the largest logit and nothing else: then somebody else may look for it.
  bool takes_best() const { return options_.temperature == 0 && !penalties_; }
  // How many of the best logits next() depends on; 0: on all of them.
  std::int64_t needs_best() const {
    if (penalties_) return 0;
    return options_.temperature == 0 ? 1 : options_.top_k;
  }

  const SamplerOptions& options() const { return options_; }

 private:
  struct Candidate {
    float logit;
    std::int32_t id;
    double weight;
  };
  struct BetterRank {
    bool operator()(const Candidate& a, const Candidate& b) const {
      return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
    }
  };

  void penalize(std::span<const float> logits);
  void collect(std::span<const float> logits);
  void sort_by_id();
  std::int32_t choose();
  double weigh(double temperature);
  void keep_top_p();
  void keep_min_p();
  std::int32_t draw();

  SamplerOptions options_;
  Random random_;
  bool penalties_;
  float best_ = 0;                    // the largest logit of the candidates
  std::vector<float> penalized_;      // [n_vocab] where there are penalties
  std::vector<std::int32_t> counts_;  // [n_vocab]: how often each token is in the window
  std::vector<std::int32_t> window_;  // a ring of the last repeat_last_n ids, -1: none yet; empty where it is all ids
  std::size_t oldest_ = 0;            // its next place to write
  std::size_t n_candidates_ = 0;
  std::vector<Candidate> candidates_;  // room for what top_k may need
  std::vector<std::uint64_t> ranks_;   // as many, where top_p needs them
  std::int64_t n_vocab_;
};

}  // namespace conclave
