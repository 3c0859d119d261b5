// The ops that are matrix products: matmul, moe_matmul, moe_gate_up, moe_down, moe_shared_expert.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "backends/cuda/block_rows_plan.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/dense_rows.h"
#include "backends/cuda/few_boxes_plan.h"
#include "backends/cuda/float_split_plan.h"
#include "backends/cuda/gate_up.h"
#include "backends/cuda/half_rows_plan.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/many_rows_plan.h"
#include "backends/cuda/one_row.h"
#include "backends/cuda/prefill.h"
#include "backends/cuda/wide_rows_plan.h"
#include "base/fail.h"

namespace conclave::cuda {
namespace {

// Rows of experts, of which a block has its own alone, are quantised by every block: worth it for these many, and for
// more where each row is of one expert alone.
constexpr std::int64_t kByBlockPairs = 64;
constexpr std::int64_t kByBlockOwn = 512;

// Whether the kernels for superblocks can take this product, or those for blocks of 32 in planes.
bool takes_units(const View& w, const View& x, const View& out) {
  return (units_fit(w) || blocks_fit(w)) && even_stride(x).has_value() && even_stride(out).has_value();
}

// Whether a kernel can take it in one pass, with up beside it where there is one.
bool takes_pass(const View& w, const View& x, const View& out) {
  return takes_units(w, x, out) || half_rows_fit(w, x, out);
}

// Products of one row at a time, where they can be.
std::optional<OneRowArgs> one_row_of(const ProductViews& v, const View& x, const std::int32_t* live) {
  const auto floats = [](const View& view) { return view.data == nullptr || view.type == DType::f32; };
  if (v.w.rank != 2 || x.rank != 2 || x.dims[0] == 0 || x.dims[0] > kOneRows || chunks_of(x.dims[1]) > kOneChunks ||
      !takes_units(v.w, x, v.out) || !floats(x) || !floats(v.out) || !floats(v.bias)) {
    return std::nullopt;
  }
  return OneRowArgs{.w = v.w.data,
                    .up = v.up.data,
                    .w_column = v.w.strides[0],
                    .up_column = v.up.strides[0],
                    .x = reinterpret_cast<const float*>(x.data),
                    .x_stride = x.strides[0] / 4,
                    .bias = reinterpret_cast<const float*>(v.bias.data),
                    .out = reinterpret_cast<float*>(v.out.data),
                    .out_stride = v.out.strides[0] / 4,
                    .live = live,
                    .rows = static_cast<std::int32_t>(x.dims[0]),
                    .n = static_cast<std::int32_t>(v.w.dims[0]),
                    .k = static_cast<std::int32_t>(x.dims[1]),
                    .chunks = static_cast<std::int32_t>(chunks_of(x.dims[1])),
                    .type = v.w.type,
                    .act = v.act};
}

// Whether blocks quantise the rows of experts. Where lists are long, other kernels want them as a whole.
bool makes_own_rows(const View& w, const View& x, std::int64_t rows, bool one_expert) {
  // A block that cannot have a whole column at once would make its rows again for each of its tiles.
  if (chunks_of(x.dims[x.rank - 1]) > kMaxSegment) return false;
  return rows <= kByBlockPairs || (one_expert && rows <= kByBlockOwn && rows < kWideMean * w.dims[0]);
}

// `up`: no data where there is none. `one_expert`: each row of x is of one expert alone.
BankForm form_of(const View& w, const View& up, const View& x, const View& out, std::int64_t rows, Phase phase,
                 const Room& room, bool one_expert = false) {
  for (const View* one : {&w, &up}) {
    if (one->planes && !takes_units(*one, x, out)) {
      fail(ErrorCode::unsupported, "prepared weights want rows of x and out that lie evenly");
    }
  }
  if (takes_prefill({.w = w, .up = up, .out = out}, phase, room.prefill)) return prefill_form(w.type);
  if (!is_block(w.type) && (up.data == nullptr || !is_block(up.type))) return BankForm::as_given;
  const bool units = units_fit(w) && takes_units(w, x, out) &&
                     (up.data == nullptr || (up.type == w.type && units_fit(up) && takes_units(up, x, out)));
  const bool by_block = w.rank == 2 ? one_row_of({.w = w, .up = up, .out = out}, x, nullptr).has_value()
                                    : makes_own_rows(w, x, rows, one_expert);
  return units && by_block ? BankForm::int8_by_block : BankForm::int8;
}

// Of so many slots, few_rows goes through long lists in passes: another kernel would most often find none.
constexpr std::int64_t kPassedSlots = 512;

// Plain weights of 16 bits by a kernel of their own. Of superblocks, lists of few rows by one kernel, of many by
// another: wide_rows where there is Hopper, many_rows elsewhere; whole matrices one row at a time or all of them
// together.
void multiply_units(const ProductViews& v, const RowBank& bank, const OpRows& rows, const Room& room, const CudaRun& at,
                    std::string_view op) {
  if (bank.n_rows == 0) return;  // whatever the lists say
  if (bank.bf16 != nullptr) {
    check(launch_prefill(prefill_args(v, bank, rows.at(at.scratch)), bank, room.prefill, at.stream), op);
    return;
  }
  const RowTable table = rows.at(at.scratch);
  const bool one_matrix = table.begin == nullptr;
  if (one_matrix && bank.q == nullptr) {
    if (const auto one = one_row_of(v, bank.x, table.live)) {
      check(launch_one_row(*one, at.stream), op);
      return;
    }
  }
  if (one_matrix && bank.q != nullptr && takes_dense(v, bank.x, room.dense)) {
    check(launch_dense(dense_args({&v, 1}, bank, table.live, room.dense), at.stream), op);
    return;
  }
  UnitArgs args{.table = table,
                .w = v.w.data,
                .up = v.up.data,
                .w_expert = per_expert(v.w),
                .up_expert = per_expert(v.up),
                .w_column = per_column(v.w),
                .up_column = per_column(v.up),
                .x = bank.x.data,
                .x_stride = *even_stride(bank.x),
                .out = v.out.data,
                .out_stride = *even_stride(v.out),
                .q = bank.q,
                .scale = bank.scale,
                .sums = bank.sums,
                .bias = v.bias.data,
                .n = static_cast<std::int32_t>(v.w.dims[v.w.rank - 2]),
                .k = static_cast<std::int32_t>(bank.k),
                .chunks = static_cast<std::int32_t>(bank.chunks),
                .type = v.w.type,
                .x_type = bank.x.type,
                .out_type = v.out.type,
                .bias_type = v.bias.type,
                .act = v.act,
                .early = v.early};
  if (half_rows_fit(v.w, bank.x, v.out)) {
    check(launch_half_rows(args, rows.max_active(), at.stream), op);
    return;
  }
  if (blocks_fit(v.w)) {
    check(launch_block_rows(args, has_few_rows(args.table.n_rows, rows.max_active()), at.stream), op);
    return;
  }
  if (bank.q != nullptr && room.wide > 0) {
    // Few tiles leave most of the GPU idle.
    const std::int64_t tiles = wide_tiles_across(args.n, v.up.data != nullptr) *
                               std::max(rows.max_active(), ceil_div(args.table.n_rows, kWideRows));
    const bool many = rows.max_slots() >= kWideFrom;
    const bool all =
        (one_matrix && many) || (args.table.n_rows >= kWideMean * rows.max_active() && 2 * tiles >= room.wide);
    const bool some = all || (rows.max_slots() >= kWideSlots && args.table.n_slots > kPassedSlots);
    args.most_rows = some && !all ? static_cast<std::int32_t>(kWideFrom - 1) : 0;
    if (!all) check(launch_few(args, rows.max_active(), room.wide > 0, at.stream), op);
    if (some) check(launch_wide_rows(args, room.wide, at.stream), op);
    return;
  }
  const bool may_be_many = bank.q != nullptr && rows.max_slots() >= kManyFrom;
  args.most_rows = may_be_many ? static_cast<std::int32_t>(kManyFrom - 1) : 0;
  check(launch_few(args, rows.max_active(), room.wide > 0, at.stream), op);
  if (may_be_many) check(launch_many_rows(args, at.stream), op);
}

void multiply(const ProductViews& v, const RowBank& bank, const OpRows& rows, const Room& room, const CudaRun& at,
              std::string_view op) {
  if (bank.n_rows == 0) return;
  if (bank.bf16 != nullptr || takes_pass(v.w, bank.x, v.out)) {
    multiply_units(v, bank, rows, room, at, op);
  } else {
    check(launch_product({bank, rows.at(at.scratch), rows.max_slots(), v.w, v.bias, v.out}, at.stream), op);
  }
}

// One product of the rows of x: what matmul, moe_matmul and moe_down are.
class ProductOp final : public CudaOp {
 public:
  ProductOp(std::string name, const Target& target, Phase phase, const Tensor& x, const Tensor& w, const Tensor& bias,
            const Tensor& out, bool one_expert = false, const BankOut& made = {})
      : name_(std::move(name)),
        room_(room_on(target)),
        views_{.w = view_of(w), .bias = view_of(bias), .out = view_of(out), .early = made.given()},
        bank_(x, form_of(views_.w, {}, view_of(x), views_.out, row_count(x), phase, room_, one_expert), scratch_,
              made) {}

