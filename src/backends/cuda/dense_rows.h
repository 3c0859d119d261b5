// Products of few rows with whole matrices, as their kernel takes them. Host code alone.
#pragma once

#include <memory>
#include <span>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/dense_rows_plan.h"
#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

struct ProductViews {
  View w;
  View up;  // of gate and up in one pass
  View bias;
  View out;
  Activation act = Activation::silu;
  View residual;  // the product is added to it, too
  // Where the result goes as the next product's rows instead of to `out`: prefill alone.
  std::uint16_t* bank_out = nullptr;
  std::int64_t bank_stride = 0;
  // The op before this one writes its rows alone: which they are, and the weights, can be read before it ends.
  bool early = false;
};

ProductViews views_of(const Matmul& op);

// Bytes from expert to expert, 0 where there is one matrix, and from column to column; of no weights, 0.
inline std::int64_t per_expert(const View& w) {
  return w.rank == 3 ? w.strides[0] : 0;
}
inline std::int64_t per_column(const View& w) {
  return w.rank == 0 ? 0 : w.strides[w.rank - 2];
}

// Whether the kernel can take it.
bool takes_dense(const ProductViews& product, const View& x, const DenseRoom& room);
bool takes_dense(const Matmul& op, const Target& target);

// Products of one bank, each of which the kernel can take: up to kDenseMatrices.
DenseArgs dense_args(std::span<const ProductViews> products, const RowBank& bank, const std::int32_t* live,
                     const DenseRoom& room);
DenseRoom dense_room(const Target& target);
// By the kernel that args are for.
int launch_dense(const DenseArgs& args, const Stream& stream);

// Matmuls of the same x in one launch. `bank`: its rows, where they are there already. `sum`: what is made of one
// matmul's output, or null. `experts`: those that come soon after, whose weights may be fetched ahead, or null.
std::unique_ptr<CudaOp> make_dense(std::span<const Matmul* const> ops, const Target& target, const BankOut& bank,
                                   const Add* sum = nullptr, const MoeFfn* experts = nullptr);

// Whether the product that the kernel can take can be added up in the same launch, as `sum` does it in place.
bool adds_dense(const Matmul& op, const Add& sum, const Target& target);

}  // namespace conclave::cuda
