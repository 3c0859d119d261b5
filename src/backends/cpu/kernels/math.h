// exp and the activations over any vector type, in f32: fused multiply-adds and IEEE division alone, so the same bits
// on every instruction set.
#pragma once

namespace conclave {

#define CONCLAVE_INLINE [[gnu::always_inline]] inline

// exp(x) for every x, off by at most 1.3 * 2^-24 of itself; below 2^-126 it loses bits as the format does. Overflow is
// infinity, NaN stays NaN. These are score_exp's steps (ops/scoring.h) with the scaling in two, which reach the
// subnormals at one end and 2^127 at the other.
template <class V>
CONCLAVE_INLINE typename V::F exp(typename V::F x) {
  using F = typename V::F;
  using I = typename V::I;
  x = V::min(V::set1(89.0F), V::max(V::set1(-104.0F), x));  // both leave a NaN, their second argument, as it is
  const I n = V::to_i(V::mul(x, V::set1(1.44269504F)));
  const F whole = V::to_f(n);
  F r = V::fma(whole, V::set1(-0.693145752F), x);  // ln 2, upper bits: the product is exact
  r = V::fma(whole, V::set1(-1.42860677e-6F), r);  // ln 2, the rest
  F p = V::set1(1.0F / 5040.0F);
  p = V::fma(p, r, V::set1(1.0F / 720.0F));
  p = V::fma(p, r, V::set1(1.0F / 120.0F));
  p = V::fma(p, r, V::set1(1.0F / 24.0F));
  p = V::fma(p, r, V::set1(1.0F / 6.0F));
  p = V::fma(p, r, V::set1(0.5F));
  p = V::fma(p, r, V::set1(1.0F));
  p = V::fma(p, r, V::set1(1.0F));
  const I half = V::template sar<1>(n);
  const auto power = [](I exponent) { return V::as_f(V::template shl<23>(V::iadd(exponent, V::iset1(127)))); };
  return V::mul(V::mul(p, power(half)), power(V::isub(n, half)));
}

// 1 / (1 + exp(-x)), through exp of a non-positive number.
template <class V>
CONCLAVE_INLINE typename V::F sigmoid(typename V::F x) {
  const typename V::F one = V::set1(1.0F);
  const typename V::F e = exp<V>(V::sub(V::zero(), V::abs(x)));
  return V::div(V::select(V::less(x, V::zero()), e, one), V::add(one, e));
}

// x * sigmoid(s) * up, where root = exp(-|s| / 2) and `negative` says whether s is. A small sigmoid is root * root, and
// one root goes to x, one to up: nothing underflows before the product itself does. A NaN in x stays.
template <class V>
CONCLAVE_INLINE typename V::F gated(typename V::F x, typename V::F root, typename V::M negative, typename V::F up) {
  using F = typename V::F;
  const F one = V::set1(1.0F);
  const F part = V::select(negative, root, one);
  const F bounded = V::max(V::set1(-1000.0F), x);  // the limit at minus infinity is 0, not -inf * 0
  return V::mul(V::div(V::mul(bounded, part), V::fma(root, root, one)), V::mul(up, part));
}

// silu(x) * up
template <class V>
CONCLAVE_INLINE typename V::F silu_mul(typename V::F x, typename V::F up) {
  const typename V::F root = exp<V>(V::mul(V::set1(-0.5F), V::abs(x)));
  return gated<V>(x, root, V::less(x, V::zero()), up);
}
template <class V>
CONCLAVE_INLINE typename V::F silu(typename V::F x) {
  return silu_mul<V>(x, V::set1(1.0F));
}

// gelu(x) * up, its tanh form: x/2 (1 + tanh u) = x sigmoid(2u), without the cancellation that 1 + tanh has below 0.
// 2u = x (a + b x^2) is computed to twice the precision of f32: exp turns its absolute error into a relative one.
template <class V>
CONCLAVE_INLINE typename V::F gelu_mul(typename V::F x, typename V::F up) {
  using F = typename V::F;
  constexpr double kA = 2 * 0.7978845608028654;
  constexpr double kB = kA * 0.044715;
  constexpr float kAHigh = static_cast<float>(kA);
  constexpr float kBHigh = static_cast<float>(kB);
  const F a = V::set1(kAHigh);
  const F a_low = V::set1(static_cast<float>(kA - static_cast<double>(kAHigh)));
  const F b = V::set1(kBHigh);
  const F b_low = V::set1(static_cast<float>(kB - static_cast<double>(kBHigh)));
  const auto negated = [](F y) { return V::sub(V::zero(), y); };

  const F z = V::min(V::set1(30.0F), V::max(V::set1(-30.0F), x));  // exp(-|2u| / 2) is 0 there and beyond
  const F square = V::mul(z, z);
  const F square_low = V::fma(z, z, negated(square));
  const F term = V::mul(b, square);
  F low = V::fma(b, square, negated(term));
  low = V::fma(b_low, square, V::fma(b, square_low, low));
  const F sum = V::add(a, term);
  const F added = V::sub(sum, a);
  low = V::add(low, V::add(V::sub(a, V::sub(sum, added)), V::sub(term, added)));
  low = V::add(low, a_low);
  const F s = V::mul(z, sum);
  const F s_low = V::fma(z, low, V::fma(z, sum, negated(s)));

  const auto negative = V::less(s, V::zero());
  const F root = exp<V>(V::mul(V::set1(-0.5F), V::abs(s)));
  const F rest = V::mul(V::set1(0.5F), V::select(negative, s_low, negated(s_low)));
  return gated<V>(x, V::fma(root, rest, root), negative, up);
}
template <class V>
CONCLAVE_INLINE typename V::F gelu(typename V::F x) {
  return gelu_mul<V>(x, V::set1(1.0F));
}

#undef CONCLAVE_INLINE

}  // namespace conclave
