"""The other ops of a transformer: embed, rms_norm, rope, kv_write, attention, add, softmax, argmax and top_k."""

import math

import numpy as np


def embed(case):
    """Rows of the table; an id outside it gives zeros."""
    table, out = case["table"], case["out"]
    rows = case.live(out.dims[0])
    ids = case["ids"].ints()[:rows]
    known = (ids >= 0) & (ids < table.dims[0])
    values = np.zeros((rows, out.dims[1]))
    values[known] = table.f64(ids[known])
    out.store(values, slice(rows))


def rms_norm_rows(x, weight, eps):
    """x / sqrt(mean x^2 + eps) * weight along the last axis, in f64."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def rms_norm(case):
    """Per row, or per head of each row."""
    rows = slice(case.live(case["x"].dims[0]))
    case["out"].store(rms_norm_rows(case["x"].f64(rows), case["weight"].f64(), case.real("eps")), rows)


def rope_frequencies(n_rot, base, scaling="none", factor=1.0, factors=None, original_context=0, beta_fast=32.0,
                     beta_slow=1.0):
    """f(i) of every pair, in f64."""
    i = np.arange(n_rot // 2, dtype=np.float64)
    e = base ** (-2.0 * i / max(n_rot, 1))
    if factors is not None:
        e = e / factors
    if scaling == "none":
        return e
    if scaling == "linear":
        return e / factor
    if scaling != "yarn":
        raise ValueError(f"unknown scaling {scaling}")

    def correction(rotations):
        return n_rot * math.log(original_context / (2 * math.pi * rotations)) / (2 * math.log(base))

    low = max(math.floor(correction(beta_fast)), 0)
    high = min(math.ceil(correction(beta_slow)), n_rot - 1)
    ramp = np.clip((i - low) / max(high - low, 0.001), 0.0, 1.0)
    return e * (1 - ramp) + e / factor * ramp


def rope(case):
    """Rotates pairs of the first n_rot elements of every head; the rest is passed through."""
    rows = case.live(case["x"].dims[0])
    n_rot, style = case.param("n_rot"), case.param("style")
    if style not in ("neox", "interleaved"):
        raise ValueError(f"unknown style {style}")
    frequencies = rope_frequencies(
        n_rot, case.real("base"), case.param("scaling"), case.real("factor"),
        case["factors"].f64() if "factors" in case else None, case.param("original_context"), case.real("beta_fast"),
        case.real("beta_slow"))
    angle = (case["positions"].ints()[:rows, None] * frequencies)[:, None, :]
    cos, sin = np.cos(angle), np.sin(angle)
    magnitude = case.real("magnitude")

    y = case["x"].f64(slice(rows))
    interleaved = style == "interleaved"
    first = np.s_[..., 0:n_rot:2] if interleaved else np.s_[..., :n_rot // 2]
    second = np.s_[..., 1:n_rot:2] if interleaved else np.s_[..., n_rot // 2:n_rot]
    a, b = y[first].copy(), y[second].copy()
    y[first] = magnitude * (a * cos - b * sin)
    y[second] = magnitude * (a * sin + b * cos)
    case["out"].store(y, slice(rows))


def kv_places(pages, page_size, n_pages, seq, positions):
    """Pages and slots of the positions of one sequence; the page is below 0 where a position is not there."""
    n_seqs, max_pages = pages.shape
    positions = np.asarray(positions)
    column = positions // page_size
    page = np.full(positions.shape, -1)
    if 0 <= seq < n_seqs:
        there = (positions >= 0) & (column < max_pages)
        page[there] = pages[seq, column[there]]
        page[page >= n_pages] = -1
    return page, positions % page_size


def kv_write(case):
    """Keys and values of new tokens into the cache, in order: the later token stands. The rest is left alone."""
    pages = case["pages"].ints()
    n_pages, page_size = case["k_pool"].dims[:2]
    seqs, positions = case["seqs"].ints(), case["positions"].ints()
    for token in range(case.live(seqs.size)):
        page, slot = kv_places(pages, page_size, n_pages, seqs[token], positions[token:token + 1])
        if page[0] < 0:
            continue
        for new, pool in (("k", "k_pool"), ("v", "v_pool")):
            case[pool].store(case[new].f32()[token], (page[0], slot[0]))


def softmax_rows(x):
    """Along the last axis in f64, IEEE as it falls."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attention_token(q, keys, values, scale):
    """[n_heads, d_v] of one token over keys [j, n_kv_heads, d_k] and values [j, n_kv_heads, d_v]."""
    n_heads, d_k = q.shape
    n_kv_heads = keys.shape[1]
    grouped = q.reshape(n_kv_heads, n_heads // n_kv_heads, d_k)
    scores = scale * (grouped @ keys.transpose(1, 2, 0))
    return (softmax_rows(scores) @ values.transpose(1, 0, 2)).reshape(n_heads, -1)


def attention(case):
    """Causal attention over the paged cache; zeros for a token without any cached position."""
    k_pool, v_pool, out = case["k_pool"], case["v_pool"], case["out"]
    pages = case["pages"].ints()
    n_pages, page_size = k_pool.dims[:2]
    seqs, positions, lengths = case["seqs"].ints(), case["positions"].ints(), case["lengths"].ints()
    for token in range(case.live(seqs.size)):
        seq = seqs[token]
        page = slot = np.zeros(0, int)
        if 0 <= seq < lengths.size:
            count = min(positions[token] + 1, lengths[seq], pages.shape[1] * page_size)
            page, slot = kv_places(pages, page_size, n_pages, seq, np.arange(max(count, 0)))
            page, slot = page[page >= 0], slot[page >= 0]
        if page.size == 0:
            out.store(np.zeros(out.dims[1:]), token)
            continue
        keys, values = k_pool.f64((page, slot)), v_pool.f64((page, slot))
        out.store(attention_token(case["q"].f64(token), keys, values, case.real("scale")), token)


def add(case):
    """a + b; b may be one row."""
    rows = case.live(case["a"].dims[0])
    b = case["b"]
    added = b.f64() if len(b.dims) < len(case["a"].dims) else b.f64(slice(rows))
    case["out"].store(case["a"].f64(slice(rows)) + added, slice(rows))


def softmax(case):
    """softmax(scale * x), row by row."""
    rows = slice(case.live(case["x"].dims[0]))
    case["out"].store(softmax_rows(case.real("scale") * case["x"].f64(rows)), rows)


def argmax_rows(x):
    """Index of the largest of each f32 row: NaN taken as minus infinity, ties to the lower index; -1 for none."""
    usable = np.where(np.isnan(x), -np.inf, x)
    return np.where(np.max(usable, axis=-1) == -np.inf, -1, np.argmax(usable, axis=-1))


def argmax(case):
    """The index of the largest element of each row."""
    rows = case.live(case["x"].dims[0])
    case["ids"].store_ints(argmax_rows(case["x"].f32()[:rows]), slice(rows))


def top_k_rows(x, k):
    """The k best of each f32 row as (indices, values): ranked by value, then by the lower index; -1 and -inf for none."""
    ranked = np.where(np.isnan(x), -np.inf, np.minimum(x, np.finfo(np.float32).max)).astype(np.float32) + np.float32(0)
    padded = np.full((x.shape[0], max(k, x.shape[1])), -np.inf, np.float32)
    padded[:, : x.shape[1]] = ranked
    order = np.argsort(-padded.astype(np.float64), axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(padded, order, axis=1)
    return np.where(values == -np.inf, -1, order), values


def top_k(case):
    """The k best elements of each row, best first."""
    rows = case.live(case["x"].dims[0])
    ids, values = top_k_rows(case["x"].f32()[:rows], case["ids"].dims[1])
    case["ids"].store_ints(ids, slice(rows))
    case["values"].store(values, slice(rows))
