// RequestCheck: what can be wrong with the sequences and tokens of a step, said before anything is changed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/fail.h"
#include "model/kv_cache.h"

namespace conclave {

class RequestCheck {
 public:
  RequestCheck(const KvCache& kv, std::int64_t n_seqs, std::int64_t n_vocab)
      : kv_(kv), named_(static_cast<std::size_t>(n_seqs)), n_vocab_(n_vocab) {}

  // Another step's requests follow.
  void start() { std::fill(named_.begin(), named_.end(), false); }

  // So many more tokens of a sequence; each sequence at most once.
  void sequence(std::int32_t seq, std::int64_t count) {
    const std::int64_t length = kv_.length(seq);
    if (named_[static_cast<std::size_t>(seq)]) {
      fail(ErrorCode::invalid_argument, "sequence {} is named twice in one step", seq);
    }
    named_[static_cast<std::size_t>(seq)] = true;
    if (count == 0) fail(ErrorCode::invalid_argument, "there are no tokens to add to sequence {}", seq);
    if (count > kv_.context() - length) {
      fail(ErrorCode::invalid_argument, "the context is full: {} tokens and {} new ones are more than its {}", length,
           count, kv_.context());
    }
  }

  // The i-th token of a request.
  void token(std::size_t i, std::int32_t id) const {
    if (id >= 0 && id < n_vocab_) return;
    fail(ErrorCode::invalid_argument, "token {} is {}, must be 0 to {}", i, id, n_vocab_ - 1);
  }

 private:
  const KvCache& kv_;
  std::vector<bool> named_;  // [n_seqs]: whether the step has an input for it
  std::int64_t n_vocab_;
};

}  // namespace conclave
