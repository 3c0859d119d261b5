// Runs every function of a Vec type (isa/generic/vec.h) over fixed, adversarial inputs and hands every result to a sink.
// Each instruction set's file in isa/ instantiates it with its own compile flags; vec_test.cpp compares what the rows
// gave with what Generic gave.
//
// Everything here is a template over the Vec type and nothing of std:: is called: no function compiled for one
// instruction set can be taken by the linker for another's, or for the rest of the program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace conclave {

struct VecResult {
  const char* function;
  int input;  // which of the function's inputs
  // The lane came out of IEEE arithmetic. Which NaN that makes, where it makes one, is the machine's business and that
  // of the compiler's order of operands; every other result is compared bit for bit.
  bool arithmetic;
  std::uint32_t lanes[16];
};

struct VecSink {
  void* self;
  void (*take)(void* self, const VecResult& result);
};

struct VecRun {
  VecSink sink;
  // Memory that ends exactly at `end`, at least 4096 bytes: a function that touches a byte past its operand faults.
  std::byte* end;
};

// Every kind of f32, with neighbours and ties.
template <class V>
inline constexpr std::uint32_t kVecSpecials[] = {
    0x00000000U, 0x80000000U,                            // zeros
    0x00000001U, 0x80000001U, 0x00400000U, 0x807FFFFFU,  // subnormal
    0x00800000U, 0x80800001U, 0x01000000U,               // the smallest normal
    0x3F000000U, 0xBF000000U, 0x3EFFFFFFU, 0xBF000001U,  // about +-0.5
    0x3F800000U, 0xBF800000U, 0x3F7FFFFFU, 0x3F800001U,  // about +-1
    0x3FC00000U, 0xBFC00000U, 0x40200000U, 0xC0200000U,  // 1.5, 2.5
    0x4A7FFFFEU, 0x4AFFFFFFU, 0xCAFFFFFFU, 0x4B000000U,  // 2^22 - 0.5, 2^23 - 0.5, 2^23
    0x4B000001U, 0xCB000003U, 0x4B800001U, 0x4EFFFFFFU,  // odd integers past 2^23, past 2^24, below 2^31
    0x5F000000U, 0x1F800000U, 0xDF3504F3U,               // whose squares are near the ends
    0x7F000000U, 0x7F7FFFFFU, 0xFF7FFFFFU,               // the largest
    0x7F800000U, 0xFF800000U,                            // infinities
    0x7FC00000U, 0xFFC00000U, 0x7FC12345U, 0xFFFFFFFFU,  // quiet NaNs
    0x7F800001U, 0xFF800001U, 0x7FA54321U, 0xFFBFE000U,  // signalling NaNs
    0x477FE000U, 0x477FEFFFU, 0x477FF000U,               // 65504, the largest that f16 keeps, the smallest it does not
};

template <class V>
struct VecHarness {
  using F = typename V::F;
  using I = typename V::I;
  using M = typename V::M;
  static constexpr int kSpecials = sizeof kVecSpecials<V> / sizeof kVecSpecials<V>[0];
  static constexpr int kRandom = 400;

  VecRun run;
  std::uint64_t state = 0x9E3779B97F4A7C15U;

