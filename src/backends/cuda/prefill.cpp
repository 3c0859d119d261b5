#include "backends/cuda/prefill.h"

#include <vector>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/few_rows_plan.h"

namespace conclave::cuda {
namespace {

PrefillSide prefill_side(const ProductViews& product) {
  return {.w = product.w.data,
          .w_expert = per_expert(product.w),
          .w_column = per_column(product.w),
          .out = product.out.data,
          .out_stride = *even_stride(product.out),
          .bias = product.bias.data,
          .n = static_cast<std::int32_t>(product.w.dims[product.w.rank - 2]),
          .out_type = product.out.type,
          .bias_type = product.bias.type};
}

class PrefillOp final : public CudaOp {
 public:
  PrefillOp(std::span<const Matmul* const> ops, const Target& target, const BankOut& made)
      : name_("matmul of " + shape_text(ops[0]->x.shape())),
        room_(prefill_multiprocessors(target)),
        bank_(ops[0]->x, prefill_form(ops[0]->w.dtype), scratch_, made) {
    table_.live = ints_of(ops[0]->live);
    table_.n_slots = table_.n_from = table_.n_rows = static_cast<std::int32_t>(ops[0]->x.dim(0));
    for (const Matmul* op : ops) products_.push_back(views_of(*op));
    for (ProductViews& product : products_) product.early = made.given();
  }

  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }
  void enqueue(const CudaRun& at) const override {
    bank_.fill(at.scratch, at.stream, name_);
    for (std::size_t i = 0; i < products_.size();) {
      const RowBank bank = bank_.at(at.scratch);
      PrefillArgs args = prefill_args(products_[i], bank, table_);
      i += 1 + put_beside(args, std::span(products_).subspan(i + 1));
      check(launch_prefill(args, bank, room_, at.stream), name_);
    }
  }

 private:
  // As many of `next` as go with the product that is there.
  std::size_t put_beside(PrefillArgs& args, std::span<const ProductViews> next) const {
    std::size_t count = 0;
    while (count < next.size() && count + 1 < kPrefillSides && next[count].w.type == args.type) {
      args.side[count + 1] = prefill_side(next[count]);
      ++count;
    }
    while (count > 0 && !prefill_goes_together(args.type, table_.n_rows, args.side, room_)) {
      args.side[count--] = {};
    }
    return count;
  }

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
  const auto fits = [](const View& w) {
    return (prefill_fits(w.type) && (units_fit(w) || blocks_fit(w))) || half_prefill_fits(w);
  };
  return phase == Phase::prefill && room > 0 && fits(product.w) &&
         (product.up.data == nullptr || (fits(product.up) && product.up.type == product.w.type)) &&
         even_stride(product.out).has_value();
}
bool takes_prefill(const Matmul& op, const Target& target) {
  return (op.order == Order::any || is_block(op.w.dtype)) &&
         takes_prefill(views_of(op), op.phase, prefill_multiprocessors(target));
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
          .side = {prefill_side(product)},
          .up = product.up.data,
          .up_expert = per_expert(product.up),
          .up_column = per_column(product.up),
          .x = bank.bf16,
          .x_stride = bank.bf16_stride,
          .bank_out = product.bank_out,
          .bank_out_stride = product.bank_stride,
          .k = static_cast<std::int32_t>(bank.k),
          .chunks = static_cast<std::int32_t>(bank.chunks),
          .type = product.w.type,
          .act = product.act,
          .early = product.early};
}

int launch_prefill(const PrefillArgs& args, const RowBank& bank, int multiprocessors, const Stream& stream) {
  return is_plain_half(args.type) ? launch_half_prefill(args, bank.scale, multiprocessors, stream)
                                  : launch_prefill_rows(args, multiprocessors, stream);
}

std::unique_ptr<CudaOp> make_prefill(std::span<const Matmul* const> ops, const Target& target, const BankOut& made) {
  return std::make_unique<PrefillOp>(ops, target, made);
}

}  // namespace conclave::cuda
