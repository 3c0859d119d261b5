#include "ops/attention.h"

#include "backends/cuda/attention_plan.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/kv_pages.h"
#include "backends/cuda/row_plan.h"
#include "base/checked.h"

namespace conclave::cuda {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 31;  // positions are 32 bits

bool is_half(DType type) {
  return type == DType::f16 || type == DType::bf16;
}

class CudaAttention final : public CudaOp {
 public:
  CudaAttention(const Attention& op, const Target& target)
      : what_("attention " + shape_text(op.q.shape()) + " over " + shape_text(op.kv.k.shape())) {
    args_.q = view_of(op.q);
    args_.k = view_of(op.kv.k);
    args_.v = view_of(op.kv.v);
    args_.lengths = view_of(op.lengths);
    args_.seqs = view_of(op.seqs);
    args_.positions = view_of(op.positions);
    args_.out = view_of(op.out);
    args_.live = ints_of(op.live);
    args_.kv = pages_of(op.kv);
    args_.context = std::min(checked_mul(op.kv.pages.dim(1), op.kv.page_size()).value_or(kLongest), kLongest);
    args_.group = static_cast<std::int32_t>(op.q.dim(1) / op.kv.n_kv_heads());
    args_.vectors = is_half(op.kv.k.dtype) && is_half(op.kv.v.dtype) && takes_vectors(args_.k) &&
                    takes_vectors(args_.v) && op.kv.k.dim(3) <= kSlice;
    args_.scale = op.scale;
    sizes_ = {.n_tokens = op.q.dim(0),
              .n_heads = op.q.dim(1),
              .n_kv_heads = op.kv.n_kv_heads(),
              .d_v = op.out.dim(2),
              .context = args_.context};
    plan_ = attention_plan(sizes_, target.multiprocessors);
    args_.split = plan_.n_kept > 0;
    args_.n_kept = args_.split ? plan_.n_kept : plan_.n_units;
    scratch_ = attention_scratch(sizes_, plan_);
  }
  std::int64_t scratch_bytes() const override { return scratch_.total * 4; }
  void enqueue(const CudaRun& run) const override {
    AttentionArgs args = args_;
    auto* scratch = reinterpret_cast<float*>(run.scratch);
    args.unit_acc = scratch;
    args.unit_sum = scratch + scratch_.unit_sum;
    args.state_acc = scratch + scratch_.state_acc;
    args.state_sum = scratch + scratch_.state_sum;
    do {
      check(launch_attention(args, plan_, run.stream), what_);
      if (args.split) check(launch_attention_merge(args, run.stream), what_);
      args.first_unit += args.n_kept;
    } while (args.first_unit < plan_.n_units);
  }

 private:
  AttentionArgs args_;
  AttentionSizes sizes_;
  AttentionPlan plan_;
  AttentionScratch scratch_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const Attention& op, const Target& target) {
  return std::make_unique<CudaAttention>(op, target);
}

}  // namespace conclave::cuda
