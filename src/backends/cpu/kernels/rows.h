// The row kernels over any vector type: row_kernels.h says what they compute.
#pragma once

#include "backends/cpu/kernels/math.h"
#include "backends/cpu/kernels/scoring.h"
#include "backends/cpu/row_kernels.h"

namespace conclave {

// Functions of this class alone, so that no symbol of a file made for one instruction set can be taken by another.
template <class V>
struct Rows {
  using F = typename V::F;
  using I = typename V::I;

  static constexpr float kInfinity = __builtin_huge_valf();
  static constexpr float kLargest = 3.40282347e38F;
  alignas(64) static constexpr float kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

  // How a step over 16 elements reaches memory: all of them, or the last n (1 to 15) of a row.
  struct Whole {
    static F load(const float* p) { return V::load(p); }
    static void store(float* p, F x) { V::store(p, x); }
    static F load_f16(const std::uint16_t* p) { return V::load_f16(p); }
    static F load_bf16(const std::uint16_t* p) { return V::load_bf16(p); }
    static void store_f16(std::uint16_t* p, F x) { V::store_f16(p, x); }
    static void store_bf16(std::uint16_t* p, F x) { V::store_bf16(p, x); }
    static F keep(F x, float) { return x; }
  };
  struct Part {
    std::int64_t n;
    F load(const float* p) const { return V::load_n(p, n); }
    void store(float* p, F x) const { V::store_n(p, x, n); }
    F load_f16(const std::uint16_t* p) const {
      std::uint16_t bits[16] = {};
      for (std::int64_t i = 0; i < n; ++i) bits[i] = p[i];
      return V::load_f16(bits);
    }
    F load_bf16(const std::uint16_t* p) const {
      std::uint16_t bits[16] = {};
      for (std::int64_t i = 0; i < n; ++i) bits[i] = p[i];
      return V::load_bf16(bits);
    }
    void store_f16(std::uint16_t* p, F x) const {
      std::uint16_t bits[16];
      V::store_f16(bits, x);
      for (std::int64_t i = 0; i < n; ++i) p[i] = bits[i];
    }
    void store_bf16(std::uint16_t* p, F x) const {
      std::uint16_t bits[16];
      V::store_bf16(bits, x);
      for (std::int64_t i = 0; i < n; ++i) p[i] = bits[i];
    }
    // The lanes past the row replaced.
    F keep(F x, float rest) const {
      return V::select(V::less(V::load(kLane), V::set1(static_cast<float>(n))), x, V::set1(rest));
    }
  };
  // step(i, lanes) for the elements i .. i + 15, or fewer at the end.
  template <class Step>
  [[gnu::always_inline]] static inline void each(std::int64_t n, Step step) {
    std::int64_t i = 0;
    for (; i + 16 <= n; i += 16) step(i, Whole{});
    if (i < n) step(i, Part{n - i});
  }
  // add(acc, i, lanes) over two accumulators in turn, folded: 32 chains over i mod 32, ascending.
  template <class Add>
  [[gnu::always_inline]] static inline float chains(std::int64_t n, Add add) {
    F even = V::zero();
    F odd = V::zero();
    std::int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
      even = add(even, i, Whole{});
      odd = add(odd, i + 16, Whole{});
    }
    if (i + 16 <= n) {
      even = add(even, i, Whole{});
      if (i + 16 < n) odd = add(odd, i + 16, Part{n - i - 16});
    } else if (i < n) {
      even = add(even, i, Part{n - i});
    }
    return V::sum(V::add(even, odd));
  }

  static void load(DType type, const std::byte* from, float* to, std::int64_t n) {
    if (type == DType::f32) {
      if (n > 0) __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
      return;
    }
    const auto* bits = reinterpret_cast<const std::uint16_t*>(from);
    if (type == DType::f16) {
      each(n, [&](std::int64_t i, auto lanes) { lanes.store(to + i, lanes.load_f16(bits + i)); });
    } else {
      each(n, [&](std::int64_t i, auto lanes) { lanes.store(to + i, lanes.load_bf16(bits + i)); });
    }
  }
  static void store(DType type, const float* from, std::byte* to, std::int64_t n) {
    if (type == DType::f32) {
      if (n > 0) __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
      return;
    }
    auto* bits = reinterpret_cast<std::uint16_t*>(to);
    if (type == DType::f16) {
      each(n, [&](std::int64_t i, auto lanes) { lanes.store_f16(bits + i, lanes.load(from + i)); });
    } else {
      each(n, [&](std::int64_t i, auto lanes) { lanes.store_bf16(bits + i, lanes.load(from + i)); });
    }
  }

