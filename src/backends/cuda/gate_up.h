// Two products and the gated activation between them: what moe_gate_up and the shared expert have in common. Host code.
#pragma once

#include <memory>
#include <string_view>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/dense_rows_plan.h"
#include "backends/cuda/row_bank.h"
#include "backends/cuda/row_lists.h"
#include "ops/moe_ffn.h"

namespace conclave::cuda {

// What products ask of a GPU.
struct Room {
  int wide = 0;   // multiprocessors for wide_rows, which takes products of many rows; 0: there is none
  int split = 0;  // the same for float_split
  DenseRoom dense;
  int prefill = 0;  // multiprocessors for prefill_rows; 0: there is none
};
Room room_on(const Target& target);

class GateUpProduct {
 public:
  // `rows`: of the output. `made`: x as products want it, where it is there already. `into`: where the output goes as
  // the next product's rows instead of to `out`; for products that take prefill_rows.
  GateUpProduct(const Room& room, std::int64_t rows, const Tensor& x, const Tensor& gate, const Tensor& up,
                Activation act, Phase phase, const Tensor& out, ScratchLayout& scratch, const BankOut& made = {},
                const BankOut& into = {});
  void enqueue(const OpRows& rows, const CudaRun& at, std::string_view op) const;
  OpBank& bank() { return bank_; }

 private:
  Room room_;
  View gate_;
  View up_;
  View out_;
  bool fused_;  // in one pass
  OpBank bank_;
  BankOut into_;
  Activation act_;
  std::int64_t g_at_;
  std::int64_t u_at_;
};

// A dense f32 matrix in scratch.
View float_rows(std::byte* data, std::int64_t rows, std::int64_t columns);

// A step whose rows another launch may make.
class GateUpStep : public CudaOp {
 public:
  virtual OpBank& bank() = 0;
};

// The ops. `grouped`: the offsets are known to be moe_group's, and down to come after gate_up.
std::unique_ptr<GateUpStep> make_gate_up(const MoeGateUp& op, const Target& target, bool grouped, const BankOut& made,
                                         const BankOut& into);
std::unique_ptr<CudaOp> make_down(const MoeDown& op, const Target& target, bool grouped, const BankOut& made);

}  // namespace conclave::cuda
