"""Checks of the building blocks against definitions that share nothing with them.

Exact fractions, hand-written examples, published formulas.
"""

import io
import json
import math
from fractions import Fraction

import numpy as np

from . import products, rounding, routing, scoring, transformer
from .exchange import Case, GoldenError, Tensor, read_cases, sample_stride, write_answer
from .ops import run_case

INF, NAN = math.inf, math.nan
POISON = 0x7FC0DEAD


def check(name, holds):
    if not holds:
        raise GoldenError(f"selfcheck: {name} is wrong")


def same(name, got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    if not np.array_equal(got, expected, equal_nan=expected.dtype.kind == "f"):
        raise GoldenError(f"selfcheck: {name}: got {got.tolist()}, expected {expected.tolist()}")


def same_bits(name, got, expected):
    """Equal with the sign of zero; any NaN equals any other."""
    same(name, got, expected)
    same(name + " (sign)", np.signbit(got) & ~np.isnan(got), np.signbit(expected) & ~np.isnan(expected))


def round_fraction(value, bits, lowest, largest):
    """A fraction rounded to nearest even: `bits` significant bits, none below 2^lowest; infinity past `largest`."""
    if value == 0:
        return 0.0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - bits + 1, lowest)
    rounded = round(magnitude / unit) * unit  # Python rounds halves to even
    result = float(rounded) if rounded <= largest else INF
    return math.copysign(result, value)


def round_fraction_f32(value):
    return round_fraction(value, 24, -149, Fraction(float(np.finfo(np.float32).max)))


def random_bits(rng, count):
    """Finite floats of every exponent, subnormals included."""
    values = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), values, np.float32(1))


def check_fma(rng):
    f32 = np.float32
    a, b, c = (random_bits(rng, 4000) for _ in range(3))
    # Close to cancellation, close to halves of the last place, and in the subnormal range.
    near = rng.standard_normal((3, 4000)).astype(f32)
    cancel = (-(near[0].astype(np.float64) * near[1])).astype(f32)
    cancel = (cancel.view(np.int32) + rng.integers(-2, 3, 4000).astype(np.int32)).view(f32)
    halves = (1 + rng.integers(0, 2**23, 4000) * 2.0**-23).astype(f32)
    tiny = (2.0 ** rng.integers(-60, -20, 4000) * np.where(rng.random(4000) < 0.5, -1, 1)).astype(f32)
    small = (near[0] * f32(2.0**-74)).astype(f32)
    floor = (rng.integers(-50, 51, 4000) * 2.0**-149).astype(f32)
    sets = [(a, b, c), (near[0], near[1], cancel), (tiny, np.full(4000, 2.0**-3, f32), halves),
            (small, (near[1] * f32(2.0**-74)).astype(f32), floor), (a, (f32(1) / a).astype(f32), halves)]
    for number, (x, y, z) in enumerate(sets):
        y = np.where(np.isfinite(y), y, f32(1))
        exact = [Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r)) for p, q, r in zip(x, y, z)]
        expected = np.array([round_fraction_f32(v) for v in exact], f32)
        got = rounding.fma32(x, y, z)
        decided = np.array([v != 0 for v in exact])  # the sign of an exact zero is not a matter of rounding
        same_bits(f"fma set {number}", got[decided], expected[decided])
        check(f"fma zeros of set {number}", (got[~decided] == 0).all())
    largest = np.finfo(f32).max
    same_bits("fma edges", rounding.fma32(
        np.array([INF, INF, 1, largest, largest, -1, 1], f32), np.array([0, 1, 1, 2, 1, 0, -1], f32),
        np.array([1, -INF, INF, 0, 2.0**103, 0, 1], f32)), np.array([NAN, NAN, INF, INF, INF, 0, 0], f32) + f32(0))
    tiniest = f32(2.0**-149)
    same_bits("fma sign of underflow", rounding.fma32(-tiniest, tiniest, f32(0)), f32(-0.0))


