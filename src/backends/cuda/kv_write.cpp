#include "backends/cuda/kv_write.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/kv_pages.h"

namespace conclave::cuda {

KvWriteArgs kv_write_args(const KvWrite& op) {
  return {.k = view_of(op.k),
          .v = view_of(op.v),
          .seqs = view_of(op.seqs),
          .positions = view_of(op.positions),
          .live = ints_of(op.live),
          .kv = pages_of(op.kv),
          .k_pool = view_of(op.kv.k),
          .v_pool = view_of(op.kv.v)};
}

namespace {

class CudaKvWrite final : public CudaOp {
 public:
  explicit CudaKvWrite(const KvWrite& op)
      : args_(kv_write_args(op)),
        what_("kv_write " + shape_text(op.k.shape()) + " into " + shape_text(op.kv.k.shape())) {}
  std::int64_t scratch_bytes() const override { return kv_write_scratch(args_.k.dims[0]); }
  void enqueue(const CudaRun& run) const override {
    KvWriteArgs args = args_;
    args.places = kv_places_in(run.scratch, args.k.dims[0]);
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
