#include "backends/cuda/moe_ffn.h"

#include <algorithm>
#include <type_traits>
#include <variant>
#include <vector>

#include "backends/cuda/gate_up.h"
#include "backends/cuda/moe_pairs.h"

namespace conclave::cuda {
namespace {

// One op after another: what moe_ffn means.
class FfnSequence final : public CudaOp {
 public:
  FfnSequence(const MoeFfn& op, const Target& target, const BankOut& bank, const BankOut& made) {
    const MoeFfnSequence sequence = sequence_of(op);
    const bool pairs = goes_by_pairs(op);
    if (pairs) {
      add(make_pairs(op));
    } else {
      add(make_cuda_op(sequence.route, target));
      add(make_cuda_op(sequence.group, target));
      add(make_gate_up(sequence.gate_up, target, true, made));
      add(make_down(sequence.down, target, true));
    }
    if (sequence.shared) add(make_cuda_op(*sequence.shared, target));
    std::visit(
        [&](auto combine) {
          if (pairs) combine.from = by_pairs(combine.from, op);
          if constexpr (std::is_same_v<decltype(combine), MoeCombineResidualNorm>) {
            add(make_combine_norm(combine, bank));
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
