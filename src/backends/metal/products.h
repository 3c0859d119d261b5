// What products and moe_ffn share.
#pragma once

#include "backends/metal/product_plan.h"

namespace conclave::metal {

// One kernel of a product. `up`: gate and up in one pass. The caller binds the rows and says how they are launched.
struct ProductTensors {
  Tensor x;
  Tensor w;
  Tensor up;
  Tensor bias;
  Tensor live;
  Activation act = Activation::silu;
  Tensor out;
};
Launch<ProductArgs> product_launch(const ProductPlan& plan, const ProductTensors& tensors);

// Appends what another op is made of, with scratch of its own.
void append(MetalOp& to, MetalOp op, ScratchLayout& scratch);

}  // namespace conclave::metal
