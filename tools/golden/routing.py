"""moe_route, moe_route_to_host and moe_routing_upload."""

import numpy as np

from .scoring import ranking_score

LARGEST = np.finfo(np.float32).max
NO_FINITE_LIMIT = 2**31 - 1
RULE = ("top_k", "score", "renormalize", "scale", "n_groups", "top_groups", "group_score")

# How ranks that are no logits are computed: a key of scoring.ARITHMETICS.
arithmetic = "steps"


def orderable(values):
    """NaN taken as minus infinity, plus infinity as the largest finite float: of logits, ranks and ranks of groups."""
    return np.where(np.isnan(values), np.float32(-np.inf), np.minimum(values, LARGEST))


def ranks_of(logits, bias, score, n_groups, group_score):
    """rank[e] as f32, for rows that have a finite logit."""
    by_logit = score in ("softmax", "softmax_after_top_k")
    if by_logit and bias is None and not (n_groups > 1 and group_score == "sum_of_two"):
        return logits
    rank = ranking_score(score, logits, arithmetic)
    if bias is not None:
        rank = rank + bias  # f32
    return np.where(np.isneginf(logits), np.float32(-np.inf), orderable(rank))


def order_of(rank, out):
    """Indices from best to worst along the last axis: those that are not out first, larger ranks first, then lower
    indices. -0 equals +0."""
    return np.lexsort((-rank, out), axis=-1)


def outside_groups(rank, n_groups, top_groups, group_score):
    """True for every expert whose group is not among the top_groups best."""
    rows, n_experts = rank.shape
    if n_groups == 1:
        return np.zeros(rank.shape, bool)
    size = n_experts // n_groups
    best = -np.sort(-rank.reshape(rows, n_groups, size), axis=-1)
    if group_score == "max" or size == 1:
        group_rank = best[..., 0]
    else:
        second = np.where(np.isneginf(best[..., 1]), np.float32(0), best[..., 1])
        group_rank = orderable(best[..., 0] + second)  # f32; a sum past the largest float counts as it
    chosen = order_of(group_rank, np.zeros(group_rank.shape, bool))[:, :top_groups]
    outside = np.ones((rows, n_groups), bool)
    np.put_along_axis(outside, chosen, False, axis=1)
    return np.repeat(outside, size, axis=1)


def softmax_weights(logits):
    """Softmax along the last axis in f64; minus infinity gets 0, also where there is nothing else."""
    largest = logits.max(axis=-1, keepdims=True)
    e = np.exp(logits - np.where(np.isneginf(largest), 0.0, largest))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total > 0, total, 1.0)


def weights_of(logits, chosen, score):
    """The chosen experts' weights in f64, before renormalize and the scales."""
    exact = logits.astype(np.float64)
    of_chosen = np.take_along_axis(exact, chosen, axis=1)
    if score == "softmax":
        return np.take_along_axis(softmax_weights(exact), chosen, axis=1)
    if score == "softmax_after_top_k":
        return softmax_weights(of_chosen)
    e = np.exp(-np.abs(of_chosen))
    if score == "sigmoid":
        weights = np.where(of_chosen >= 0, 1.0, e) / (1.0 + e)
    elif score == "sqrt_softplus":
        weights = np.sqrt(np.maximum(of_chosen, 0.0) + np.log1p(e))
    else:
        raise ValueError(f"unknown score {score}")
    return np.where(np.isneginf(of_chosen), 0.0, weights)


def route_rows(logits, bias, expert_scale, rule):
    """Experts [rows, top_k], weights [rows, top_k] in f64, and how many rows had no usable logit, for f32 logits."""
    logits = orderable(logits)
    top_k, score = rule["top_k"], rule["score"]
    unusable = np.isneginf(logits).all(axis=1)
    usable = np.where(unusable[:, None], np.float32(0), logits)  # rows of 0 stand in; they are replaced below

    rank = ranks_of(usable, bias, score, rule["n_groups"], rule["group_score"])
    out = outside_groups(rank, rule["n_groups"], rule["top_groups"], rule["group_score"])
    experts = order_of(rank, out)[:, :top_k]
    weights = weights_of(usable, experts, score)
    if rule["renormalize"]:
        weights = weights / np.maximum(weights.sum(axis=1, keepdims=True), 2.0**-14)

    experts = np.where(unusable[:, None], np.arange(top_k), experts)
    weights = np.where(unusable[:, None], 1.0 / top_k, weights) * float(np.float32(rule["scale"]))
    if expert_scale is not None:
        weights = weights * expert_scale[experts]
    return experts, weights, int(unusable.sum())


def moe_route(case):
    """Which experts serve each token, and with what weight. Rows past `live` are left alone."""
    logits = case["logits"].f32()
    rows = case.live(logits.shape[0])
    bias = case["bias"].f32() if "bias" in case else None
    expert_scale = case["expert_scale"].f64() if "expert_scale" in case else None
    rule = {name: case.param(name) for name in RULE}
    experts, weights, unusable = route_rows(logits[:rows], bias, expert_scale, rule)
    case["experts"].store_ints(experts, slice(rows))
    case["weights"].store(weights, slice(rows))
    if "no_finite" in case:
        count = case["no_finite"]
        count.store_ints(np.minimum(count.ints() + unusable, NO_FINITE_LIMIT))
    if "counts" in case:
        counts = case["counts"]
        total = counts.ints() + np.bincount(experts.reshape(-1), minlength=logits.shape[1])
        counts.store_ints(total % 2**32)


def moe_route_to_host(case):
    """moe_route, into host memory."""
    moe_route(case)


def moe_routing_upload(case):
    """Bits copied from the host; a longer destination is padded as moe_align_blocks pads."""
    padding = {"sorted_ids": case.param("n_pairs"), "block_expert": -1}
    for name in ("experts", "weights", "sorted_ids", "block_expert", "n_padded"):
        if name not in case:
            continue
        source = case["from_" + name].bits
        target = case[name]
        if name in padding:
            target.store_ints(padding[name])
        target.bits[:source.shape[0]] = source
