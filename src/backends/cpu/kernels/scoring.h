// ops/scoring.h restated over any vector type, step for step: the bits that decide which expert is chosen.
#pragma once

namespace conclave {

template <class V>
struct Scoring {
  using F = typename V::F;
  using I = typename V::I;

  // exp(x) for x <= 0; 0 below ln(2^-126) and for NaN.
  [[gnu::always_inline]] static inline F exp(F x) {
    const F lowest = V::set1(-87.33654F);
    const F held = V::max(x, lowest);  // what is below is replaced at the end
    const I n = V::to_i(V::mul(held, V::set1(1.44269504F)));
    const F whole = V::to_f(n);
    F r = V::fma(whole, V::set1(-0.693145752F), held);
    r = V::fma(whole, V::set1(-1.42860677e-6F), r);
    F p = V::set1(1.0F / 5040.0F);
    p = V::fma(p, r, V::set1(1.0F / 720.0F));
    p = V::fma(p, r, V::set1(1.0F / 120.0F));
    p = V::fma(p, r, V::set1(1.0F / 24.0F));
    p = V::fma(p, r, V::set1(1.0F / 6.0F));
    p = V::fma(p, r, V::set1(0.5F));
    p = V::fma(p, r, V::set1(1.0F));
    p = V::fma(p, r, V::set1(1.0F));
    const F y = V::mul(p, V::as_f(V::template shl<23>(V::iadd(n, V::iset1(127)))));
    return V::select(V::less(x, lowest), V::zero(), V::select(V::is_nan(x), V::zero(), y));
  }

  [[gnu::always_inline]] static inline F sigmoid(F x) {
    const F one = V::set1(1.0F);
    const F e = exp(V::sub(V::zero(), V::abs(x)));
    return V::div(V::select(V::less(x, V::zero()), e, one), V::add(one, e));
  }

  [[gnu::always_inline]] static inline F sqrt_softplus(F x) {
    const F u = exp(V::sub(V::zero(), V::abs(x)));
    const F s = V::div(u, V::add(V::set1(2.0F), u));
    const F z = V::mul(s, s);
    F p = V::set1(1.0F / 15.0F);
    p = V::fma(p, z, V::set1(1.0F / 13.0F));
    p = V::fma(p, z, V::set1(1.0F / 11.0F));
    p = V::fma(p, z, V::set1(1.0F / 9.0F));
    p = V::fma(p, z, V::set1(1.0F / 7.0F));
    p = V::fma(p, z, V::set1(1.0F / 5.0F));
    p = V::fma(p, z, V::set1(1.0F / 3.0F));
    p = V::fma(p, z, V::set1(1.0F));
    const F log1p = V::mul(V::add(s, s), p);
    return V::sqrt(V::add(V::max(x, V::zero()), log1p));
  }
};

}  // namespace conclave
