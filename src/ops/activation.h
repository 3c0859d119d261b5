// The gated activations of feed-forward layers: act(gate) * up.
#pragma once

#include <cmath>
#include <string_view>

namespace conclave {

enum class Activation {
  silu,  // x / (1 + exp(-x))
  gelu,  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};

constexpr std::string_view name(Activation act) {
  return act == Activation::silu ? "silu" : "gelu";
}

inline double sigmoid(double x) {
  return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
}

inline double activate(Activation act, double x) {
  if (act == Activation::silu) {
    return x == -INFINITY ? 0.0 : x * sigmoid(x);  // the limit, not -inf * 0
  }
  if (x == -INFINITY) return 0.0;
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

}  // namespace conclave