  std::uint32_t random() {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state >> 32);
  }
  // A finite float whose exponent is within `spread` of 1's.
  std::uint32_t random_near_one(std::uint32_t spread) {
    const std::uint32_t bits = random();
    return (bits & 0x807FFFFFU) | ((127U - spread + random() % (2U * spread + 1U)) << 23);
  }
  std::int32_t random_within(std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(low + random() % (high - low + 1));
  }

  // What is handed to a function as a pointer, ends at the end of memory.
  template <class T>
  T* edge(std::size_t n) {
    return reinterpret_cast<T*>(run.end - n * sizeof(T));
  }
  F floats(const std::uint32_t* bits) {
    __builtin_memcpy(run.end - 64, bits, 64);
    return V::load(edge<const float>(16));
  }
  I ints(const void* lanes) {
    __builtin_memcpy(run.end - 64, lanes, 64);
    return V::iload(run.end - 64);
  }

  void record(const char* function, int input, bool arithmetic, const void* lanes, std::size_t bytes = 64) {
    VecResult result{function, input, arithmetic, {}};
    __builtin_memcpy(result.lanes, lanes, bytes);
    run.sink.take(run.sink.self, result);
  }
  void exact(const char* function, int input, F x) {
    float lanes[16];
    V::store(lanes, x);
    record(function, input, false, lanes);
  }
  void arithmetic(const char* function, int input, F x) {
    float lanes[16];
    V::store(lanes, x);
    record(function, input, true, lanes);
  }
  void integers(const char* function, int input, I x) {
    std::int32_t lanes[16];
    V::istore(lanes, x);
    record(function, input, false, lanes);
  }
  void mask(const char* function, int input, M m) {
    exact(function, input, V::select(m, V::set1(1.0F), V::set1(2.0F)));
    const std::int32_t any = V::any(m) ? 1 : 0;
    record("any", input, false, &any, sizeof any);
  }

  // The inputs of the float functions: all pairs of specials, then random bits, then values of like size.
  static constexpr int kPairInputs = (kSpecials * kSpecials + 15) / 16;
  static constexpr int kFloatInputs = kPairInputs + 2 * kRandom;
  void pair_input(int input, std::uint32_t* a, std::uint32_t* b) {
    for (int i = 0; i < 16; ++i) {
      if (input < kPairInputs) {
        const int at = (input * 16 + i) % (kSpecials * kSpecials);
        a[i] = kVecSpecials<V>[at % kSpecials];
        b[i] = kVecSpecials<V>[at / kSpecials];
      } else if (input < kPairInputs + kRandom) {
        a[i] = random();
        b[i] = random();
      } else {
        a[i] = random_near_one(3);
        b[i] = random_near_one(12);
      }
    }
  }

  void float_functions() {
    for (int input = 0; input < kFloatInputs; ++input) {
      std::uint32_t a_bits[16], b_bits[16];
      pair_input(input, a_bits, b_bits);
      const F a = floats(a_bits);
      const F b = floats(b_bits);
      exact("load", input, a);
      arithmetic("add", input, V::add(a, b));
      arithmetic("sub", input, V::sub(a, b));
      arithmetic("mul", input, V::mul(a, b));
      arithmetic("div", input, V::div(a, b));
      exact("max", input, V::max(a, b));
      exact("min", input, V::min(a, b));
      arithmetic("sqrt", input, V::sqrt(a));
      arithmetic("sqrt of abs", input, V::sqrt(V::abs(b)));
      exact("abs", input, V::abs(a));
      mask("less", input, V::less(a, b));
      mask("is_nan", input, V::is_nan(a));
      exact("select less", input, V::select(V::less(a, b), a, b));
      exact("select is_nan", input, V::select(V::is_nan(b), a, b));
      const float sum_a = V::sum(a);
      record("sum", input, true, &sum_a, sizeof sum_a);
      const float sum_b = V::sum(b);
      record("sum of b", input, true, &sum_b, sizeof sum_b);
      const float largest = V::largest(a);
      record("largest", input, false, &largest, sizeof largest);
      const float least = V::largest(V::sub(V::zero(), V::select(V::is_nan(a), b, a)));
      record("largest of -a", input, true, &least, sizeof least);
      integers("as_i", input, V::as_i(a));
      exact("as_f", input, V::as_f(V::as_i(a)));
      float one;
      __builtin_memcpy(&one, a_bits + input % 16, sizeof one);
      arithmetic("set1", input, V::set1(one));
    }
    exact("zero", 0, V::zero());
    // One yes in every lane in turn, and none.
    for (int lane = 0; lane <= 16; ++lane) {
      std::uint32_t bits[16] = {};
      if (lane < 16) bits[lane] = 0x7FC00000U;
      mask("one is_nan", lane, V::is_nan(floats(bits)));
    }
  }

  void fma() {
    constexpr int kTriples = kSpecials * kSpecials * kSpecials;
    constexpr int kTripleInputs = (kTriples + 15) / 16;
    for (int input = 0; input < kTripleInputs + 4 * kRandom; ++input) {
      std::uint32_t a[16], b[16], c[16];
      for (int i = 0; i < 16; ++i) {
        if (input < kTripleInputs) {
          const int at = (input * 16 + i) % kTriples;
          a[i] = kVecSpecials<V>[at % kSpecials];
          b[i] = kVecSpecials<V>[at / kSpecials % kSpecials];
          c[i] = kVecSpecials<V>[at / kSpecials / kSpecials];
        } else if (input % 2 == 0) {
          a[i] = random();
          b[i] = random();
          c[i] = random();
        } else {
          // a * b is nearly -c, or its last bits decide how c is rounded.
          a[i] = random_near_one(2);
          b[i] = random_near_one(2);
          c[i] = random_near_one(26);
        }
      }
      arithmetic("fma", input, V::fma(floats(a), floats(b), floats(c)));
    }
  }

  void parts() {
    for (int n = 1; n <= 16; ++n) {
      for (int input = 0; input < 4; ++input) {
        std::uint32_t bits[16];
        for (int i = 0; i < 16; ++i) bits[i] = input == 0 ? 0x7F800001U + static_cast<std::uint32_t>(i) : random();
        float* part = edge<float>(static_cast<std::size_t>(n));
        __builtin_memcpy(part, bits, static_cast<std::size_t>(n) * sizeof(float));
        const F loaded = V::load_n(part, n);
        exact("load_n", 4 * n + input, loaded);
        const F x = floats(bits);
        std::uint32_t poison[16];
        for (std::uint32_t& word : poison) word = 0xDEADBEEFU;
        float out[16];
        __builtin_memcpy(out, poison, sizeof out);
        V::store_n(out, x, n);
        record("store_n", 4 * n + input, false, out);
        V::store_n(part, x, n);
        record("store_n at the edge", 4 * n + input, false, part, static_cast<std::size_t>(n) * sizeof(float));
      }
    }
  }

  void streams() {
    alignas(64) float line[16] = {};
    for (int input = 0; input < 4; ++input) {
      std::uint32_t bits[16];
      for (std::uint32_t& word : bits) word = random();
      V::stream(line, floats(bits));
      V::streamed();
      record("stream", input, false, line);
    }
  }

  void halves() {
    for (int input = 0; input < 4096; ++input) {
      auto* from = edge<std::uint16_t>(16);
      std::int32_t lanes[16];
      std::uint16_t bits[16];
      for (int i = 0; i < 16; ++i) {
        bits[i] = static_cast<std::uint16_t>(16 * input + i);
        // The upper bits of a lane are not part of half_low's operand.
        lanes[i] = static_cast<std::int32_t>((random() << 16) | bits[i]);
      }
      __builtin_memcpy(from, bits, sizeof bits);
      exact("load_f16", input, V::load_f16(from));
      exact("load_bf16", input, V::load_bf16(from));
      exact("half_low", input, V::half_low(ints(lanes)));
    }
    // f16 has 10 bits of mantissa: with one bit more, the bits below all 0, 1 or all ones, every tie has its neighbours.
    const std::uint32_t f16_rest[] = {0U, 1U, 0xFFFU};
    int input = 0;
    for (std::uint32_t top = 0; top < (1U << 20); top += 16) {
      const std::uint32_t exponent = (top >> 11) & 0xFFU;
      const bool far = exponent < 98 || (exponent > 146 && exponent < 255);
      if (far && exponent != 0 && exponent != 1 && exponent != 254) continue;
      for (const std::uint32_t rest : f16_rest) store_halves("store_f16", input++, top, 12, rest);
    }
    const std::uint32_t bf16_rest[] = {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU};
    input = 0;
    for (std::uint32_t top = 0; top < (1U << 16); top += 16) {
      for (const std::uint32_t rest : bf16_rest) store_halves("store_bf16", input++, top, 16, rest);
    }
    for (int i = 0; i < kRandom; ++i) {
      const std::uint32_t bits = random();
      store_halves("store_f16", input++, bits >> 12, 12, bits & 0xFFFU);
      store_halves("store_bf16", input++, bits >> 16, 16, bits & 0xFFFFU);
    }
  }
  // Sixteen values whose upper bits are top, top + 1, ..
  void store_halves(const char* function, int input, std::uint32_t top, int shift, std::uint32_t rest) {
    std::uint32_t bits[16];
    for (std::uint32_t i = 0; i < 16; ++i) bits[i] = ((top + i) << shift) | rest;
    const F x = floats(bits);
    auto* to = edge<std::uint16_t>(16);
    if (shift == 12) {
      V::store_f16(to, x);
    } else {
      V::store_bf16(to, x);
    }
    record(function, input, false, to, 32);
  }

  void conversions() {
    for (int input = 0; input < 2 * kRandom; ++input) {
      std::int32_t lanes[16];
      std::uint32_t bits[16];
      float halves[16];
      for (int i = 0; i < 16; ++i) {
        const std::uint32_t r = random();
        lanes[i] = static_cast<std::int32_t>(input % 2 == 0 ? r : r >> (r % 32U));
        const std::uint32_t magnitude = 127U - 26U + random() % 48U;  // 2^-26 .. 2^22
        bits[i] = (r & 0x807FFFFFU) | (magnitude << 23);
        halves[i] = static_cast<float>(random_within(-8388607, 8388607)) * 0.5F;  // every other one is a tie
      }
      if (input == 0) {
        const std::int32_t ends[16] = {0, 1, -1, 0x7FFFFFFF, -0x7FFFFFFF - 1, 16777217, -16777217, 16777219};
        __builtin_memcpy(lanes, ends, sizeof ends);
        const float ties[16] = {0.0F,   -0.0F,      0.5F,        -0.5F,  1.5F,   -1.5F,   2.5F,        -2.5F,
                                126.5F, 4194303.0F, -4194303.5F, 1e-30F, 1e-45F, -1e-45F, 0.49999997F, -127.5F};
        __builtin_memcpy(halves, ties, sizeof ties);
      }
      exact("to_f", input, V::to_f(ints(lanes)));
      integers("to_i", input, V::to_i(floats(bits)));
      integers("to_i of halves", input, V::to_i(V::load(halves)));
    }
  }

  // Sums and products stay within 32 bits: past them the plain C++ of Generic means nothing.
  void integer_functions() {
    integers("izero", 0, V::izero());
    for (int input = 0; input < kRandom; ++input) {
      std::int32_t a[16], b[16], half_a[16], half_b[16], factor_a[16], factor_b[16];
      for (int i = 0; i < 16; ++i) {
        a[i] = static_cast<std::int32_t>(random());
        b[i] = static_cast<std::int32_t>(random());
        half_a[i] = random_within(-0x40000000, 0x3FFFFFFF);
        half_b[i] = random_within(-0x3FFFFFFF, 0x40000000);
        const int bits = random_within(1, 30);
        factor_a[i] = random_within(-(1 << bits), 1 << bits);
        factor_b[i] = random_within(-(1 << (30 - bits)), 1 << (30 - bits));
      }
      const I x = ints(a);
      const I y = ints(b);
      integers("iload", input, x);
      V::istore(run.end - 64, y);
      record("istore", input, false, run.end - 64);
      integers("iset1", input, V::iset1(a[0]));
      integers("iadd", input, V::iadd(ints(half_a), ints(half_b)));
      integers("isub", input, V::isub(ints(half_a), ints(half_b)));
      integers("imul", input, V::imul(ints(factor_a), ints(factor_b)));
      integers("iand", input, V::iand(x, y));
      integers("ior", input, V::ior(x, y));
      integers("ixor", input, V::ixor(x, y));
      shifts<31>(input, x);
      __builtin_memcpy(run.end - 4, b, 4);
      integers("bcast", input, V::bcast(run.end - 4));
    }
  }
  template <int n>
  void shifts(int input, I x) {
    integers("shl", 32 * input + n, V::template shl<n>(x));
    integers("shr", 32 * input + n, V::template shr<n>(x));
    integers("sar", 32 * input + n, V::template sar<n>(x));
    if constexpr (n > 0) shifts<n - 1>(input, x);
  }

  void bytes() {
    for (int input = 0; input < 4 * kRandom; ++input) {
      // Ends of the ranges alone, then anything within them.
      const bool ends = input % 2 == 0;
      std::int8_t levels[64], signed_levels[64], x[64], index[64], table[16];
      std::int32_t acc[16], bias[16], lanes[16];
      for (int i = 0; i < 64; ++i) {
        const std::uint32_t r = random();
        levels[i] = static_cast<std::int8_t>(ends ? (r & 1U ? 127 : 0) : r & 0x7FU);
        signed_levels[i] = static_cast<std::int8_t>(ends ? (r & 2U ? 127 : -128) : random_within(-128, 127));
        x[i] = static_cast<std::int8_t>(ends ? (r & 4U ? 127 : -127) : random_within(-127, 127));
        index[i] = static_cast<std::int8_t>((r >> 8) & 15U);
        if (input < 4) {  // every product of a lane at the same end
          levels[i] = 127;
          signed_levels[i] = input & 1 ? -128 : 127;
          x[i] = input & 2 ? -127 : 127;
        }
      }
      for (int i = 0; i < 16; ++i) {
        table[i] = static_cast<std::int8_t>(random());
        acc[i] = random_within(-0x3F000000, 0x3F000000);
        lanes[i] = random_within(-128, 127);
        bias[i] = 0;
        for (int j = 4 * i; j < 4 * i + 4; ++j) bias[i] += V::kBias * x[j];
      }
      integers("dot", input, V::dot(ints(acc), ints(levels), ints(x)));
      for (std::int8_t& level : signed_levels) level = static_cast<std::int8_t>(level + V::kBias);
      integers("dot_signed", input, V::isub(V::dot_signed(ints(acc), ints(signed_levels), ints(x)), ints(bias)));
      const I bytes = ints(index);
      __builtin_memcpy(run.end - 16, table, 16);
      integers("lookup16", input, V::lookup16(bytes, edge<const std::int8_t>(16)));
      const I narrowed = ints(lanes);
      V::narrow(edge<std::int8_t>(16), narrowed);
      record("narrow", input, false, run.end - 16, 16);

      std::int16_t pairs[32], factors[32];
      for (int i = 0; i < 32; ++i) {
        const std::uint32_t r = random();
        pairs[i] = static_cast<std::int16_t>(ends ? (r & 1U ? 32767 : -32768) : random_within(-32768, 32767));
        factors[i] = static_cast<std::int16_t>(ends ? (r & 2U ? 16383 : -16383) : random_within(-16383, 16383));
      }
      integers("dot16", input, V::dot16(ints(acc), ints(pairs), ints(factors)));
    }
  }

  // Columns as far apart as blocks of odd sizes put them; the last ends at the end of memory.
  void columns() {
    const int strides[] = {16, 18, 20, 34, 110, 144, 210};
    int input = 0;
    for (const int stride : strides) {
      for (int i = 0; i < 4096; ++i) run.end[i - 4096] = static_cast<std::byte>(random());
      for (int offset = 0; offset <= 16; offset += 1) {
        const std::byte* column[16];
        for (int n = 0; n < 16; ++n) column[n] = run.end - 16 - offset - (15 - n) * stride;
        I four[4];
        V::load_columns4(column, offset, four);
        for (int j = 0; j < 4; ++j) integers("load_columns4", 4 * input + j, four[j]);
        for (int j = 0; j <= 12; ++j) integers("load_columns", 13 * input + j, V::load_columns(column, offset + j));
        // In no order at all, and one of them twice.
        for (int n = 0; n < 16; ++n) {
          const std::byte* other = column[random() % 16U];
          column[random() % 16U] = column[n];
          column[n] = other;
        }
        V::load_columns4(column, offset, four);
        for (int j = 0; j < 4; ++j) integers("load_columns4, shuffled", 4 * input + j, four[j]);
        ++input;
      }
    }
    V::prefetch(run.end);  // not there: asking for it is no fault
  }
};

template <class V>
void run_vec(const VecRun& run) {
  VecHarness<V> harness{run};
  harness.float_functions();
  harness.fma();
  harness.parts();
  harness.halves();
  harness.conversions();
  harness.integer_functions();
  harness.bytes();
  harness.columns();
  harness.streams();
}

// One per file of isa/. Only to be called where the machine has the instructions.
void run_generic_vec(const VecRun& run);
void run_avx2_vec(const VecRun& run);
void run_avx512_vec(const VecRun& run);
void run_neon_vec(const VecRun& run);
void run_neon_dotprod_vec(const VecRun& run);

}  // namespace conclave
