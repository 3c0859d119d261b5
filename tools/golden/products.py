"""The matrix products: matmul, moe_matmul, moe_gate_up, moe_down, moe_shared_expert; and silu_mul."""

import numpy as np

from .rounding import fma32
from .scoring import fold_chains

CHUNK = 1 << 16  # elements that the canonical product works on at a time


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def activate(act, x):
    """silu or gelu (tanh form) in f64; at minus infinity the limit, 0."""
    if act == "silu":
        y = x * sigmoid(x)
    elif act == "gelu":
        y = 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x * x * x)))
    else:
        raise ValueError(f"unknown activation {act}")
    return np.where(np.isneginf(x), 0.0, y)


def to_f32(x):
    """Rounded to f32, as f64."""
    return x.astype(np.float32).astype(np.float64)


def canonical_product(x, w):
    """out[m, n] in f32, bit for bit: 32 chains of fused multiply-adds over k mod 32, ascending, folded in halves."""
    rows, k = x.shape
    columns = w.shape[0]
    out = np.zeros((rows, columns), np.float32)
    step = max(1, CHUNK // (32 * max(1, columns)))
    for top in range(0, rows, step):
        part = x[top:top + step, None, :]
        chains = np.zeros((part.shape[0], columns, 32), np.float32)
        for start in range(0, k, 32):
            stop = min(start + 32, k)
            width = stop - start
            chains[..., :width] = fma32(part[..., start:stop], w[None, :, start:stop], chains[..., :width])
        out[top:top + step] = fold_chains(chains)
    return out


def matmul(case):
    """x w^T plus bias, in f64 or in the canonical order in f32."""
    rows = case.live(case["x"].dims[0])
    if case.param("order") == "canonical":
        product = canonical_product(case["x"].f32()[:rows], case["w"].f32())
        if "bias" in case:
            product = product + case["bias"].f32()
    else:
        product = case["x"].f64(slice(rows)) @ case["w"].f64().T
        if "bias" in case:
            product = product + case["bias"].f64()
    case["out"].store(product, slice(rows))


def expert_rows(offsets, n_rows):
    """(expert, first row, row past the last) of every expert that has packed rows."""
    offsets = np.clip(offsets, 0, n_rows)
    return [(e, offsets[e], offsets[e + 1]) for e in np.flatnonzero(offsets[1:] > offsets[:-1])]


def listed_pairs(case, n_experts, n_pairs):
    """(expert, its pairs) as the form of rows lists them, and how many experts and columns the launch covers."""
    form = case.param("form")
    covered = None
    lists = []
    if form == "grouped":
        row_pair = case["row_pair"].ints()
        lists = [(e, row_pair[a:b]) for e, a, b in expert_rows(case["offsets"].ints(), row_pair.size)]
    elif form == "listed":
        ids = case["ids"].ints()
        counts = np.clip(case["tpe"].ints(), 0, ids.shape[1])
        experts = n_experts
        if "grid" in case:
            grid = case["grid"].ints()
            counts = np.minimum(counts, grid[0] * case.param("nr1"))
            covered = int(grid[1] * case.param("nr0"))
            experts = min(n_experts, int(grid[2]))
        lists = [(e, ids[e, :counts[e]]) for e in range(experts)]
    elif form == "blocks":
        lists = block_lists(case, n_pairs)
    else:
        raise ValueError(f"unknown form {form}")
    valid = [(e, pairs[(pairs >= 0) & (pairs < n_pairs)]) for e, pairs in lists if 0 <= e < n_experts]
    return [(e, pairs) for e, pairs in valid if pairs.size], covered


def block_lists(case, n_pairs):
    """(expert, its pairs), one for each aligned block."""
    size = case.param("block_size")
    ids = case["sorted_ids"].ints()
    ids = ids[:np.clip(case["n_padded"].ints()[0], 0, ids.size)]
    if case.param("ids") == "packed":
        row_pair = np.append(case["row_pair"].ints(), -1)
        ids = row_pair[np.where((ids >= 0) & (ids < n_pairs), ids, -1)]
    experts = case["block_expert"].ints()
    blocks = min(experts.size, -(-ids.size // size))
    return [(int(experts[b]), ids[b * size:(b + 1) * size]) for b in range(blocks)]


def moe_matmul(case):
    """One expert product, in pair order. Pairs and columns that nothing covers are left alone."""
    x, w, out = case["x"], case["w"], case["out"]
    n_tokens, top_k, columns = out.dims
    lists, covered = listed_pairs(case, w.dims[0], n_tokens * top_k)
    columns = columns if covered is None else min(columns, covered)
    for expert, pairs in lists:
        token, slot = pairs // top_k, pairs % top_k
        rows = x.f64((token, slot if x.dims[1] > 1 else 0))
        out.store(rows @ w.f64((expert, slice(columns))).T, (token, slot, slice(columns)))


def moe_gate_up(case):
    """Gate and up products (each rounded to f32) and the gated activation, into packed rows."""
    x, out = case["x"], case["out"]
    top_k = case.param("top_k")
    row_pair = case["row_pair"].ints()
    for expert, start, stop in expert_rows(case["offsets"].ints(), row_pair.size):
        rows = np.arange(start, stop)
        rows = rows[(row_pair[rows] >= 0) & (row_pair[rows] < x.dims[0] * top_k)]
        inputs = x.f64(row_pair[rows] // top_k)
        gate = to_f32(inputs @ case["gate"].f64(expert).T)
        up = to_f32(inputs @ case["up"].f64(expert).T)
        out.store(activate(case.param("act"), gate) * up, rows)


def moe_down(case):
    """The down product over packed rows. Rows past the last expert's are left alone."""
    x = case["x"]
    for expert, start, stop in expert_rows(case["offsets"].ints(), x.dims[0]):
        rows = slice(start, stop)
        case["out"].store(x.f64(rows) @ case["down"].f64(expert).T, rows)


def moe_shared_expert(case):
    """The expert that serves every token; its hidden row is read back as stored."""
    rows = slice(case.live(case["x"].dims[0]))
    x = case["x"].f64(rows)
    gate = to_f32(x @ case["shared_gate"].f64().T)
    up = to_f32(x @ case["shared_up"].f64().T)
    hidden = case["shared_hidden"]
    hidden.store(activate(case.param("act"), gate) * up, rows)
    y = to_f32(hidden.f64(rows) @ case["shared_down"].f64().T)
    if "shared_gate_inp" in case:
        y = y * sigmoid(x @ case["shared_gate_inp"].f64())[:, None]
    case["out"].store(y, rows)


def silu_mul(case):
    """silu(gate) * up, of tensors apart, concatenated or stacked."""
    layout = case.param("layout")
    out = case["out"]
    if layout == "apart":
        gate, up = case["gate"].f64(), case["up"].f64()
    elif layout == "concatenated":
        both = case["gate_up"].f64()
        gate, up = both[..., :out.dims[-1]], both[..., out.dims[-1]:]
    elif layout == "stacked":
        both = case["gate_up"].f64()
        gate, up = both[..., 0, :, :], both[..., 1, :, :]
    else:
        raise ValueError(f"unknown layout {layout}")
    rows = slice(case.live(out.dims[0]))
    out.store(activate("silu", gate[rows]) * up[rows], rows)
