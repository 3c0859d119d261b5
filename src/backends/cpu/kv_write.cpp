// kv_write: a head at a time, its tokens in order, so that of two tokens with one place the later one stands.
#include "ops/kv_write.h"

#include <cstring>

#include "backends/cpu/row_work.h"
#include "ops/kv_block.h"

namespace conclave {
namespace {

class CpuKvWrite final : public CpuOp {
 public:
  CpuKvWrite(const KvWrite& op, const RowKernels& row)
      : op_(op), row_(row), width_(std::max(row_width(op.k), row_width(op.v))) {
    local_.add<float>(width_);
  }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  bool alone() const override { return rows_alone(2 * op_.kv.n_kv_heads(), op_.k.dim(0) * width_); }
  void run(const CpuRun& run) const override {
    float* scratch = scratch_at<float>(run.local, 0);
    const std::int64_t n_live = live_rows(op_.live, op_.k.dim(0));
    for_rows(run.region, width_ > 0 ? 2 * op_.kv.n_kv_heads() : 0, n_live * width_, [&](std::int64_t i) {
      const Tensor& from = i % 2 == 0 ? op_.k : op_.v;
      const Tensor& pool = i % 2 == 0 ? op_.kv.k : op_.kv.v;
      for (std::int64_t t = 0; t < n_live; ++t) {
        const KvPlace at = kv_place(op_.kv, load_i32(op_.seqs, {t}), load_i32(op_.positions, {t}));
        if (at.page < 0) continue;
        put(pool, {at.page, at.slot, i / 2}, read_row(row_, from, {t, i / 2}, scratch));
      }
    });
  }

 private:
  void put(const Tensor& pool, Index at, const float* x) const {
    std::byte* to = row_address(pool, at);
    if (pool.dtype != DType::q8_0) {
      row_.store(pool.dtype, x, to, pool.inner());
      return;
    }
    for (std::int64_t d = 0; d < pool.inner(); d += kKvBlock, to += sizeof(BlockQ8_0)) {
      const BlockQ8_0 block = encode_kv_block(x + d);
      std::memcpy(to, &block, sizeof block);
    }
  }

  KvWrite op_;
  const RowKernels& row_;
  std::int64_t width_;
  ScratchLayout local_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const KvWrite& op, const CpuKernels& kernels) {
  return std::make_unique<CpuKvWrite>(op, kernels.row);
}

}  // namespace conclave