  ScratchLayout& scratch() { return scratch_; }
  void set_rows(const OpRows& rows) { rows_ = rows; }
  void start_early() { views_.early = true; }
  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }

  void enqueue(const CudaRun& at) const override {
    if (takes_float_rows()) {
      enqueue_float_rows(at);
      return;
    }
    bank_.fill(at.scratch, at.stream, name_);
    rows_.fill(at.scratch, at.stream, name_);
    multiply(views_, bank_.at(at.scratch), rows_, room_, at, name_);
  }

 private:
  // Rows of f32 with one matrix of plain weights.
  bool takes_float_rows() const {
    const View x = bank_.at(nullptr).x;
    return bank_.at(nullptr).bf16_stride == 0 && is_float(views_.w.type) && views_.w.rank == 2 && x.rank == 2 &&
           x.type == DType::f32 && fits_float_rows(x.dims[0], views_.w.dims[0], views_.w.dims[1]) &&
           !takes_half_rows(views_.w, x, views_.out);
  }
  void enqueue_float_rows(const CudaRun& at) const {
    const View x = bank_.at(nullptr).x;
    check(launch_float_rows({.w = views_.w.data,
                             .w_column = views_.w.strides[0],
                             .x = x.data,
                             .x_stride = x.strides[0],
                             .out = views_.out.data,
                             .out_stride = views_.out.strides[0],
                             .bias = views_.bias.data,
                             .live = rows_.at(nullptr).live,
                             .rows = static_cast<std::int32_t>(x.dims[0]),
                             .n = static_cast<std::int32_t>(views_.w.dims[0]),
                             .k = static_cast<std::int32_t>(views_.w.dims[1]),
                             .type = views_.w.type,
                             .out_type = views_.out.type,
                             .bias_type = views_.bias.type,
                             .multiprocessors = room_.split},
                            at.stream),
          name_);
  }

