"""How numbers are rounded: to bf16, f16 and q8_0, and the f32 fused multiply-add."""

import numpy as np

Q8_0_BLOCK = 32


def round_bf16(x):
    """f32 to bf16 (nearest even) and back, on the bits.

    Half of the dropped part is added, less one where the kept part is even. A carry into the exponent is right, up to
    infinity. NaN stays NaN.
    """
    x = np.ascontiguousarray(x, np.float32)
    bits = x.view(np.uint32).astype(np.uint64)
    kept = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return np.where(np.isnan(x), np.float32(np.nan), kept.astype(np.uint32).view(np.float32))


def round_f16(x):
    """f32 to f16 (nearest even, infinity past the largest) and back."""
    return np.asarray(x, np.float32).astype(np.float16).astype(np.float32)


def round_q8_0(x):
    """Rows of f32 (a multiple of 32 long) encoded as q8_0 and decoded again.

    Per block of 32: d = max|x| / 127 and its inverse in f32; q = x times the inverse, rounded half to even, within
    [-127, 127]; the scale is stored as f16. A block with a non-finite input decodes to NaN.
    """
    x = np.ascontiguousarray(x, np.float32)
    blocks = x.reshape(-1, Q8_0_BLOCK)
    largest = np.abs(blocks).max(axis=1, keepdims=True, initial=0)
    d = largest / np.float32(127)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = np.float32(1) / d
        inverse = np.where((d > 0) & np.isfinite(inverse), inverse, np.float32(0))
        q = np.clip(np.rint(blocks * inverse), np.float32(-127), np.float32(127)) + np.float32(0)  # no -0
        decoded = round_f16(d) * q
    broken = ~np.isfinite(blocks).all(axis=1, keepdims=True)
    return np.where(broken, np.float32(np.nan), decoded).astype(np.float32).reshape(x.shape)


ROUNDINGS = {"f32": lambda x: x, "bf16": round_bf16, "f16": round_f16, "q8_0": round_q8_0}


def round_to_dtype(x, dtype):
    """f32 values as they read back after being stored as `dtype`."""
    if dtype not in ROUNDINGS:
        raise ValueError(f"nothing is stored as {dtype}")
    return ROUNDINGS[dtype](x)


def fma32(a, b, c):
    """a * b + c of f32 arrays, rounded once to f32.

    The product of two f32 is exact in f64 (48 bits; 2^-298 is far from underflow). Its sum with c is rounded to odd:
    where f64 cannot hold it (TwoSum tells), the neighbour with an odd last bit is taken. 53 bits rounded to odd, then
    cast to f32, give what one rounding of the exact sum gives, subnormals and overflow included.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    c = np.asarray(c, np.float64)
    total = np.atleast_1d(product + c)
    from_c = total - product
    error = (product - (total - from_c)) + (c - from_c)
    bits = total.view(np.int64)
    inexact = (error != 0) & np.isfinite(total) & (bits & 1 == 0)
    away = np.where((error > 0) == (total > 0), 1, -1)  # +1: a larger magnitude
    odd = np.where(inexact, bits + away, bits).view(np.float64)
    return odd.astype(np.float32).reshape(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)))
