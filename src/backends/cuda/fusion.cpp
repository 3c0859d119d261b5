#include "backends/cuda/fusion.h"

#include <optional>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/head_rows_plan.h"
#include "backends/cuda/kv_write.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/one_row.h"
#include "backends/cuda/rope.h"

namespace conclave::cuda {
namespace {

using Ops = std::span<const Op>;
using Found = std::optional<FusedOps>;

// The op at `i` where it is such a one.
template <class T>
const T* at(Ops ops, std::size_t i) {
  return i < ops.size() ? std::get_if<T>(&ops[i]) : nullptr;
}

Found three_products(Ops ops, std::size_t first) {
  OneRowsArgs args;
  const Matmul* before = nullptr;
  for (std::size_t i = 0; i < kSideBySide; ++i) {
    const auto* op = at<Matmul>(ops, first + i);
    if (op == nullptr) return std::nullopt;
    const auto one = one_row_of(*op);
    if (!one || !goes_side_by_side(*one)) return std::nullopt;
    // None may write what another reads: they run at once.
    if (before != nullptr && (op->x != before->x || op->live != before->live)) return std::nullopt;
    if (op->out.buffer == op->x.buffer && byte_range(op->out).overlaps(byte_range(op->x))) return std::nullopt;
    args.of[i] = *one;
    before = op;
  }
  return FusedOps{first, kSideBySide,
                  launch_op(launch_one_rows, args, "matmul, three of " + shape_text(before->x.shape()))};
}

// Rows of heads that a warp takes as vectors.
bool fits_heads(const Tensor& t) {
  return t.rank == 3 && t.dtype == DType::f32 && t.inner() <= kHeadWidth && takes_vectors(view_of(t));
}

Found head_rows(Ops ops, std::size_t first) {
  std::size_t i = first;
  const auto* q_norm = at<RmsNorm>(ops, i);
  const auto* k_norm = q_norm != nullptr ? at<RmsNorm>(ops, i + 1) : nullptr;
  if (q_norm != nullptr) i += 2;
  const auto* q = at<Rope>(ops, i);
  const auto* k = at<Rope>(ops, i + 1);
  const auto* write = at<KvWrite>(ops, i + 2);
  if ((q_norm == nullptr) != (k_norm == nullptr) || q == nullptr || k == nullptr || write == nullptr)
    return std::nullopt;
  const auto norms = [&](const RmsNorm& norm, const Rope& rope) {
    return norm.x == rope.x && norm.out == rope.x && norm.live == rope.live && norm.eps == q_norm->eps &&
           takes_vectors(view_of(norm.weight));
  };
  if (q_norm != nullptr && !(norms(*q_norm, *q) && norms(*k_norm, *k))) return std::nullopt;
  Rope k_as_q = *k;  // alike but for the tensor
  k_as_q.x = q->x;
  k_as_q.out = q->out;
  const auto same = [](const Rope& a, const Rope& b) {
    return a.positions == b.positions && a.factors == b.factors && a.live == b.live && a.n_rot == b.n_rot &&
           a.style == b.style && a.scaling == b.scaling && a.base == b.base && a.factor == b.factor &&
           a.original_context == b.original_context && a.beta_fast == b.beta_fast && a.beta_slow == b.beta_slow &&
           a.magnitude == b.magnitude;
  };
  if (!same(k_as_q, *q) || q->out != q->x || k->out != k->x || write->k != k->x || write->live != q->live ||
      write->positions != q->positions || !fits_heads(q->x) || !fits_heads(k->x) || q->x.inner() != k->x.inner() ||
      write->v.rank != 3 || write->v.dim(1) != k->x.dim(1) || kv_has_places(q->x.dim(0)) || q->x.dim(0) == 0) {
    return std::nullopt;
  }
  HeadRowsArgs args{.rope = rope_args(*q), .k = view_of(k->x), .write = kv_write_args(*write)};
  if (q_norm != nullptr) {
    args.q_norm = view_of(q_norm->weight);
    args.k_norm = view_of(k_norm->weight);
    args.eps = q_norm->eps;
  }
  return FusedOps{first, i + 3 - first, launch_op(launch_head_rows, args, "heads " + shape_text(q->x.shape()))};
}

Found sum_and_norm(Ops ops, std::size_t first) {
  const auto* add = at<Add>(ops, first);
  const auto* norm = at<RmsNorm>(ops, first + 1);
  if (add == nullptr || norm == nullptr || add->out != add->a || norm->x != add->out || add->b.rank != 2 ||
      norm->live != add->live || norm->x.rank != 2 || row_passes(norm->x.dim(1)) > kKeptPasses) {
    return std::nullopt;
  }
  const RmsNormArgs args{.x = view_of(norm->x),
                         .add = view_of(add->b),
                         .weight = view_of(norm->weight),
                         .out = view_of(norm->out),
                         .live = ints_of(norm->live),
                         .eps = norm->eps};
  return FusedOps{first, 2, launch_op(launch_rms_norm, args, "add, rms_norm " + shape_text(norm->x.shape()))};
}

}  // namespace

std::vector<FusedOps> fuse(Ops ops) {
  std::vector<FusedOps> fused;
  for (std::size_t i = 0; i < ops.size();) {
    Found found = three_products(ops, i);
    if (!found) found = head_rows(ops, i);
    if (!found) found = sum_and_norm(ops, i);
    i += found ? found->count : 1;
    if (found) fused.push_back(std::move(*found));
  }
  return fused;
}

}  // namespace conclave::cuda
