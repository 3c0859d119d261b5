// StepInputs: what changes from step to step, in buffers whose place never changes. Filled on the host, uploaded in one
// piece before a program runs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/token_batch.h"
#include "ops/device.h"

namespace conclave {

class StepInputs {
 public:
  struct Shape {
    std::int64_t max_tokens = 1;
    std::int64_t max_out = 1;
    std::int64_t n_seqs = 1;
  };
  StepInputs(Device& device, const Shape& shape);

  void clear() { n_tokens_ = n_out_ = 0; }
  void add(std::int32_t id, std::int32_t seq, std::int64_t position);
  void set_length(std::int32_t seq, std::int64_t length);
  void set_out_rows(std::span<const std::int32_t> rows);  // at most max_out
  std::int64_t n_tokens() const { return n_tokens_; }
  // For a program of up to n_tokens tokens, and what it gets of them and of up to n_out rows of logits.
  void upload(std::int64_t n_tokens);
  TokenBatch batch(std::int64_t n_tokens, std::int64_t n_out) const;

 private:
  // Where each part begins, in numbers. What depends on the size of the program comes last, so that few tokens are few
  // bytes.
  struct Places {
    std::int64_t live = 0;
    std::int64_t n_out = 1;
    std::int64_t lengths, out_rows, ids, positions, seqs, end;
  };
  Places places(std::int64_t n_tokens) const;

  Device& device_;
  Shape shape_;
  std::int64_t n_tokens_ = 0;
  std::int64_t n_out_ = 0;
  std::vector<std::int32_t> ids_, positions_, seqs_;  // [max_tokens]
  std::vector<std::int32_t> host_;                    // laid out for a program
  std::shared_ptr<Buffer> buffer_;
};

}  // namespace conclave