  std::string name_;
  Room room_;
  ScratchLayout scratch_;
  ProductViews views_;
  OpBank bank_;
  OpRows rows_ = OpRows::every_row(0, {});
};

class GateUpOp final : public GateUpStep {
 public:
  GateUpOp(const MoeGateUp& op, const Target& target, bool grouped, const BankOut& made, const BankOut& into)
      : name_(fmt::format("moe_gate_up {}", shape_text(op.out.shape()))),
        rows_(OpRows::of(op, grouped, scratch_)),
        product_(room_on(target), op.row_pair.dim(0), op.x, op.gate, op.up, op.act, op.phase, op.out, scratch_, made,
                 into) {}

  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }
  void enqueue(const CudaRun& at) const override {
    rows_.fill(at.scratch, at.stream, name_);
    product_.enqueue(rows_, at, name_);
  }
  OpBank& bank() override { return product_.bank(); }

 private:
  std::string name_;
  ScratchLayout scratch_;
  OpRows rows_;
  GateUpProduct product_;
};

class SharedExpertOp final : public CudaOp {
 public:
  SharedExpertOp(const MoeSharedExpert& op, const Target& target)
      : name_(fmt::format("moe_shared_expert {}", shape_text(op.out.shape()))),
        room_(room_on(target)),
        down_(view_of(op.down)),
        share_{.x = view_of(op.x), .gate_inp = view_of(op.gate_inp), .out = view_of(op.out), .live = ints_of(op.live)},
        rows_(OpRows::every_row(op.x.dim(0), op.live)),
        gate_up_(room_, op.x.dim(0), op.x, op.gate, op.up, op.act, op.phase, op.hidden, scratch_),
        hidden_(op.hidden, form_of(down_, {}, view_of(op.hidden), share_.out, op.hidden.dim(0), op.phase, room_),
                scratch_),
        y_at_(scratch_.add(op.out.dim(0), op.out.dim(1) * 4)) {}

  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }
  void enqueue(const CudaRun& at) const override {
    gate_up_.enqueue(rows_, at, name_);
    hidden_.fill(at.scratch, at.stream, name_);
    ShareArgs share = share_;
    share.y = float_rows(at.scratch + y_at_, share.out.dims[0], share.out.dims[1]);
    multiply({.w = down_, .out = share.y}, hidden_.at(at.scratch), rows_, room_, at, name_);
    check(launch_share(share, at.stream), name_);
  }

 private:
  std::string name_;
  Room room_;
  ScratchLayout scratch_;
  View down_;
  ShareArgs share_;
  OpRows rows_;
  GateUpProduct gate_up_;
  OpBank hidden_;
  std::int64_t y_at_;
};

}  // namespace

Room room_on(const Target& target) {
  const bool clusters = target.capability >= 90 && target.shared_bytes >= kSplitShared;
  return {.wide = target.capability >= 90 && wide_rows_built() ? target.multiprocessors : 0,
          .split = clusters ? target.multiprocessors : 0,
          .dense = dense_room(target),
          .prefill = prefill_multiprocessors(target)};
}

