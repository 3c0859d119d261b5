#include "model/step_inputs.h"

#include <algorithm>

#include "base/error.h"

namespace conclave {
namespace {
constexpr std::int64_t kBytes = sizeof(std::int32_t);
}

StepInputs::Places StepInputs::places(std::int64_t n_tokens) const {
  Places p;
  p.lengths = p.n_out + 1;
  p.out_rows = p.lengths + shape_.n_seqs;
  p.ids = p.out_rows + shape_.max_out;
  p.positions = p.ids + n_tokens;
  p.seqs = p.positions + n_tokens;
  p.end = p.seqs + n_tokens;
  return p;
}

StepInputs::StepInputs(Device& device, const Shape& shape)
    : device_(device),
      shape_(shape),
      ids_(static_cast<std::size_t>(shape.max_tokens)),
      positions_(ids_.size()),
      seqs_(ids_.size()),
      host_(static_cast<std::size_t>(places(shape.max_tokens).end)),
      buffer_(device.allocate(places(shape.max_tokens).end * kBytes)) {}

void StepInputs::add(std::int32_t id, std::int32_t seq, std::int64_t position) {
  CONCLAVE_CHECK(n_tokens_ < shape_.max_tokens, "more tokens than a step takes");
  const auto i = static_cast<std::size_t>(n_tokens_++);
  ids_[i] = id;
  seqs_[i] = seq;
  positions_[i] = static_cast<std::int32_t>(position);
}

void StepInputs::set_length(std::int32_t seq, std::int64_t length) {
  host_[static_cast<std::size_t>(places(0).lengths + seq)] = static_cast<std::int32_t>(length);
}

void StepInputs::set_out_rows(std::span<const std::int32_t> rows) {
  CONCLAVE_CHECK(static_cast<std::int64_t>(rows.size()) <= shape_.max_out, "more rows than the head takes");
  std::copy(rows.begin(), rows.end(), host_.begin() + places(0).out_rows);
  n_out_ = static_cast<std::int64_t>(rows.size());
}

void StepInputs::upload(std::int64_t n_tokens) {
  CONCLAVE_CHECK(n_tokens_ <= n_tokens, "more tokens than the program takes");
  const Places p = places(n_tokens);
  host_[static_cast<std::size_t>(p.live)] = static_cast<std::int32_t>(n_tokens_);
  host_[static_cast<std::size_t>(p.n_out)] = static_cast<std::int32_t>(n_out_);
  const auto lay = [&](const std::vector<std::int32_t>& numbers, std::int64_t place) {
    const auto end = std::copy_n(numbers.begin(), n_tokens_, host_.begin() + place);
    std::fill(end, host_.begin() + place + n_tokens, 0);
  };
  lay(ids_, p.ids);
  lay(positions_, p.positions);
  lay(seqs_, p.seqs);
  device_.upload(*buffer_, 0,
                 std::as_bytes(std::span<const std::int32_t>(host_).first(static_cast<std::size_t>(p.end))));
}

TokenBatch StepInputs::batch(std::int64_t n_tokens, std::int64_t n_out) const {
  const Places p = places(n_tokens);
  const auto numbers = [&](std::int64_t place, std::int64_t n) {
    return dense(*buffer_, place * kBytes, DType::i32, {n});
  };
  return {.ids = numbers(p.ids, n_tokens),
          .positions = numbers(p.positions, n_tokens),
          .seqs = numbers(p.seqs, n_tokens),
          .live = numbers(p.live, 1),
          .lengths = numbers(p.lengths, shape_.n_seqs),
          .out_rows = numbers(p.out_rows, n_out),
          .n_out = numbers(p.n_out, 1)};
}

}  // namespace conclave
