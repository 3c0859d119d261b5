#include "backends/cuda/moe_ffn.h"

#include <algorithm>
#include <type_traits>
#include <variant>
#include <vector>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/gate_up.h"
#include "backends/cuda/lone_row.h"
#include "backends/cuda/moe_pairs.h"
#include "backends/cuda/moe_route.h"
#include "backends/cuda/prefill.h"

namespace conclave::cuda {
namespace {

bool rows_touch(const Tensor& t) {
  return t.stride(0) == t.dim(1) * dtype_info(t.dtype).bytes;
}

// Where both products are of prefill's: down's rows, which gate_up writes instead of f32, in the memory of
// `hidden`. Layouts decide, never the number of rows.
BankOut hidden_rows(const MoeFfnSequence& sequence, const Target& target) {
  const Tensor& hidden = sequence.down.x;
  if (!takes_prefill(sequence.gate_up, target) || !takes_prefill(sequence.down, target)) return {};
  // Rows of f16 want to be known as a whole before they are written.
  const BankForm form = prefill_form(sequence.down.down.dtype);
  if (form == BankForm::plain_f16 || form != prefill_form(sequence.gate_up.gate.dtype)) return {};
  const View view = view_of(hidden);
  const BankOut rows{.bf16 = reinterpret_cast<std::uint16_t*>(view.data),
                     .bf16_stride = prefill_bank_stride(hidden.dim(1))};
  const bool fits = rows_touch(hidden) && reinterpret_cast<std::uintptr_t>(view.data) % kVectorBytes == 0 &&
                    rows.bf16_stride * 2 <= hidden.stride(0);
  return fits ? rows : BankOut{};
}

// Expert outputs are sums of bf16 products: kept as bf16 they are half as long to write and to read.
void store_as_bf16(MoeFfnSequence& sequence) {
  Tensor& rows = sequence.down.out;
  if (rows.dtype == DType::f32 && rows_touch(rows)) {
    rows.dtype = DType::bf16;
    rows.strides = {rows.dim(1) * 2, 2};
  }
  std::visit([&](auto& combine) { combine.from.rows = rows; }, sequence.combine);
}

// One op after another: what moe_ffn means.
class FfnSequence final : public CudaOp {
 public:
  FfnSequence(const MoeFfn& op, const Target& target, const BankOut& bank, const BankOut& made) {
    MoeFfnSequence sequence = sequence_of(op);
    if (const auto lone = bank.given() ? std::nullopt : lone_ffn_of(op, target)) {
      if (sequence.shared) add(make_cuda_op(*sequence.shared, target));
      add(make_lone_ffn(op, *lone, true));
      return;
    }
    const bool pairs = goes_by_pairs(op, target);
    const BankOut hidden = hidden_rows(sequence, target);
    if (hidden.given()) store_as_bf16(sequence);
    if (pairs) {
      add(make_pairs(op, target));
    } else {
      auto gate_up = make_gate_up(sequence.gate_up, target, true, made, hidden);
      if (auto both = make_route_group(sequence.route, sequence.group, target, &gate_up->bank())) {
        add(std::move(both));
      } else {
        add(make_cuda_op(sequence.route, target));
        add(make_cuda_op(sequence.group, target));
      }
      add(std::move(gate_up));
      add(make_down(sequence.down, target, true, hidden));
    }
    if (sequence.shared) add(make_cuda_op(*sequence.shared, target));
    std::visit(
        [&](auto combine) {
          if (pairs) combine.from = by_pairs(combine.from, op);
          if constexpr (std::is_same_v<decltype(combine), MoeCombineResidualNorm>) {
            add(make_combine_norm(combine, target, bank, true));
          } else {
            add(make_cuda_op(combine, target));
          }
        },
        sequence.combine);
  }

  std::int64_t scratch_bytes() const override { return scratch_bytes_; }
  void enqueue(const CudaRun& run) const override {
    for (const auto& step : steps_) step->enqueue(run);
  }

 private:
  void add(std::unique_ptr<CudaOp> step) {
    scratch_bytes_ = std::max(scratch_bytes_, step->scratch_bytes());
    steps_.push_back(std::move(step));
  }

  std::vector<std::unique_ptr<CudaOp>> steps_;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<CudaOp> make_ffn(const MoeFfn& op, const Target& target, const BankOut& bank, const BankOut& made) {
  return std::make_unique<FfnSequence>(op, target, bank, made);
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeFfn& op, const Target& target) {
  return make_ffn(op, target, {}, {});
}

}  // namespace conclave::cuda
