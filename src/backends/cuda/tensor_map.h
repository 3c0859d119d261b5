// The driver's function that describes a tensor to Hopper's copy engine. The program is not linked with the driver.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace conclave::cuda {

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);
// Null where the driver has none.
EncodeTensorMap tensor_map_encoder();

// Experts' weights, of which a map is made.
struct BoxedWeights {
  const std::byte* data;
  std::int64_t column;  // bytes from column to column, and from expert to expert
  std::int64_t expert;
};

}  // namespace conclave::cuda
