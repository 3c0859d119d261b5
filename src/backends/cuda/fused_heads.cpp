#include "backends/cuda/fused_heads.h"

#include <algorithm>
#include <initializer_list>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/head_rows_plan.h"
#include "backends/cuda/kv_write.h"
#include "backends/cuda/lone_heads.h"
#include "backends/cuda/rope.h"

namespace conclave::cuda {
namespace {

using Ops = std::span<const Op>;

// Rows of heads that a warp takes as vectors.
bool fits_heads(const Tensor& t) {
  return t.rank == 3 && t.dtype == DType::f32 && t.inner() <= kHeadWidth && takes_vectors(view_of(t));
}

class HeadRowsOp final : public CudaOp {
 public:
  HeadRowsOp(const HeadRowsArgs& args, std::string what) : args_(args), what_(std::move(what)) {}
  std::int64_t scratch_bytes() const override { return kv_write_scratch(args_.k.dims[0]); }
  void enqueue(const CudaRun& run) const override {
    HeadRowsArgs args = args_;
    args.write.places = kv_places_in(run.scratch, args.k.dims[0]);
    check(launch_head_rows(args, run.stream), what_);
  }

 private:
  HeadRowsArgs args_;
  std::string what_;
};

// Whether products come before, which write none of `inputs`, nor does a norm that may be in their launch.
bool follow_products(Ops ops, std::size_t first, std::initializer_list<const Tensor*> inputs) {
  if (first == 0 || op_at<Matmul>(ops, first - 1) == nullptr) return false;
  while (first > 0) {
    const Op& before = ops[--first];
    const auto* product = std::get_if<Matmul>(&before);
    const Tensor* made = product != nullptr ? &product->out : normed(before).out;
    if (made != nullptr && overlap_any(*made, inputs)) return false;
    if (product == nullptr) break;
  }
  return true;
}

// Attention of one token's heads, with them in one launch. `weights`: of their norms.
std::unique_ptr<CudaOp> heads_with(Ops ops, std::size_t first, const Attention* op, const KvWrite& write,
                                   const Tensor& q, std::initializer_list<const Tensor*> weights,
                                   const HeadRowsArgs& args, const Target& target) {
  if (op == nullptr || op->q != q || op->kv.k != write.kv.k || op->kv.v != write.kv.v ||
      op->kv.pages != write.kv.pages || op->seqs != write.seqs || op->positions != write.positions ||
      op->live != write.live || overlap_any(op->lengths, {&q, &write.k, &write.kv.k, &write.kv.v}) ||
      overlap_any(op->out, {&q, &write.k, &write.v, &write.kv.k, &write.kv.v}) || overlap_any(op->out, weights)) {
    return nullptr;
  }
  const bool early = args.early && follow_products(ops, first, {&op->kv.k, &op->kv.v, &op->lengths});
  return make_lone_heads(args, *op, early, target);
}

}  // namespace

std::optional<FusedOps> fuse_heads(Ops ops, std::size_t first, const Target& target) {
  std::size_t i = first;
  const auto* q_norm = op_at<RmsNorm>(ops, i);
  const auto* k_norm = q_norm != nullptr ? op_at<RmsNorm>(ops, i + 1) : nullptr;
  if (q_norm != nullptr) i += 2;
  const auto* q = op_at<Rope>(ops, i);
  const auto* k = op_at<Rope>(ops, i + 1);
  const auto* write = op_at<KvWrite>(ops, i + 2);
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
      write->v.rank != 3 || write->v.dim(1) != k->x.dim(1) || q->x.dim(0) == 0) {
    return std::nullopt;
  }
  const std::initializer_list<const Tensor*> written = {&q->x, &k->x, &write->kv.k, &write->kv.v};
  for (const Tensor* one : written) {
    const bool meets = std::any_of(written.begin(), written.end(),
                                   [&](const Tensor* other) { return other != one && overlap(*one, *other); });
    if (meets || overlap_any(*one, {&write->v, &write->seqs, &write->kv.pages, &q->positions, &q->factors, &q->live})) {
      return std::nullopt;
    }
    if (q_norm != nullptr && overlap_any(*one, {&q_norm->weight, &k_norm->weight})) return std::nullopt;
  }
  HeadRowsArgs args{.rope = rope_args(*q), .k = view_of(k->x), .write = kv_write_args(*write)};
  if (q_norm != nullptr) {
    args.q_norm = view_of(q_norm->weight);
    args.k_norm = view_of(k_norm->weight);
    args.eps = q_norm->eps;
  }
  const View& v = args.write.v;
  const auto runs = [](const View& pool) { return is_float(pool.type) && takes_vectors(pool); };
  args.v_runs = v.type == DType::f32 && takes_vectors(v) && v.dims[2] <= kHeadWidth;
  args.k_pool_runs = runs(args.write.k_pool);
  args.v_pool_runs = runs(args.write.v_pool);
  const Tensor none;
  args.early =
      follow_products(ops, first,
                      {&write->kv.pages, &write->seqs, &q->positions, &q->factors, &q->live,
                       q_norm != nullptr ? &q_norm->weight : &none, k_norm != nullptr ? &k_norm->weight : &none});
  if (auto both = heads_with(ops, first, op_at<Attention>(ops, i + 3), *write, q->x,
                             {q_norm != nullptr ? &q_norm->weight : &none, k_norm != nullptr ? &k_norm->weight : &none},
                             args, target)) {
    return FusedOps{first, i + 4 - first, std::move(both)};
  }
  return FusedOps{first, i + 3 - first, std::make_unique<HeadRowsOp>(args, "heads " + shape_text(q->x.shape()))};
}

}  // namespace conclave::cuda