def check_rounding(rng):
    f32 = np.float32
    x = np.concatenate([random_bits(rng, 3000), rng.standard_normal(1000).astype(f32)])
    top = Fraction(float(np.uint32(0x7F7F0000).view(f32)))
    expected = np.array([round_fraction(Fraction(float(v)), 8, -133, top) for v in x], f32)
    same("bf16 of random bits", rounding.round_bf16(x), expected)
    by_hand = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0x80000001, 0x7F800000, 0x7F800001], np.uint32)
    result = np.array([0x3F800000, 0x3F820000, 0x3F810000, 0x7F800000, 0x80000000, 0x7F800000, 0x7FC00000], np.uint32)
    same("bf16 by hand", rounding.round_bf16(by_hand.view(f32)), result.view(f32))
    expected = np.array([round_fraction(Fraction(float(v)), 11, -24, Fraction(65504)) for v in x], f32)
    same("f16 of random bits", rounding.round_f16(x), expected)
    same("f16 edges", rounding.round_f16(np.array([65519.996, 65520, -65520, 2.0**-25, 3 * 2.0**-25, 2049, 2051], f32)),
         np.array([65504, INF, -INF, 0, 2.0**-23, 2048, 2052], f32))


def check_q8_0():
    f32 = np.float32
    block = np.zeros(32, f32)
    block[:8] = [127, -127, 0.5, 1.5, -2.5, 63.4, -0.0, 3]
    expected = np.zeros(32, f32)
    expected[:8] = [127, -127, 0, 2, -2, 63, 0, 3]  # d = 1: halves to even
    same("q8_0 with scale 1", rounding.round_q8_0(block), expected)
    for broken in (NAN, INF, -INF):
        pair = np.stack([block, block]).reshape(-1)
        pair[40] = broken
        got = rounding.round_q8_0(pair)
        same("q8_0 beside a broken block", got[:32], expected)
        check("q8_0 broken block", np.isnan(got[32:]).all())
    same("q8_0 of zeros", rounding.round_q8_0(np.zeros(64, f32)), np.zeros(64, f32))
    same("q8_0 of subnormals", rounding.round_q8_0(np.full(32, 1e-42, f32)), np.zeros(32, f32))
    x = np.linspace(-3, 5, 32).astype(f32)
    check("q8_0 error", np.abs(rounding.round_q8_0(x) - x).max() < 5 / 127 * 0.501 + 5 * 2.0**-11)


def check_scoring(rng):
    """scoring.h's steps lie within a few units in the last place of f64."""
    x = -np.abs(np.concatenate([rng.uniform(0, 88, 20000), rng.exponential(1, 20000)])).astype(np.float32)
    full = scoring.exp_f64(x)
    unit = np.spacing(np.maximum(full, 1e-37).astype(np.float32)).astype(np.float64)
    check("exp in steps", (np.abs(scoring.exp_steps(x) - full) <= 2 * unit).all())
    edges = np.array([0, -0.0, -87.33654, -87.4, -INF, NAN], np.float32)
    got = scoring.exp_steps(edges)
    check("exp edges", got[0] == 1 and got[1] == 1 and got[2] >= 2.0**-126 and (got[3:] == 0).all())
    x = np.concatenate([x, -x])
    for name, limit in (("sigmoid", 4), ("sqrt_softplus", 4)):
        exact = scoring.ARITHMETICS["f64"][name](x)
        unit = np.spacing(np.maximum(exact, 1e-37).astype(np.float32)).astype(np.float64)
        check(f"{name} in steps", (np.abs(scoring.ARITHMETICS["steps"][name](x) - exact) <= limit * unit).all())
    rows = rng.standard_normal((50, 257)).astype(np.float32) * 5
    check("softmax in steps", np.allclose(scoring.softmax_steps(rows), scoring.softmax_f64(rows), rtol=2e-6, atol=0))


def routed(logits, top_k, score="softmax", bias=None, renormalize=False, n_groups=1, top_groups=1, group_score="max",
           scale=1.0, expert_scale=None):
    rule = {"top_k": top_k, "score": score, "renormalize": renormalize, "scale": scale, "n_groups": n_groups,
            "top_groups": top_groups, "group_score": group_score}
    bias = None if bias is None else np.array(bias, np.float32)
    return routing.route_rows(np.array(logits, np.float32), bias, expert_scale, rule)


