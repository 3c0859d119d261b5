// The driver's function that describes a tensor to Hopper's copy engine. The program is not linked with the driver.
#pragma once

#include <cuda.h>

namespace conclave::cuda {

using EncodeTensorMap = decltype(&cuTensorMapEncodeTiled);
// Null where the driver has none.
EncodeTensorMap tensor_map_encoder();

}  // namespace conclave::cuda
