// TokenBatch: the tokens of one step, as tensors on the device that hold other values each time it runs.
#pragma once

#include "tensor/tensor.h"

namespace conclave {

struct TokenBatch {
  Tensor ids;        // i32 [n_tokens]
  Tensor positions;  // i32 [n_tokens]: in its sequence
  Tensor seqs;       // i32 [n_tokens]: which row of the page table
  Tensor live;       // i32 [1]: tokens there are; the rest of the rows is left alone
  Tensor lengths;    // i32 [n_seqs]: of each sequence, with the tokens of this step

  Tensor out_rows;  // i32 [n_out]: the tokens whose logits are wanted
  Tensor n_out;     // i32 [1]: how many there are
};

}  // namespace conclave