def check_route():
    logits = [[1, 3, 3, 2], [0.0, -0.0, 0.0, -0.0], [NAN, -INF, -5, INF], [3e38, INF, 3.4028235e38, NAN],
              [NAN, -INF, NAN, NAN]]
    experts, weights, unusable = routed(logits, 3, "softmax_after_top_k")
    same("experts with ties and NaN", experts, [[1, 2, 3], [0, 1, 2], [3, 2, 0], [1, 2, 0], [0, 1, 2]])
    check("count of unusable rows", unusable == 1)
    same("weights of equal logits", weights[1], np.full(3, 1 / 3))
    check("weight of NaN", weights[2][2] == 0 and weights[2][0] == 1)
    same("weights of an unusable row", weights[4], np.full(3, 1 / 3))

    logits = np.log([[1, 2, 3, 4]])
    check("softmax over all", np.allclose(routed(logits, 2)[1], [[0.4, 0.3]], rtol=1e-6))
    check("softmax renormalised", np.allclose(routed(logits, 2, renormalize=True)[1], [[4 / 7, 3 / 7]], rtol=1e-6))
    scales = np.array([1.0, 2.0, 3.0, 4.0])
    check("scales come last", np.allclose(
        routed(logits, 2, renormalize=True, scale=0.5, expert_scale=scales)[1], [[8 / 7, 4.5 / 7]], rtol=1e-6))
    experts, weights, _ = routed([[0, 0, 0, -INF]], 2, "sigmoid", bias=[0, 0.5, 0.5, 100])
    same("bias chooses, minus infinity never", experts, [[1, 2]])
    same("bias is not in the weight", weights, [[0.5, 0.5]])
    _, weights, _ = routed([[-100.0, -INF]], 2, "sigmoid", renormalize=True)
    check("renormalize divides by 2^-14 at least", np.allclose(weights, [[math.exp(-100) * 2**14, 0]], rtol=1e-9))
    check("sqrt_softplus of 0", np.allclose(routed([[0.0]], 1, "sqrt_softplus")[1], math.sqrt(math.log(2))))

    # Groups of two: the best expert alone chooses group 1, the sum of two chooses group 0.
    row = [[2, 2, 3, -9, 0, 0]]
    same("group by maximum", routed(row, 2, "softmax_after_top_k", n_groups=3)[0], [[2, 3]])
    same("group by sum", routed(row, 2, "softmax_after_top_k", n_groups=3, group_score="sum_of_two")[0], [[0, 1]])
    same("tie of groups", routed([[1, 0, 0, 1, 1, 0]], 4, n_groups=3, top_groups=2)[0], [[0, 3, 1, 2]])
    same("no expert from outside", routed([[5, -INF, 4, 4]], 2, n_groups=2)[0], [[0, 1]])
    same("lone expert of a group", routed([[-1, -INF, -3, 1]], 2, "softmax_after_top_k", n_groups=2,
                                          group_score="sum_of_two")[0], [[0, 1]])
    same("sums of groups past the largest float are equal", routed(
        [[INF, -INF, INF, INF]], 2, "softmax_after_top_k", n_groups=2, group_score="sum_of_two")[0], [[0, 1]])
    same("argmax", transformer.argmax_rows(np.array(
        [[-0.0, 0, NAN], [NAN, -INF, NAN], [NAN, -3, -3], [1, INF, INF]], np.float32)), [0, -1, 1, 1])
    largest = float(np.finfo(np.float32).max)
    ids, values = transformer.top_k_rows(np.array([[NAN, 2, 5, 5], [-INF, -0.0, 0, NAN], [1, INF, largest, INF]], np.float32), 3)
    same("top_k", ids, [[2, 3, 1], [1, 2, -1], [1, 2, 3]])
    same("values of top_k", values, [[5, 5, 2], [0, 0, -INF], [largest, largest, largest]])


def check_canonical(rng):
    """The product of small integers is exact in any order; a short one is checked step by step in fractions."""
    x = rng.integers(-8, 9, (3, 77)).astype(np.float32)
    w = rng.integers(-8, 9, (5, 77)).astype(np.float32)
    same("canonical product of integers", products.canonical_product(x, w), x @ w.T)
    x, w = rng.standard_normal((2, 70)).astype(np.float32), rng.standard_normal((3, 70)).astype(np.float32)
    expected = np.zeros((2, 3), np.float32)
    for m in range(2):
        for n in range(3):
            chains = [0.0] * 32
            for k in range(70):
                exact = Fraction(float(x[m, k])) * Fraction(float(w[n, k])) + Fraction(chains[k % 32])
                chains[k % 32] = round_fraction_f32(exact)
            while len(chains) > 1:
                half = len(chains) // 2
                chains = [round_fraction_f32(Fraction(chains[i]) + Fraction(chains[i + half])) for i in range(half)]
            expected[m, n] = chains[0]
    same_bits("canonical product", products.canonical_product(x, w), expected)


