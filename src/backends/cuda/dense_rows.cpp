#include "backends/cuda/dense_rows.h"

#include <algorithm>
#include <vector>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/dense_once_plan.h"
#include "backends/cuda/dense_tall_plan.h"
#include "backends/cuda/row_bank.h"
#include "backends/cuda/wide_rows_plan.h"

namespace conclave::cuda {
namespace {

// What may be fetched of them: where most of them are wanted.
AheadWeights ahead_of(const MoeFfn& experts) {
  const View gate = view_of(experts.gate);
  const View up = view_of(experts.up);
  const auto whole = [](const View& w) {
    return w.rank == 3 && w.strides[0] == w.dims[1] * w.strides[1] &&
           reinterpret_cast<std::uintptr_t>(w.data) % kVectorBytes == 0;
  };
  const bool most = experts.phase == Phase::decode && row_count(experts.hidden) >= kAheadPairs * gate.dims[0];
  if (!most || !whole(gate) || !whole(up)) return {};
  return {.gate = gate.data, .up = up.data, .bytes = gate.dims[0] * std::min(gate.strides[0], up.strides[0])};
}

class DenseOp final : public CudaOp {
 public:
  DenseOp(std::span<const Matmul* const> ops, const Target& target, const BankOut& made, const Add* sum,
          const MoeFfn* experts)
      : name_("matmul of " + shape_text(ops[0]->x.shape())),
        room_(dense_room(target)),
        bank_(ops[0]->x, BankForm::int8, scratch_, made),
        live_(ints_of(ops[0]->live)) {
    for (const Matmul* op : ops) products_.push_back(views_of(*op));
    if (sum != nullptr) products_[0].residual = view_of(sum->out);
    if (experts != nullptr) ahead_ = ahead_of(*experts);
  }

  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }
  void enqueue(const CudaRun& at) const override {
    bank_.fill(at.scratch, at.stream, name_);
    DenseArgs args = dense_args(products_, bank_.at(at.scratch), live_, room_);
    if (args.tall.columns > 0) args.ahead = fetch_ahead_by(dense_tall_blocks(args.tall), ahead_);
    check(launch_dense(args, at.stream), name_);
  }

 private:
  std::string name_;
  DenseRoom room_;
  ScratchLayout scratch_;
  OpBank bank_;
  const std::int32_t* live_;
  std::vector<ProductViews> products_;
  AheadWeights ahead_;
};

}  // namespace

ProductViews views_of(const Matmul& op) {
  return {.w = view_of(op.w), .bias = view_of(op.bias), .out = view_of(op.out)};
}

DenseRoom dense_room(const Target& target) {
  return {.shared_bytes = target.shared_bytes,
          .multiprocessors = target.multiprocessors,
          .hopper = target.capability >= 90 && wide_rows_built()};
}

bool takes_dense(const ProductViews& product, const View& x, const DenseRoom& room) {
  const auto fits = [](const View& w) { return w.rank == 2 && units_fit(w); };
  const bool gate_up = product.up.data != nullptr;
  return fits(product.w) && (!gate_up || (fits(product.up) && product.up.type == product.w.type)) && x.rank == 2 &&
         x.dims[0] > 0 && product.out.rank == 2 &&
         takes_dense(product.w.type, x.dims[0], product.w.dims[0], x.dims[1], gate_up, room);
}

bool takes_dense(const Matmul& op, const Target& target) {
  return takes_dense(views_of(op), view_of(op.x), dense_room(target));
}

DenseArgs dense_args(std::span<const ProductViews> products, const RowBank& bank, const std::int32_t* live,
                     const DenseRoom& room) {
  DenseArgs args{.x = bank.x.data,
                 .x_stride = bank.x.strides[0],
                 .q = bank.q,
                 .scale = bank.scale,
                 .sums = bank.sums,
                 .live = live,
                 .rows = static_cast<std::int32_t>(bank.n_rows),
                 .k = static_cast<std::int32_t>(bank.k),
                 .chunks = static_cast<std::int32_t>(bank.chunks),
                 .x_type = bank.x.type};
  for (const ProductViews& v : products) {
    args.of[args.count++] = {.w = v.w.data,
                             .up = v.up.data,
                             .w_column = v.w.strides[0],
                             .up_column = v.up.strides[0],
                             .out = v.out.data,
                             .out_stride = v.out.strides[0],
                             .bias = v.bias.data,
                             .residual = reinterpret_cast<float*>(v.residual.data),
                             .residual_stride = v.residual.strides[0] / 4,
                             .n = static_cast<std::int32_t>(v.w.dims[0]),
                             .type = v.w.type,
                             .out_type = v.out.type,
                             .bias_type = v.bias.type,
                             .act = v.act};
  }
  cut_dense(args, room);
  args.once = dense_once_cut(args, room);
  args.tall = dense_tall_cut(args, room);
  return args;
}

int launch_dense(const DenseArgs& args, const Stream& stream) {
  if (args.tall.columns > 0) {
    if (CUtensorMap rows; map_tall_rows(rows, args)) return launch_dense_tall(args, rows, stream);
  }
  return args.once.warps > 0 ? launch_dense_once(args, stream) : launch_dense_rows(args, stream);
}

std::unique_ptr<CudaOp> make_dense(std::span<const Matmul* const> ops, const Target& target, const BankOut& bank,
                                   const Add* sum, const MoeFfn* experts) {
  return std::make_unique<DenseOp>(ops, target, bank, sum, experts);
}

bool adds_dense(const Matmul& op, const Add& sum, const Target& target) {
  const RowBank rows{.x = view_of(op.x), .n_rows = op.x.dim(0), .k = op.x.dim(1), .chunks = chunks_of(op.x.dim(1))};
  const ProductViews product = views_of(op);
  return sum.b == op.out && sum.out == sum.a && sum.live == op.live && sum.a.rank == 2 && sum.a.dtype == DType::f32 &&
         op.out.dtype == DType::f32 && !overlap_any(sum.a, {&op.x, &op.w, &op.bias, &op.out}) &&
         dense_args({&product, 1}, rows, nullptr, dense_room(target)).once.warps > 0;
}

}  // namespace conclave::cuda
