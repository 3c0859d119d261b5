#!/usr/bin/env python3
"""Makes tests/golden/quant: what another implementation decodes, and how much other quantisers lose.

    python tools/golden_quant.py decode
    python tools/golden_quant.py encode --ggml libggml-base.so

Needs the packages numpy and gguf; `encode` also a shared library with ggml's C functions quantize_q4_K, quantize_q5_K and
quantize_q6_K. The same arguments give the same bytes.

decode_<format>.bin, little endian:
    4 bytes "CQD1", u32 n_blocks, u32 bytes per block, u32 values per block,
    the blocks, then n_blocks * values f32: what gguf.quants.dequantize makes of them.
encode_inputs.bin: the base distributions as f32, `count` values each, in the order of "bases" in encode_errors.json.
encode_errors.json: cases (inputs derived from the bases in f32 arithmetic) and the reference RMSE per format and case.
"""

import argparse
import ctypes
import json
import pathlib
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "quant"
SEED = 20260

# format -> byte offsets of its f16 scales
BLOCK_FORMATS = {
    "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0],
    "q2_k": [80, 82], "q3_k": [108], "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208],
    "iq4_nl": [0], "iq4_xs": [0],
}  # fmt: skip

# Zeros, ones, the ends of the subnormal and normal ranges, infinities, a quiet and a signalling NaN.
SPECIAL_F16 = [0x0000, 0x8000, 0x3C00, 0xBC00, 0x0001, 0x8001, 0x03FF, 0x0400,
               0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01]  # fmt: skip
SPECIAL_F32 = [0x00000000, 0x80000000, 0x3F800000, 0x00000001, 0x807FFFFF, 0x00800000,
               0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001]  # fmt: skip


def ggml_type(name: str) -> GGMLQuantizationType:
    return GGMLQuantizationType[name.upper()]


def block_bytes(name: str, rng: np.random.Generator) -> np.ndarray:
    """Random bytes in every field; the first blocks have all bits alike or special scales, the last ordinary ones."""
    values, size = GGML_QUANT_SIZES[ggml_type(name)]
    n_random, n_ordinary = (6, 4) if values == 256 else (16, 16)
    n_blocks = 2 + len(SPECIAL_F16) + n_random + n_ordinary
    blocks = rng.integers(0, 256, (n_blocks, size), dtype=np.uint8)
    blocks[0] = 0x00
    blocks[1] = 0xFF

    def set_scale(block: int, offset: int, bits: int) -> None:
        blocks[block, offset : offset + 2] = list(struct.pack("<H", bits))

    for i in range(len(SPECIAL_F16)):
        for k, offset in enumerate(BLOCK_FORMATS[name]):
            set_scale(2 + i, offset, SPECIAL_F16[(i + 5 * k) % len(SPECIAL_F16)])
    for i in range(n_blocks - n_ordinary, n_blocks):
        for offset in BLOCK_FORMATS[name]:
            set_scale(i, offset, int(np.float16(rng.normal() * 0.01).view(np.uint16)))
    return blocks


def mxfp4_bytes(rng: np.random.Generator) -> np.ndarray:
    """Every exponent with every code in both halves of a byte."""
    low = np.stack([rng.permutation(16) for _ in range(256)])
    high = np.stack([rng.permutation(16) for _ in range(256)])
    return np.concatenate([np.arange(256)[:, None], low | (high << 4)], axis=1).astype(np.uint8)


def float_bytes(name: str, rng: np.random.Generator) -> np.ndarray:
    if name == "f32":
        return np.concatenate([SPECIAL_F32, rng.integers(0, 1 << 32, 500)]).astype(np.uint32).view(np.uint8).reshape(-1, 4)
    special = SPECIAL_F16 if name == "f16" else [bits >> 16 for bits in SPECIAL_F32]
    return np.concatenate([special, rng.integers(0, 1 << 16, 2000)]).astype(np.uint16).view(np.uint8).reshape(-1, 2)