  static void store_tile(const float* from, std::byte* const* rows, std::int64_t offset, std::int64_t n_rows,
                         bool past_caches) {
    for (std::int64_t r = 0; r < n_rows; ++r) {
      auto* to = reinterpret_cast<float*>(rows[r] + offset);
      const F values = V::load(from + 16 * r);
      if (past_caches && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
        V::stream(to, values);
      } else {
        V::store(to, values);
      }
    }
  }
  static void lines_stored() { V::streamed(); }

  static void gate(Activation act, const float* gate, const float* up, float* out, std::int64_t n) {
    if (act == Activation::silu) {
      each(n, [&](std::int64_t i, auto lanes) {
        lanes.store(out + i, silu_mul<V>(lanes.load(gate + i), lanes.load(up + i)));
      });
    } else {
      each(n, [&](std::int64_t i, auto lanes) {
        lanes.store(out + i, gelu_mul<V>(lanes.load(gate + i), lanes.load(up + i)));
      });
    }
  }
  static void add(const float* a, const float* b, float* out, std::int64_t n) {
    each(n, [&](std::int64_t i, auto lanes) { lanes.store(out + i, V::add(lanes.load(a + i), lanes.load(b + i))); });
  }
  static void axpy(float a, const float* x, float* y, std::int64_t n) {
    const F factor = V::set1(a);
    each(n,
         [&](std::int64_t i, auto lanes) { lanes.store(y + i, V::fma(factor, lanes.load(x + i), lanes.load(y + i))); });
  }
  static void scale(float a, const float* x, float* out, std::int64_t n) {
    const F factor = V::set1(a);
    each(n, [&](std::int64_t i, auto lanes) { lanes.store(out + i, V::mul(factor, lanes.load(x + i))); });
  }
  static float dot(const float* a, const float* b, std::int64_t n) {
    return chains(n,
                  [&](F sum, std::int64_t i, auto lanes) { return V::fma(lanes.load(a + i), lanes.load(b + i), sum); });
  }
  static void rotate(const float* cos, const float* sin, float* a, float* b, std::int64_t n) {
    each(n, [&](std::int64_t i, auto lanes) {
      const F c = lanes.load(cos + i);
      const F s = lanes.load(sin + i);
      const F x = lanes.load(a + i);
      const F y = lanes.load(b + i);
      lanes.store(a + i, V::sub(V::mul(x, c), V::mul(y, s)));
      lanes.store(b + i, V::add(V::mul(x, s), V::mul(y, c)));
    });
  }

  // The sum of (x * factor)^2.
  static float squares(const float* x, float factor, std::int64_t n) {
    F sum = V::zero();
    each(n, [&](std::int64_t i, auto lanes) {
      const F y = V::mul(lanes.load(x + i), V::set1(factor));
      sum = V::fma(y, y, sum);
    });
    return V::sum(sum);
  }
  static void rms_norm(const float* x, const float* weight, float eps, float* out, std::int64_t n) {
    float factor = 1;
    float sum = squares(x, factor, n);
    if (!(sum < kInfinity)) {  // too large, unless an element is infinite or NaN: the same, scaled down
      factor = 0x1p-80F;
      sum = squares(x, factor, n);
    }
    const F mean = V::div(V::set1(sum), V::set1(static_cast<float>(n)));
    const F root = V::sqrt(V::add(mean, V::set1(eps * factor * factor)));
    const F inverse = V::div(V::set1(1.0F), root);
    each(n, [&](std::int64_t i, auto lanes) {
      const F y = V::mul(V::mul(lanes.load(x + i), V::set1(factor)), inverse);
      lanes.store(out + i, V::mul(y, lanes.load(weight + i)));
    });
  }

