// The colours of the heat maps: lightness rises or falls in equal steps of OKLab, so that equal steps of the value look
// equal, also in greyscale and to people who see few colours. Our own path of hues: yellow, orange, magenta, violet.
#pragma once

#include <cstdint>
#include <string>

namespace conclave {

struct Rgb {
  std::uint8_t r = 0;
  std::uint8_t g = 0;
  std::uint8_t b = 0;

  bool operator==(const Rgb&) const = default;
};

// Where the colours stand: the low end is close to the background, the high end far from it.
enum class Ground { light, dark };

// `position` from 0 to 1; what is outside counts as the end.
Rgb ramp(double position, Ground ground);

std::string hex(Rgb colour);  // "#0a1b2c"

}  // namespace conclave
