#include "model/step_inputs.h"

#include <algorithm>

#include "base/error.h"

namespace conclave {
namespace {
constexpr std::int64_t kBytes = sizeof(std::int32_t);
}

StepInputs::Places StepInputs::lay_out(const Shape& shape) {
  Places p;
  p.ids = p.n_out + 1;
  p.positions = p.ids + shape.max_tokens;
  p.seqs = p.positions + shape.max_tokens;
  p.out_rows = p.seqs + shape.max_tokens;
  p.lengths = p.out_rows + shape.max_out;
  p.end = p.lengths + shape.n_seqs;
  return p;
}

StepInputs::StepInputs(Device& device, const Shape& shape)
    : device_(device),
      shape_(shape),
      places_(lay_out(shape)),
      host_(static_cast<std::size_t>(places_.end)),
      buffer_(device.allocate(places_.end * kBytes)) {}

void StepInputs::add(std::int32_t id, std::int32_t seq, std::int64_t position) {
  CONCLAVE_CHECK(n_tokens_ < shape_.max_tokens, "more tokens than a step takes");
  at(places_.ids + n_tokens_) = id;
  at(places_.seqs + n_tokens_) = seq;
  at(places_.positions + n_tokens_) = static_cast<std::int32_t>(position);
  ++n_tokens_;
}

void StepInputs::set_length(std::int32_t seq, std::int64_t length) {
  at(places_.lengths + seq) = static_cast<std::int32_t>(length);
}

void StepInputs::set_out_rows(std::span<const std::int32_t> rows) {
  CONCLAVE_CHECK(static_cast<std::int64_t>(rows.size()) <= shape_.max_out, "more rows than the head takes");
  std::copy(rows.begin(), rows.end(), &at(places_.out_rows));
  n_out_ = static_cast<std::int64_t>(rows.size());
}

void StepInputs::upload() {
  at(places_.live) = static_cast<std::int32_t>(n_tokens_);
  at(places_.n_out) = static_cast<std::int32_t>(n_out_);
  device_.upload(*buffer_, 0, std::as_bytes(std::span<const std::int32_t>(host_)));
}

TokenBatch StepInputs::batch(std::int64_t n_tokens, std::int64_t n_out) const {
  const auto numbers = [&](std::int64_t place, std::int64_t n) {
    return dense(*buffer_, place * kBytes, DType::i32, {n});
  };
  return {.ids = numbers(places_.ids, n_tokens),
          .positions = numbers(places_.positions, n_tokens),
          .seqs = numbers(places_.seqs, n_tokens),
          .live = numbers(places_.live, 1),
          .lengths = numbers(places_.lengths, shape_.n_seqs),
          .out_rows = numbers(places_.out_rows, n_out),
          .n_out = numbers(places_.n_out, 1)};
}

}  // namespace conclave
