#include "backends/cuda/lone_heads.h"

#include "backends/cuda/attention_bank.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/kv_pages.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/lone_heads_plan.h"

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

}  // namespace

std::unique_ptr<CudaOp> make_lone_heads(const HeadRowsArgs& heads, const Attention& op, bool early,
                                        const Target& target) {
  if (target.capability < 90 || !fits_lone_heads(heads, op, target)) return nullptr;
  const std::int64_t context = op.kv.pages.dim(1) * op.kv.page_size();
  const std::int64_t max_units = ceil_div(context, kUnit);
  if (context == 0 || max_units > kLoneMaxUnits || lone_heads_shared(max_units) > target.shared_bytes ||
      lone_heads_clusters(max_units) < op.kv.n_kv_heads()) {
    return nullptr;
  }
  LoneHeadsArgs args;
  if (make_lone_pool_map(heads.write.k_pool, args.k_map) != 0 ||
      make_lone_pool_map(heads.write.v_pool, args.v_map) != 0) {
    return nullptr;
  }
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
  args.context = context;
  args.magnitude = heads.rope.magnitude;
  std::copy_n(heads.rope.frequencies, kLonePairs, args.frequencies);
  args.eps = heads.eps;
  args.scale = op.scale;
  args.group = static_cast<std::int32_t>(op.q.dim(1) / op.kv.n_kv_heads());
  args.n_kv_heads = static_cast<std::int32_t>(op.kv.n_kv_heads());
  args.max_units = static_cast<std::int32_t>(max_units);
  args.early = early;
  return launch_op(launch_lone_heads, args, "heads and attention " + shape_text(op.q.shape()));
}

}  // namespace conclave::cuda
