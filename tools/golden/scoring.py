"""The scores that decide which expert is chosen, in two arithmetics.

`f64` takes each function in float64 and rounds it to f32: it knows nothing of the polynomials. `steps` restates
scoring.h in f32, fused multiply-adds included; the two lie within a few units in the last place.
"""

import numpy as np

from .rounding import fma32

F32 = np.float32
EXP_CUT = F32(-87.33654)  # scoring.h: exp is 0 below, so that no subnormal is ever made


def exp_f64(x):
    """exp(x) for x <= 0 in float64, with the documented cut."""
    x = np.asarray(x)
    return np.where(x >= EXP_CUT, np.exp(x.astype(np.float64)), 0.0)


def sigmoid_f64(x):
    e = exp_f64(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def sqrt_softplus_f64(x):
    return np.sqrt(np.maximum(x, 0).astype(np.float64) + np.log1p(exp_f64(-np.abs(x))))


def softmax_f64(x):
    """Over the last axis; minus infinity gets 0."""
    e = exp_f64(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def exp_steps(x):
    """scoring.h's score_exp."""
    x = np.asarray(x, F32)
    taken = np.where(x >= EXP_CUT, x, F32(0))
    n = np.rint(taken * F32(1.44269504))
    r = fma32(n, F32(-0.693145752), taken)
    r = fma32(n, F32(-1.42860677e-6), r)
    p = F32(1) / F32(5040)
    for divisor in (720, 120, 24, 6, 2, 1, 1):
        p = fma32(p, r, F32(1) / F32(divisor))
    power = ((n.astype(np.int32) + 127) << 23).view(F32)
    return np.where(x >= EXP_CUT, p * power, F32(0))


def sigmoid_steps(x):
    e = exp_steps(-np.abs(x))
    return np.where(x >= 0, F32(1), e) / (F32(1) + e)


def sqrt_softplus_steps(x):
    u = exp_steps(-np.abs(x))
    s = u / (F32(2) + u)
    z = s * s
    p = F32(1) / F32(15)
    for divisor in (13, 11, 9, 7, 5, 3, 1):
        p = fma32(p, z, F32(1) / F32(divisor))
    return np.sqrt(np.where(x > 0, x, F32(0)) + (s + s) * p)


def fold_chains(chains):
    """Sums 32 chains (the last axis) in f32: halves added, 16, 8, 4, 2, 1."""
    chains = chains.copy()
    half = 16
    while half > 0:
        chains[..., :half] += chains[..., half:2 * half]
        half //= 2
    return chains[..., 0]


def softmax_steps(x):
    """exp(x - max) / sum in f32, with the canonical sum: chains over the index mod 32."""
    e = exp_steps(x - x.max(axis=-1, keepdims=True))
    chains = np.zeros(e.shape[:-1] + (32,), F32)
    for start in range(0, e.shape[-1], 32):
        part = e[..., start:start + 32]
        chains[..., :part.shape[-1]] += part
    return e / fold_chains(chains)[..., None]


ARITHMETICS = {
    "f64": {"softmax": softmax_f64, "sigmoid": sigmoid_f64, "sqrt_softplus": sqrt_softplus_f64},
    "steps": {"softmax": softmax_steps, "sigmoid": sigmoid_steps, "sqrt_softplus": sqrt_softplus_steps},
}


def ranking_score(kind, logits, arithmetic):
    """score[e] as f32, of cleaned f32 logits [rows, n_experts] that have a finite one in every row. Meaningless where a
    logit is minus infinity."""
    if kind == "softmax_after_top_k":
        return logits
    if kind not in ARITHMETICS[arithmetic]:
        raise ValueError(f"unknown score {kind}")
    return ARITHMETICS[arithmetic][kind](logits).astype(F32)