View float_rows(std::byte* data, std::int64_t rows, std::int64_t columns) {
  return {.data = data, .type = DType::f32, .rank = 2, .dims = {rows, columns}, .strides = {columns * 4, 4}};
}

GateUpProduct::GateUpProduct(const Room& room, std::int64_t rows, const Tensor& x, const Tensor& gate, const Tensor& up,
                             Activation act, Phase phase, const Tensor& out, ScratchLayout& scratch,
                             const BankOut& made, const BankOut& into)
    : room_(room),
      gate_(view_of(gate)),
      up_(view_of(up)),
      out_(view_of(out)),
      fused_(takes_prefill({.w = gate_, .up = up_, .out = out_}, phase, room.prefill) ||
             (gate.dtype == up.dtype && takes_pass(gate_, view_of(x), out_) && takes_pass(up_, view_of(x), out_))),
      bank_(x, form_of(gate_, up_, view_of(x), out_, rows, phase, room), scratch, made),
      into_(into),
      act_(act),
      g_at_(scratch.add(fused_ ? 0 : out.dim(0), out.dim(1) * 4)),
      u_at_(scratch.add(fused_ ? 0 : out.dim(0), out.dim(1) * 4)) {}

void GateUpProduct::enqueue(const OpRows& rows, const CudaRun& at, std::string_view op) const {
  bank_.fill(at.scratch, at.stream, op);
  const RowBank bank = bank_.at(at.scratch);
  if (fused_) {
    multiply_units(
        {.w = gate_, .up = up_, .out = out_, .act = act_, .bank_out = into_.bf16, .bank_stride = into_.bf16_stride},
        bank, rows, room_, at, op);
    return;
  }
  const View g = float_rows(at.scratch + g_at_, out_.dims[0], out_.dims[1]);
  const View u = float_rows(at.scratch + u_at_, out_.dims[0], out_.dims[1]);
  multiply({.w = gate_, .out = g}, bank, rows, room_, at, op);
  multiply({.w = up_, .out = u}, bank, rows, room_, at, op);
  check(launch_gate({rows.at(at.scratch), g, u, out_, static_cast<std::int32_t>(act_)}, at.stream), op);
}

std::optional<OneRowArgs> one_row_of(const Matmul& op) {
  return one_row_of({.w = view_of(op.w), .bias = view_of(op.bias), .out = view_of(op.out)}, view_of(op.x),
                    ints_of(op.live));
}

std::unique_ptr<CudaOp> make_cuda_op(const Matmul& op, const Target& target) {
  if (takes_prefill(op, target)) {
    const Matmul* one = &op;
    return make_prefill({&one, 1}, target, {});
  }
  if (const auto args = one_row_of(op)) {
    return launch_op(launch_one_row, *args,
                     fmt::format("matmul {} by {}", shape_text(op.x.shape()), shape_text(op.w.shape())));
  }
  auto made = std::make_unique<ProductOp>(
      fmt::format("matmul {} by {}", shape_text(op.x.shape()), shape_text(op.w.shape())), target,
      op.order == Order::canonical ? Phase::decode : op.phase, op.x, op.w, op.bias, op.out);
  made->set_rows(OpRows::every_row(op.x.dim(0), op.live));
  return made;
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeMatmul& op, const Target& target) {
  auto made = std::make_unique<ProductOp>(
      fmt::format("moe_matmul {} by {}", shape_text(op.x.shape()), shape_text(op.w.shape())), target, op.phase, op.x,
      op.w, Tensor{}, op.out);
  made->set_rows(OpRows::of(op, made->scratch()));
  return made;
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeDown& op, const Target& target) {
  return make_down(op, target, false, {});
}

std::unique_ptr<CudaOp> make_down(const MoeDown& op, const Target& target, bool grouped, const BankOut& made_rows) {
  auto made = std::make_unique<ProductOp>(
      fmt::format("moe_down {} by {}", shape_text(op.x.shape()), shape_text(op.down.shape())), target, op.phase, op.x,
      op.down, Tensor{}, op.out, true, made_rows);
  made->set_rows(OpRows::of(op, grouped, made->scratch()));
  if (grouped) made->start_early();
  return made;
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeGateUp& op, const Target& target) {
  return make_gate_up(op, target, false, {}, {});
}

std::unique_ptr<GateUpStep> make_gate_up(const MoeGateUp& op, const Target& target, bool grouped, const BankOut& made,
                                         const BankOut& into) {
  return std::make_unique<GateUpOp>(op, target, grouped, made, into);
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeSharedExpert& op, const Target& target) {
  return std::make_unique<SharedExpertOp>(op, target);
}

}  // namespace conclave::cuda
