#include "ops/attention.h"

#include "backends/cuda/attention_bank.h"
#include "backends/cuda/attention_mma_plan.h"
#include "backends/cuda/attention_prefill_plan.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/kv_pages.h"
#include "backends/cuda/product_plan.h"
#include "backends/cuda/row_plan.h"
#include "base/checked.h"

namespace conclave::cuda {
namespace {

constexpr std::int64_t kLongest = std::int64_t{1} << 31;  // positions are 32 bits

bool is_half(DType type) {
  return type == DType::f16 || type == DType::bf16;
}

AttentionArgs args_of(const Attention& op) {
  AttentionArgs args;
  args.q = view_of(op.q);
  args.k = view_of(op.kv.k);
  args.v = view_of(op.kv.v);
  args.lengths = view_of(op.lengths);
  args.seqs = view_of(op.seqs);
  args.positions = view_of(op.positions);
  args.out = view_of(op.out);
  args.live = ints_of(op.live);
  args.kv = pages_of(op.kv);
  args.context = std::min(checked_mul(op.kv.pages.dim(1), op.kv.page_size()).value_or(kLongest), kLongest);
  args.group = static_cast<std::int32_t>(op.q.dim(1) / op.kv.n_kv_heads());
  args.vectors = is_half(op.kv.k.dtype) && is_half(op.kv.v.dtype) && takes_vectors(args.k) && takes_vectors(args.v) &&
                 op.kv.k.dim(3) <= kSlice;
  args.scale = op.scale;
  return args;
}

AttentionSizes sizes_of(const Attention& op, const AttentionArgs& args) {
  return {.n_tokens = op.q.dim(0),
          .n_heads = op.q.dim(1),
          .n_kv_heads = op.kv.n_kv_heads(),
          .d_v = op.out.dim(2),
          .context = args.context,
          .decode = op.phase == Phase::decode};
}

std::string what_of(const Attention& op) {
  return "attention " + shape_text(op.q.shape()) + " over " + shape_text(op.kv.k.shape());
}

// One for each row of queries, all 0.
std::shared_ptr<CudaBuffer> tickets_for(const Attention& op, const Target& target) {
  auto* const stream = static_cast<const CudaBuffer&>(*op.out.buffer).stream();
  return CudaBuffer::make(target.device, op.q.dim(0) * op.q.dim(1) * 4, stream);
}

// Any cache, in f32.
class CudaAttention final : public CudaOp {
 public:
  CudaAttention(const Attention& op, const Target& target)
      : args_(args_of(op)), sizes_(sizes_of(op, args_)), what_(what_of(op)) {
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

// Where blocks that share a row's ranges leave them for the one that is done last.
class RangeSpace {
 public:
  RangeSpace() = default;
  RangeSpace(const Attention& op, const Target& target, const MmaScratch& scratch, std::int64_t n_ranges)
      : scratch_(scratch) {
    kept_.n_ranges = n_ranges;
    if (scratch_.total == 0) return;
    tickets_ = tickets_for(op, target);
    kept_.tickets = reinterpret_cast<std::int32_t*>(tickets_->data());
  }
  std::int64_t bytes() const { return scratch_.total * 4; }
  KeptRanges at(std::byte* scratch) const {
    KeptRanges kept = kept_;
    kept.acc = reinterpret_cast<float*>(scratch);
    kept.sums = kept.acc + scratch_.sums;
    return kept;
  }

 private:
  MmaScratch scratch_;
  KeptRanges kept_;
  std::shared_ptr<CudaBuffer> tickets_;  // 0 again after every run
};

// Whether `units` of attention_mma_plan.h is made for the cache.
bool fits_units(const AttentionArgs& args) {
  const auto small = [](const View& pool) { return pool.dims[0] * pool.strides[0] <= kUnitsPool; };
  const std::int64_t d = args.k.dims[3];
  return (d == 64 || d == 128) && d == args.v.dims[3] && small(args.k) && small(args.v);
}

// Caches of f16, on tensor cores.
class CudaMmaAttention final : public CudaOp {
 public:
  CudaMmaAttention(const Attention& op, const Target& target) : args_(args_of(op)), what_(what_of(op)) {
    const AttentionSizes sizes = sizes_of(op, args_);
    const int width = mma_width(op.kv.k.dim(3), op.kv.v.dim(3));
    const bool clusters = target.capability >= 90 && target.shared_bytes >= apart_attention_shared(width);
    plan_ = mma_plan(sizes, width, target.multiprocessors,
                     {.clusters = clusters ? attention_clusters(width) : 0,
                      .units_bytes = fits_units(args_) ? target.shared_bytes : 0});
    space_ = {op, target, mma_scratch(sizes, plan_), plan_.n_ranges};
  }
  std::int64_t scratch_bytes() const override { return space_.bytes(); }
  void enqueue(const CudaRun& run) const override {
    const KeptRanges kept = space_.at(run.scratch);
    if (plan_.use_few) {
      const auto launch = plan_.by == ByToken::apart   ? launch_attention_apart
                          : plan_.by == ByToken::units ? launch_attention_units
                                                       : launch_attention_few;
      check(launch(args_, plan_, kept, run.stream), what_);
    }
    if (plan_.use_many) check(launch_attention_many(args_, plan_, kept, run.stream), what_);
  }
  // It may read what tells of tokens and pages before it waits for the op before it.
  void start_early() { args_.early = plan_.use_few && !plan_.use_many; }
  // Whether it can leave its rows there, too: where no tokens are left to `many`, and a block has whole chunks.
  bool leaves_rows(const BankOut& bank) {
    const std::int64_t of_block = plan_.few.n_heads * args_.out.dims[2];
    const bool few_alone = plan_.use_few && !plan_.use_many;
    const bool chunks =
        plan_.by != ByToken::apart || (plan_.width == kApartChunkWidth && args_.out.dims[2] == kApartChunkWidth);
    if (!few_alone || !chunks || args_.group % plan_.few.n_heads != 0 || of_block % kChunk != 0) return false;
    args_.bank = bank;
    return true;
  }

 private:
  AttentionArgs args_;
  MmaPlan plan_;
  RangeSpace space_;
  std::string what_;
};

// Prompts on Hopper.
class CudaPrefillAttention final : public CudaOp {
 public:
  CudaPrefillAttention(const Attention& op, const Target& target, bool early, const BankOut& bank)
      : args_(args_of(op)), what_(what_of(op)) {
    args_.early = early;
    args_.bank = bank;
    const AttentionSizes sizes = sizes_of(op, args_);
    plan_ = prefill_plan(sizes, target.multiprocessors);
    plan_.scale = prefill_scale(op.scale);
    space_ = {op, target, prefill_scratch(sizes, plan_), plan_.n_ranges};
  }
  std::int64_t scratch_bytes() const override { return space_.bytes(); }
  void enqueue(const CudaRun& run) const override {
    check(launch_attention_prefill(args_, plan_, space_.at(run.scratch), run.stream), what_);
  }

 private:
  AttentionArgs args_;
  PrefillPlan plan_;
  RangeSpace space_;
  std::string what_;
};

enum class AttentionKernel { any, mma, prefill };
AttentionKernel attention_kernel(const Attention& op, const Target& target) {
  const std::int64_t d_k = op.kv.k.dim(3);
  const std::int64_t d_v = op.kv.v.dim(3);
  // Blocks count rows of queries in 32 bits.
  const bool halves = op.kv.k.dtype == DType::f16 && op.kv.v.dtype == DType::f16 && takes_vectors(view_of(op.kv.k)) &&
                      takes_vectors(view_of(op.kv.v)) && op.q.dim(0) * op.q.dim(1) < kLongest;
  if (!halves) return AttentionKernel::any;
  if (op.phase == Phase::prefill && prefill_attention_fits(d_k, d_v) && target.capability >= 90 &&
      prefill_attention_shared(static_cast<int>(d_k)) <= target.shared_bytes && attention_prefill_built()) {
    return AttentionKernel::prefill;
  }
  const int width = mma_width(d_k, d_v);
  const bool fits =
      width > 0 && std::max(few_attention_shared(width), many_attention_shared(width)) <= target.shared_bytes;
  return fits ? AttentionKernel::mma : AttentionKernel::any;
}

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const Attention& op, const Target& target) {
  switch (attention_kernel(op, target)) {
    case AttentionKernel::prefill:
      return std::make_unique<CudaPrefillAttention>(op, target, false, BankOut{});
    case AttentionKernel::mma:
      return std::make_unique<CudaMmaAttention>(op, target);
    case AttentionKernel::any:
      break;
  }
  return std::make_unique<CudaAttention>(op, target);
}

bool takes_mma_attention(const Attention& op, const Target& target) {
  return attention_kernel(op, target) == AttentionKernel::mma;
}

std::unique_ptr<CudaOp> make_attention(const Attention& op, const Target& target, bool early, const BankOut& bank) {
  const AttentionKernel kernel = attention_kernel(op, target);
  if (kernel == AttentionKernel::prefill && bank.bf16 != nullptr) {
    return std::make_unique<CudaPrefillAttention>(op, target, early, bank);
  }
  if (kernel != AttentionKernel::mma || bank.bf16 != nullptr) return nullptr;
  auto made = std::make_unique<CudaMmaAttention>(op, target);
  if (bank.given() && !made->leaves_rows(bank)) return nullptr;
  if (early) made->start_early();
  return made;
}

}  // namespace conclave::cuda
