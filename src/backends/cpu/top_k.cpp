// top_k: long rows (a vocabulary) are cut into segments of one length, so that one row keeps a team busy; each segment
// gives its k best, and those of a row are ranked together.
#include <algorithm>
#include <functional>

#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

constexpr std::int64_t kSegment = 16384;

class CpuTopK final : public CpuOp {
 public:
  CpuTopK(const TopK& op, const RowKernels& row)
      : op_(op), row_(row), d_(row_width(op.x)), k_(op.ids.dim(1)), segments_((d_ + kSegment - 1) / kSegment) {
    floats_at_ = local_.add<float>(std::min(d_, kSegment));
    keys_at_ = local_.add<std::uint64_t>(2 * k_);
    shared_.add(op.x.dim(0), segments_ * k_ * static_cast<std::int64_t>(sizeof(std::uint64_t)));
  }
  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  std::int64_t local_bytes() const override { return local_.bytes(); }

  void run(const CpuRun& run) const override {
    auto* best = scratch_at<std::uint64_t>(run.shared, 0);  // [row][segment][k]
    const std::int64_t n_live = live_rows(op_.live, op_.x.dim(0));
    for_rows(run.region, n_live * segments_, std::min(d_, kSegment),
             [&](std::int64_t i) { rank_segment(run, i / segments_, i % segments_, best + i * k_); });
    for_rows(run.region, n_live, segments_ * k_, [&](std::int64_t r) {
      std::uint64_t* keys = best + r * segments_ * k_;
      std::partial_sort(keys, keys + k_, keys + segments_ * k_, std::greater<>());
      for (std::int64_t i = 0; i < k_; ++i) {
        store_i32(op_.ids, {r, i}, index_of_key(keys[i]));
        store(op_.values, {r, i}, value_of_key(keys[i]));
      }
    });
  }

 private:
  // Keys are taken in until there are 2k; then the k best stay, and the worst of them is what others must beat.
  void rank_segment(const CpuRun& run, std::int64_t r, std::int64_t segment, std::uint64_t* out) const {
    const std::int64_t begin = segment * kSegment;
    const Tensor part = slice(op_.x, 1, begin, std::min(kSegment, d_ - begin));
    const float* x = read_row(row_, part, {r}, scratch_at<float>(run.local, floats_at_));
    auto* keys = scratch_at<std::uint64_t>(run.local, keys_at_);
    std::int64_t n = 0;
    std::uint64_t beaten = 0;
    float threshold = ranked_value(-INFINITY);
    const auto cut = [&] {
      std::nth_element(keys, keys + k_ - 1, keys + n, std::greater<>());
      n = k_;
      beaten = keys[k_ - 1];
      threshold = value_of_key(beaten);
    };
    for (std::int64_t i = 0; i < part.inner(); ++i) {
      if (!(x[i] >= threshold)) continue;  // NaN, too
      const std::uint64_t key = top_key(x[i], static_cast<std::int32_t>(begin + i));
      if (key <= beaten) continue;
      keys[n++] = key;
      if (n == 2 * k_) cut();
    }
    if (n > k_) cut();
    std::fill(std::copy(keys, keys + n, out), out + k_, 0);
  }

  TopK op_;
  const RowKernels& row_;
  std::int64_t d_;
  std::int64_t k_;
  std::int64_t segments_;
  std::int64_t floats_at_;
  std::int64_t keys_at_;
  ScratchLayout shared_;
  ScratchLayout local_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const TopK& op, const CpuKernels& kernels) {
  return std::make_unique<CpuTopK>(op, kernels.row);
}

}  // namespace conclave
