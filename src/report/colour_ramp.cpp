#include "report/colour_ramp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace conclave {
namespace {

struct Linear {
  double r, g, b;
};

// OKLab (Ottosson 2020) in polar form to linear sRGB; out of gamut where a part is not in 0 .. 1.
Linear from_oklch(double lightness, double chroma, double hue_degrees) {
  const double hue = hue_degrees * std::numbers::pi / 180;
  const double a = chroma * std::cos(hue);
  const double b = chroma * std::sin(hue);
  const double l = lightness + 0.3963377774 * a + 0.2158037573 * b;
  const double m = lightness - 0.1055613458 * a - 0.0638541728 * b;
  const double s = lightness - 0.0894841775 * a - 1.2914855480 * b;
  const double l3 = l * l * l;
  const double m3 = m * m * m;
  const double s3 = s * s * s;
  return {4.0767416621 * l3 - 3.3077115913 * m3 + 0.2309699292 * s3,
          -1.2684380046 * l3 + 2.6097574011 * m3 - 0.3413193965 * s3,
          -0.0041960863 * l3 - 0.7034186147 * m3 + 1.7076147010 * s3};
}

bool in_gamut(const Linear& c) {
  constexpr double kSlack = 1e-6;
  const auto fits = [](double x) { return x >= -kSlack && x <= 1 + kSlack; };
  return fits(c.r) && fits(c.g) && fits(c.b);
}

std::uint8_t encoded(double linear) {
  const double x = std::clamp(linear, 0.0, 1.0);
  const double y = x <= 0.0031308 ? 12.92 * x : 1.055 * std::pow(x, 1 / 2.4) - 0.055;
  return static_cast<std::uint8_t>(std::lround(255 * y));
}

}  // namespace

Rgb ramp(double position, Ground ground) {
  const double t = std::clamp(position, 0.0, 1.0);
  const bool light = ground == Ground::light;
  const double lightness = light ? 0.95 - 0.70 * t : 0.26 + 0.69 * t;
  const double dark_part = light ? t : 1 - t;
  const double hue = 98 - 170 * dark_part;  // yellow 98, orange 60, magenta 0, violet -72
  const double chroma = 0.06 + 0.17 * std::sin(std::numbers::pi * (0.10 + 0.80 * dark_part));
  // Where sRGB does not reach that far: as much colour as it has, never another lightness.
  double low = 0;
  double high = in_gamut(from_oklch(lightness, chroma, hue)) ? 0 : chroma;
  for (int i = 0; i < 24 && high > 0; ++i) {
    const double middle = (low + high) / 2;
    (in_gamut(from_oklch(lightness, middle, hue)) ? low : high) = middle;
  }
  const Linear colour = from_oklch(lightness, high > 0 ? low : chroma, hue);
  return {encoded(colour.r), encoded(colour.g), encoded(colour.b)};
}

std::string hex(Rgb colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.r, colour.g, colour.b);
}

}  // namespace conclave