  static void softmax(const float* x, float scale, float* out, std::int64_t n) {
    F top = V::set1(-kInfinity);
    each(n, [&](std::int64_t i, auto lanes) { top = V::max(lanes.keep(lanes.load(x + i), -kInfinity), top); });
    // scale * (x - max): no product of large numbers is rounded, or overflows. Whatever makes a row NaN does so here.
    const F max = V::set1(V::largest(top));
    F sum = V::zero();
    each(n, [&](std::int64_t i, auto lanes) {
      const F y = exp<V>(V::mul(V::set1(scale), V::sub(lanes.load(x + i), max)));
      lanes.store(out + i, y);
      sum = V::add(sum, lanes.keep(y, 0.0F));
    });
    const F total = V::set1(V::sum(sum));
    each(n, [&](std::int64_t i, auto lanes) { lanes.store(out + i, V::div(lanes.load(out + i), total)); });
  }

  static std::int64_t argmax(const float* x, std::int64_t n, float* largest) {
    F top = V::set1(-kInfinity);
    F block_of_top = V::as_f(V::izero());  // integers, that select() carries as they are
    I block = V::izero();
    each(n, [&](std::int64_t i, auto lanes) {
      const F y = lanes.keep(lanes.load(x + i), -kInfinity);
      const auto more = V::less(top, y);  // false for NaN and for ties
      top = V::select(more, y, top);
      block_of_top = V::select(more, V::as_f(block), block_of_top);
      block = V::iadd(block, V::iset1(1));
    });
    float tops[16];
    std::int32_t blocks[16];
    V::store(tops, top);
    V::istore(blocks, V::as_i(block_of_top));
    std::int64_t winner = 0;
    *largest = -kInfinity;
    for (std::int64_t lane = 0; lane < 16; ++lane) {
      const std::int64_t index = std::int64_t{16} * blocks[lane] + lane;
      if (!(tops[lane] > *largest || (tops[lane] == *largest && tops[lane] > -kInfinity && index < winner))) continue;
      *largest = tops[lane];
      winner = index;
    }
    return winner;
  }

  static float order(const float* logits, float* out, std::int64_t n) {
    F top = V::set1(-kInfinity);
    each(n, [&](std::int64_t i, auto lanes) {
      const F x = lanes.load(logits + i);
      const F y = V::select(V::is_nan(x), V::set1(-kInfinity), V::min(V::set1(kLargest), x));
      lanes.store(out + i, y);
      top = V::max(lanes.keep(y, -kInfinity), top);
    });
    return V::largest(top);
  }
  static float exp_sum(const float* x, float max, std::int64_t n) {
    return chains(n, [&](F sum, std::int64_t i, auto lanes) {
      return V::add(sum, lanes.keep(Scoring<V>::exp(V::sub(lanes.load(x + i), V::set1(max))), 0.0F));
    });
  }
  static void score(Score rule, const float* logits, float max, float* out, std::int64_t n) {
    switch (rule) {
      case Score::softmax: {
        const F sum = V::set1(exp_sum(logits, max, n));
        each(n, [&](std::int64_t i, auto lanes) {
          const F e = Scoring<V>::exp(V::sub(lanes.load(logits + i), V::set1(max)));
          lanes.store(out + i, V::div(e, sum));
        });
        return;
      }
      case Score::softmax_after_top_k:
        each(n, [&](std::int64_t i, auto lanes) { lanes.store(out + i, lanes.load(logits + i)); });
        return;
      case Score::sigmoid:
        each(n, [&](std::int64_t i, auto lanes) { lanes.store(out + i, Scoring<V>::sigmoid(lanes.load(logits + i))); });
        return;
      case Score::sqrt_softplus:
        each(n, [&](std::int64_t i, auto lanes) {
          lanes.store(out + i, Scoring<V>::sqrt_softplus(lanes.load(logits + i)));
        });
        return;
    }
  }
};

template <class V>
constexpr RowKernels make_row_kernels() {
  using R = Rows<V>;
  return {.load = R::load,
          .store = R::store,
          .store_tile = R::store_tile,
          .lines_stored = R::lines_stored,
          .gate = R::gate,
          .add = R::add,
          .axpy = R::axpy,
          .scale = R::scale,
          .rms_norm = R::rms_norm,
          .softmax = R::softmax,
          .dot = R::dot,
          .rotate = R::rotate,
          .argmax = R::argmax,
          .order = R::order,
          .exp_sum = R::exp_sum,
          .score = R::score};
}

}  // namespace conclave
