#include "ops/kv_write.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/kv_pages.h"
#include "backends/cuda/kv_write_plan.h"

namespace conclave::cuda {
namespace {

class CudaKvWrite final : public CudaOp {
 public:
  explicit CudaKvWrite(const KvWrite& op)
      : what_("kv_write " + shape_text(op.k.shape()) + " into " + shape_text(op.kv.k.shape())) {
    args_.k = view_of(op.k);
    args_.v = view_of(op.v);
    args_.seqs = view_of(op.seqs);
    args_.positions = view_of(op.positions);
    args_.live = ints_of(op.live);
    args_.kv = pages_of(op.kv);
    args_.k_pool = view_of(op.kv.k);
    args_.v_pool = view_of(op.kv.v);
  }
  std::int64_t scratch_bytes() const override { return kv_write_scratch(args_.k.dims[0]); }
  void enqueue(const CudaRun& run) const override {
    KvWriteArgs args = args_;
    args.places = reinterpret_cast<std::int64_t*>(run.scratch);
    check(launch_kv_write(args, run.stream), what_);
  }

 private:
  KvWriteArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const KvWrite& op, const Target&) {
  return std::make_unique<CudaKvWrite>(op);
}

}  // namespace conclave::cuda