def write_decode() -> None:
    rng = np.random.default_rng(SEED)
    names = ["f32", "f16", "bf16", *BLOCK_FORMATS, "mxfp4"]
    for name in names:
        if name == "mxfp4":
            blocks = mxfp4_bytes(rng)
        elif name in BLOCK_FORMATS:
            blocks = block_bytes(name, rng)
        else:
            blocks = float_bytes(name, rng)
        with np.errstate(all="ignore"):
            values = dequantize(blocks, ggml_type(name)).astype("<f4", copy=False)
        header = b"CQD1" + struct.pack("<III", blocks.shape[0], blocks.shape[1], values.size // blocks.shape[0])
        (GOLDEN / f"decode_{name}.bin").write_bytes(header + blocks.tobytes() + values.tobytes())


COUNT = 8192  # values of a base
BASES = {
    "normal": lambda rng: rng.standard_normal(COUNT),
    "student_t2": lambda rng: rng.standard_t(2, COUNT),
    "laplace": lambda rng: rng.laplace(size=COUNT),
}
# A case: base -> abs (if set) -> times scale -> plus offset -> every n-th value replaced by outlier. All in f32.
CASES = [
    {"name": "normal", "base": "normal", "scale": 1.0},
    {"name": "weights", "base": "normal", "scale": 0.02},
    {"name": "student_t2", "base": "student_t2", "scale": 1.0},
    {"name": "laplace", "base": "laplace", "scale": 0.05},
    {"name": "zero", "base": "normal", "scale": 0.0},
    {"name": "constant", "base": "normal", "scale": 0.0, "offset": 0.37},
    {"name": "negative_constant", "base": "normal", "scale": 0.0, "offset": -1.9},
    {"name": "tiny_1e-6", "base": "normal", "scale": 1e-6},
    {"name": "tiny_1e-30", "base": "normal", "scale": 1e-30},
    {"name": "subnormal", "base": "normal", "scale": 1e-40},
    {"name": "large_1e4", "base": "normal", "scale": 1e4},
    {"name": "one_outlier", "base": "normal", "scale": 0.02, "outlier_every": COUNT, "outlier": 30.0},
    {"name": "outlier_per_256", "base": "normal", "scale": 1.0, "outlier_every": 256, "outlier": -40.0},
    {"name": "positive", "base": "laplace", "scale": 1.0, "abs": True},
    {"name": "around_one", "base": "normal", "scale": 0.02, "offset": 1.0},
    {"name": "around_minus_one", "base": "normal", "scale": 0.02, "offset": -1.0},
]
BY_GGUF = ["f16", "bf16", "q4_0", "q5_0", "q8_0", "mxfp4"]
BY_GGML = {"q4_k": "quantize_q4_K", "q5_k": "quantize_q5_K", "q6_k": "quantize_q6_K"}


def case_input(case: dict, bases: dict[str, np.ndarray]) -> np.ndarray:
    x = bases[case["base"]].copy()
    if case.get("abs"):
        x = np.abs(x)
    x = x * np.float32(case["scale"]) + np.float32(case.get("offset", 0.0))
    if "outlier_every" in case:
        x[:: case["outlier_every"]] = np.float32(case["outlier"])
    assert x.dtype == np.float32
    return x


def encode_with_ggml(library: ctypes.CDLL, name: str, x: np.ndarray) -> np.ndarray:
    values, size = GGML_QUANT_SIZES[ggml_type(name)]
    out = np.zeros(x.size // values * size, np.uint8)
    function = getattr(library, BY_GGML[name])
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    function.restype = ctypes.c_size_t
    written = function(x.ctypes.data, out.ctypes.data, 1, x.size, None)  # None: no importance matrix
    assert written == out.size
    return out


def write_encode(ggml: str) -> None:
    rng = np.random.default_rng(SEED + 1)
    bases = {name: make(rng).astype(np.float32) for name, make in BASES.items()}
    (GOLDEN / "encode_inputs.bin").write_bytes(b"".join(x.astype("<f4").tobytes() for x in bases.values()))

    library = ctypes.CDLL(ggml)
    rmse: dict[str, dict[str, float]] = {}
    for name in [*BY_GGUF, *BY_GGML]:
        rmse[name] = {}
        for case in CASES:
            x = case_input(case, bases)
            with np.errstate(all="ignore"):
                blocks = encode_with_ggml(library, name, x) if name in BY_GGML else quantize(x, ggml_type(name))
                decoded = dequantize(blocks, ggml_type(name)).reshape(-1).astype(np.float64)
            rmse[name][case["name"]] = float(np.sqrt(np.mean((decoded - x.astype(np.float64)) ** 2)))
    golden = {
        "about": "RMSE of other quantisers: gguf-py's for " + ", ".join(BY_GGUF)
        + "; llama.cpp's without importance matrix for " + ", ".join(BY_GGML)
        + ". Made by tools/golden_quant.py, which says how a case becomes values.",
        "count": COUNT,
        "bases": list(BASES),
        "cases": CASES,
        "rmse": rmse,
    }  # fmt: skip
    (GOLDEN / "encode_errors.json").write_text(json.dumps(golden, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="golden data for tests/quant")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("decode", help="blocks and what they decode to")
    encode = commands.add_parser("encode", help="inputs and the errors of other quantisers")
    encode.add_argument("--ggml", required=True, metavar="LIB", help="shared library with ggml's quantize functions")
    arguments = parser.parse_args()
    GOLDEN.mkdir(parents=True, exist_ok=True)
    if arguments.command == "decode":
        write_decode()
    else:
        write_encode(arguments.ggml)


if __name__ == "__main__":
    main()
