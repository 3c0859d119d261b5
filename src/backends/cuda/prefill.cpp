#include "backends/cuda/prefill.h"

#include <vector>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/few_rows_plan.h"

namespace conclave::cuda {
namespace {

class PrefillOp final : public CudaOp {
 public:
  PrefillOp(std::span<const Matmul* const> ops, const Target& target, const BankOut& made)
      : name_("matmul of " + shape_text(ops[0]->x.shape())),
        room_(prefill_multiprocessors(target)),
        bank_(ops[0]->x, BankForm::bf16, scratch_, made) {
    table_.live = ints_of(ops[0]->live);
    table_.n_slots = table_.n_from = table_.n_rows = static_cast<std::int32_t>(ops[0]->x.dim(0));
    for (const Matmul* op : ops) products_.push_back(views_of(*op));
  }

  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }
  void enqueue(const CudaRun& at) const override {
    bank_.fill(at.scratch, at.stream, name_);
    for (const ProductViews& product : products_) {
      check(launch_prefill_rows(prefill_args(product, bank_.at(at.scratch), table_), room_, at.stream), name_);
    }
  }

 private:
  std::string name_;
  int room_;
  ScratchLayout scratch_;
  OpBank bank_;
  RowTable table_;
  std::vector<ProductViews> products_;
};

}  // namespace

int prefill_multiprocessors(const Target& target) {
  return target.capability >= 90 && prefill_rows_built() ? target.multiprocessors : 0;
}

bool takes_prefill(const ProductViews& product, Phase phase, int room) {
  const auto fits = [](const View& w) { return prefill_fits(w.type) && (units_fit(w) || blocks_fit(w)); };
  return phase == Phase::prefill && room > 0 && fits(product.w) &&
         (product.up.data == nullptr || (fits(product.up) && product.up.type == product.w.type)) &&
         even_stride(product.out).has_value();
}
bool takes_prefill(const Matmul& op, const Target& target) {
  return takes_prefill(views_of(op), op.phase, prefill_multiprocessors(target));
}
bool takes_prefill(const MoeGateUp& op, const Target& target) {
  return takes_prefill({.w = view_of(op.gate), .up = view_of(op.up), .out = view_of(op.out)}, op.phase,
                       prefill_multiprocessors(target));
}
bool takes_prefill(const MoeDown& op, const Target& target) {
  return takes_prefill({.w = view_of(op.down), .out = view_of(op.out)}, op.phase, prefill_multiprocessors(target));
}

PrefillArgs prefill_args(const ProductViews& product, const RowBank& bank, const RowTable& table) {
  return {.table = table,
          .w = product.w.data,
          .up = product.up.data,
          .w_expert = per_expert(product.w),
          .up_expert = per_expert(product.up),
          .w_column = per_column(product.w),
          .up_column = per_column(product.up),
          .x = bank.bf16,
          .x_stride = bank.bf16_stride,
          .out = product.out.data,
          .out_stride = *even_stride(product.out),
          .bank_out = product.bank_out,
          .bank_out_stride = product.bank_stride,
          .bias = product.bias.data,
          .n = static_cast<std::int32_t>(product.w.dims[product.w.rank - 2]),
          .k = static_cast<std::int32_t>(bank.k),
          .chunks = static_cast<std::int32_t>(bank.chunks),
          .type = product.w.type,
          .out_type = product.out.type,
          .bias_type = product.bias.type,
          .act = product.act};
}

std::unique_ptr<CudaOp> make_prefill(std::span<const Matmul* const> ops, const Target& target, const BankOut& made) {
  return std::make_unique<PrefillOp>(ops, target, made);
}

}  // namespace conclave::cuda
