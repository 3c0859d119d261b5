#include "quant/q8_0.h"

#include "quant/half.h"
#include "quant/single_scale.h"

namespace conclave {

void decode(const BlockQ8_0& block, std::span<float, 32> out) {
  const float d = f16_to_f32(block.d);
  for (std::size_t i = 0; i < 32; ++i) out[i] = static_cast<float>(block.qs[i]) * d;
}

void encode(std::span<const float, 32> values, BlockQ8_0& block) {
  // A step of half a level changes how every value rounds; the coarser scales down to 112 matter where the values are
  // equal and one of them is nearly exact.
  static constexpr std::array<double, 14> kReach = {127.5, 127,   126.5, 126, 125.5, 125, 124.5,
                                                    124,   123.5, 123,   122, 120,   118, 112};
  const SingleScale fit = encode_single_scale(values, {-127, 127}, kReach);
  block.d = fit.d;
  block.qs = fit.levels;
}

}  // namespace conclave
