// Routing one token at a time: what moe_route is made of.
#pragma once

#include "backends/cpu/row_kernels.h"
#include "ops/moe_route.h"
#include "ops/scratch.h"

namespace conclave {

class TokenRouter {
 public:
  TokenRouter(const MoeRoute& op, const RowKernels& row);

  // Of one thread, aligned to 64.
  std::int64_t scratch_bytes() const { return layout_.bytes(); }
  // Writes the token's experts and weights, nothing else: the caller adds them to counts, with count_chosen(). False
  // where the row had no usable logit: the caller adds it to no_finite, with count_unusable().
  bool route(std::int64_t token, std::byte* scratch) const;

 private:
  struct Lists;  // what lies in the scratch
  Lists lists(std::byte* scratch) const;
  void rank(const Lists& at, float max) const;
  void choose(const Lists& at) const;
  void weigh(const Lists& at, float max) const;

  MoeRoute op_;
  const RowKernels& row_;
  ScratchLayout layout_;
  std::int64_t logits_ = 0;
  std::int64_t ranks_ = 0;
  std::int64_t indices_ = 0;
  std::int64_t group_ranks_ = 0;
  std::int64_t groups_ = 0;
  std::int64_t chosen_ = 0;
  std::int64_t weights_ = 0;
};

// no_finite, where it is given, goes up by `rows` and stays at 2^31 - 1. One thread at a time.
void count_unusable(const Tensor& no_finite, std::int64_t rows);
// counts[expert], where it is given, goes up by `times`, modulo 2^32. One thread at a time.
void count_chosen(const Tensor& counts, std::int64_t expert, std::int64_t times);

}  // namespace conclave
