#include "backends/cuda/lone_heads.h"

#include <algorithm>

#include "backends/cuda/attention_bank.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/kv_pages.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/long_heads_plan.h"

namespace conclave::cuda {
namespace {

bool fits_pool(const View& pool) {
  return pool.dims[3] == kLoneHeadWidth && pool.dims[0] * pool.strides[0] <= kUnitsPool;
}
bool fits_lone_heads(const HeadRowsArgs& heads, const Attention& op, const Target& target) {
  const RopeArgs& rope = heads.rope;
  return op.q.dim(0) == 1 && op.q.dim(2) == kLoneHeadWidth && heads.v_runs && heads.k_pool_runs && heads.v_pool_runs &&
         fits_pool(heads.write.k_pool) && fits_pool(heads.write.v_pool) && rope.neox && rope.n_rot == kLoneHeadWidth &&
         rope.factors.data == nullptr && op.out.dtype == DType::f32 && op.kv.page_size() % kUnit == 0 &&
         op.q.dim(1) / op.kv.n_kv_heads() <= kLoneGroup && takes_mma_attention(op, target);
}

// Two launches, with scratch between them.
class LongHeads final : public CudaOp {
 public:
  LongHeads(const LongHeadsArgs& args, std::string what) : args_(args), what_(std::move(what)) {
    scratch_ = long_scratch(args.of.max_units, std::int64_t{args.of.group} * args.of.n_kv_heads, args.of.n_kv_heads);
  }
  std::int64_t scratch_bytes() const override { return scratch_.total; }
  void enqueue(const CudaRun& run) const override {
    LongHeadsArgs args = args_;
    args.kept = {.acc = reinterpret_cast<float*>(run.scratch),
                 .sums = reinterpret_cast<float*>(run.scratch + scratch_.sums),
                 .heads = reinterpret_cast<float*>(run.scratch + scratch_.heads)};
    check(launch_long_heads(args, run.stream), what_);
    check(launch_long_merge(long_merge_args(args), run.stream), what_);
  }

 private:
  LongHeadsArgs args_;
  LongScratch scratch_;
  std::string what_;
};

LoneHeadsArgs lone_heads_args(const HeadRowsArgs& heads, const Attention& op, bool early) {
  LoneHeadsArgs args;
  args.q = LoneHeadRows(heads.rope.x);
  args.k = LoneHeadRows(heads.k);
  args.v = LoneHeadRows(heads.write.v);
  args.out = LoneHeadRows(view_of(op.out));
  args.q_norm = {.weight = heads.q_norm.data, .type = heads.q_norm.type};
  args.k_norm = {.weight = heads.k_norm.data, .type = heads.k_norm.type};
  args.k_pool = LoneHeadPool(heads.write.k_pool);
  args.v_pool = LoneHeadPool(heads.write.v_pool);
  args.kv = pages_of(op.kv);
  args.lengths = view_of(op.lengths);
  args.seq = ints_of(op.seqs);
  args.position = ints_of(op.positions);
  args.live = ints_of(op.live);
  args.context = op.kv.pages.dim(1) * op.kv.page_size();
  args.magnitude = heads.rope.magnitude;
  std::copy_n(heads.rope.frequencies, kLonePairs, args.frequencies);
  args.eps = heads.eps;
  args.scale = op.scale;
  args.group = static_cast<std::int32_t>(op.q.dim(1) / op.kv.n_kv_heads());
  args.n_kv_heads = static_cast<std::int32_t>(op.kv.n_kv_heads());
  args.max_units = static_cast<std::int32_t>(ceil_div(args.context, kUnit));
  args.early = early;
  return args;
}

}  // namespace

std::unique_ptr<CudaOp> make_lone_heads(const HeadRowsArgs& heads, const Attention& op, bool early,
                                        const Target& target) {
  const std::int64_t n_kv_heads = op.kv.n_kv_heads();
  const std::int64_t max_units = ceil_div(op.kv.pages.dim(1) * op.kv.page_size(), kUnit);
  if (target.capability < 90 || !fits_lone_heads(heads, op, target) || max_units == 0) return nullptr;
  const std::string what = "heads and attention " + shape_text(op.q.shape());
  const bool clusters = max_units <= kLoneMaxUnits && lone_heads_shared(max_units) <= target.shared_bytes &&
                        lone_heads_clusters(max_units) >= n_kv_heads;
  const std::int32_t workers = long_workers(target.multiprocessors, n_kv_heads);
  if (!clusters && (!long_heads_fit(max_units, workers) || kLongHeadsShared > target.shared_bytes)) return nullptr;
  LoneHeadsArgs args = lone_heads_args(heads, op, early);
  if (make_lone_pool_map(heads.write.k_pool, args.k_map) != 0 ||
      make_lone_pool_map(heads.write.v_pool, args.v_map) != 0) {
    return nullptr;
  }
  if (clusters) return launch_op(launch_lone_heads, args, what);
  return std::make_unique<LongHeads>(LongHeadsArgs{.of = args, .workers = workers}, what);
}

}  // namespace conclave::cuda
