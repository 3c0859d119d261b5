// Every weight format behind one table: rows of blocks to f32 and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace conclave {

// Decodes `out.size()` elements (a whole number of blocks) from `blocks`. Every float and block type; bit-exact with
// the format's definition: f32 arithmetic in the order that definition states, no contraction.
void decode(DType type, std::span<const std::byte> blocks, std::span<float> out);

// Whether encode() knows the type: f32, f16, bf16, q4_0, q5_0, q8_0, q4_k, q5_k, q6_k, mxfp4.
bool can_encode(DType type);

// Encodes a whole number of blocks; minimises the squared error (q6_k: a little more weight on large values).
// Non-finite input in a block format throws Error.
void encode(DType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace conclave
