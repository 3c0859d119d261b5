// The 16 levels that iq4_nl and iq4_xs index: denser around zero, where most weights are.
#pragma once

#include <array>
#include <cstdint>

namespace conclave {

inline constexpr std::array<std::int8_t, 16> kIq4Levels = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                           1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace conclave
