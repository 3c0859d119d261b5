// Two products and the gated activation between them: what moe_gate_up and the shared expert have in common. Host code.
#pragma once

#include <memory>
#include <string_view>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/row_bank.h"
#include "backends/cuda/row_lists.h"
#include "ops/moe_ffn.h"

namespace conclave::cuda {

// Whether products of many rows are wide_rows': then on so many multiprocessors.
struct Wide {
  int multiprocessors = 0;  // 0: they are not
};
Wide wide_on(const Target& target);

class GateUpProduct {
 public:
  // Where `rows` are at most `by_block`, blocks quantise them (row_bank.h).
  GateUpProduct(const Wide& wide, std::int64_t rows, std::int64_t by_block, const Tensor& x, const Tensor& gate,
                const Tensor& up, Activation act, const Tensor& out, ScratchLayout& scratch);
  void enqueue(const OpRows& rows, const CudaRun& at, std::string_view op) const;

 private:
  Wide wide_;
  View gate_;
  View up_;
  View out_;
  bool fused_;  // in one pass
  OpBank bank_;
  Activation act_;
  std::int64_t g_at_;
  std::int64_t u_at_;
};

// A dense f32 matrix in scratch.
View float_rows(std::byte* data, std::int64_t rows, std::int64_t columns);

// The ops, where the offsets are known to be moe_group's.
std::unique_ptr<CudaOp> make_gate_up(const MoeGateUp& op, const Target& target, bool grouped);
std::unique_ptr<CudaOp> make_down(const MoeDown& op, const Target& target, bool grouped);

}  // namespace conclave::cuda
