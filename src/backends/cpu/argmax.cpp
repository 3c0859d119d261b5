// argmax: long rows (a vocabulary) are cut into segments of one length, so that one row keeps a team busy.
#include <cmath>

#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

constexpr std::int64_t kSegment = 16384;

struct Best {
  float value;
  std::int32_t index;

  std::int32_t id() const { return value > -INFINITY ? index : -1; }
};

class CpuArgmax final : public CpuOp {
 public:
  CpuArgmax(const Argmax& op, const RowKernels& row) : op_(op), row_(row), d_(row_width(op.x)) {
    segments_ = d_ / kSegment + (d_ % kSegment > 0 ? 1 : 0);
    local_.add<float>(std::min(d_, kSegment));
    shared_.add(op.x.dim(0), segments_ * static_cast<std::int64_t>(sizeof(Best)));
  }
  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  void run(const CpuRun& run) const override {
    Best* best = scratch_at<Best>(run.shared, 0);
    float* scratch = scratch_at<float>(run.local, 0);
    const std::int64_t n_live = live_rows(op_.live, op_.x.dim(0));
    for_rows(run.region, n_live * segments_, std::min(d_, kSegment), [&](std::int64_t i) {
      best[i] = best_of(i / segments_, i % segments_, scratch);
      if (segments_ == 1) store_i32(op_.ids, {i}, best[i].id());
    });
    if (segments_ <= 1) return;
    for_rows(run.region, n_live, segments_, [&](std::int64_t r) {
      Best winner{-INFINITY, 0};
      for (std::int64_t s = 0; s < segments_; ++s) {
        const Best& other = best[r * segments_ + s];
        if (other.value > winner.value) winner = other;  // ties to the lower index
      }
      store_i32(op_.ids, {r}, winner.id());
    });
  }

 private:
  Best best_of(std::int64_t r, std::int64_t segment, float* scratch) const {
    const std::int64_t begin = segment * kSegment;
    const Tensor part = slice(op_.x, 1, begin, std::min(kSegment, d_ - begin));
    Best best{};
    const std::int64_t index = row_.argmax(read_row(row_, part, {r}, scratch), part.inner(), &best.value);
    best.index = static_cast<std::int32_t>(begin + index);
    return best;
  }

  Argmax op_;
  const RowKernels& row_;
  std::int64_t d_;
  std::int64_t segments_ = 0;
  ScratchLayout shared_;
  ScratchLayout local_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const Argmax& op, const CpuKernels& kernels) {
  return std::make_unique<CpuArgmax>(op, kernels.row);
}

}  // namespace conclave