def published_yarn(dim, base, factor, original_context, beta_fast, beta_slow):
    """YaRN's inverse frequencies as published with the paper: two kinds of frequency, blended by a ramp that is widened
    by 0.001 where its ends meet."""
    def correction_dim(rotations):
        return dim * math.log(original_context / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(correction_dim(beta_fast)), 0)
    high = min(math.ceil(correction_dim(beta_slow)), dim - 1)
    if low == high:
        high += 0.001
    result = []
    for i in range(dim // 2):
        pos_freq = base ** (2 * i / dim)
        kept = 1 - min(max((i - low) / (high - low), 0), 1)
        result.append(1 / (factor * pos_freq) * (1 - kept) + 1 / pos_freq * kept)
    return np.array(result)


def check_rope():
    models = ((64, 10000.0, 40.0, 4096, 32.0, 1.0), (128, 1e6, 4.0, 32768, 32.0, 1.0),
              (64, 150000.0, 32.0, 4096, 32.0, 1.0), (8, 500.0, 2.0, 64, 4.0, 4.0))
    for dim, base, factor, context, fast, slow in models:
        got = transformer.rope_frequencies(dim, base, "yarn", factor, None, context, fast, slow)
        expected = published_yarn(dim, base, factor, context, fast, slow)
        check(f"yarn of dimension {dim}", np.allclose(got, expected, rtol=1e-12, atol=0))
    # By hand for dimension 64, base 10000, 4096 positions: the ramp runs from pair 10 to pair 23.
    ratio = (transformer.rope_frequencies(64, 10000.0, "yarn", 40.0, None, 4096) /
             transformer.rope_frequencies(64, 10000.0))
    check("ends of the ramp", ratio[10] == 1 and ratio[11] < 1 and ratio[22] > 1.01 / 40 and
          np.allclose(ratio[23:], 1 / 40, rtol=1e-12))
    check("linear", np.allclose(transformer.rope_frequencies(4, 100.0, "linear", 2.0), [0.5, 0.05], rtol=1e-15))
    check("factors", np.allclose(transformer.rope_frequencies(4, 100.0, factors=np.array([2.0, 1.0])), [0.5, 0.1]))


def check_exchange():
    """Poison comes through an op bit for bit, and a record survives writing and reading."""
    bits = np.full((3, 2), POISON, np.uint32)
    ones = np.ones((3, 2), np.float32).view(np.uint32)
    live = np.array([2], np.uint32)
    parts = [("a", "in", "bf16", "f32", ones), ("b", "in", "f32", "f32", ones), ("live", "in", "i32", "i32", live),
             ("out", "out", "bf16", "f32", bits)]
    tensors, payload = [], b""
    for name, role, dtype, encoding, content in parts:
        tensors.append({"name": name, "role": role, "dtype": dtype, "encoding": encoding, "dims": list(content.shape),
                        "offset": len(payload), "bytes": content.nbytes})
        payload += content.tobytes()
    head = {"op": "add", "case": "poison", "inputs": "0" * 16, "params": {}, "tensors": tensors,
            "payload_bytes": len(payload)}
    record = json.dumps(head).encode() + b"\n" + payload
    cases = list(read_cases(io.BytesIO(record + record)))
    check("number of records", len(cases) == 2)
    run_case(cases[0])
    answers = io.BytesIO()
    write_answer(answers, cases[0])
    two = np.float32(2).view(np.uint32)
    same("poison", np.frombuffer(answers.getvalue().split(b"\n", 1)[1], np.uint32), [two] * 4 + [POISON] * 2)
    strides = [sample_stride(10, None), sample_stride(10, 10), sample_stride(11, 10), sample_stride(31, 10)]
    same("strides", strides, [1, 1, 3, 5])
    tensor = Tensor("out", "out", "f32", "f32", np.full(2, POISON, np.uint32))
    tensor.store(np.full(1, POISON, np.uint32).view(np.float32), slice(1))
    same("a computed NaN is not poison", tensor.bits, [0x7FC00000, POISON])
    check("live is held to the rows", Case("add", {}, {"live": Tensor(
        "live", "in", "i32", "i32", np.array([-5], np.int32).view(np.uint32))}).live(4) == 0)


def run():
    """Raises GoldenError at the first check that fails."""
    rng = np.random.default_rng(1)
    with np.errstate(all="ignore"):
        check_fma(rng)
        check_rounding(rng)
        check_q8_0()
        check_scoring(rng)
        check_route()
        check_canonical(rng)
        check_rope()
        check_exchange()
