"""The combines and moe_ffn, the sequence that ends in one."""

import numpy as np

from . import grouping, products, routing
from .transformer import rms_norm_rows


def combined(case, tokens):
    """The weighted sum of the first `tokens` tokens in f64: slots in order, then the shared expert's output."""
    rows = case["rows"]
    weights = case["weights"].f64(slice(tokens))
    top_k = weights.shape[1]
    packed = "pair_row" in case
    if packed:
        place = case["pair_row"].ints()[:tokens]
        valid = (place >= 0) & (place < rows.dims[0])
    else:
        experts = case["experts"].ints()[:tokens]
        valid = (experts >= 0) & (experts < case.param("n_experts"))
    total = np.zeros((tokens, rows.dims[-1]))
    for slot in range(top_k):
        token = np.flatnonzero(valid[:, slot])
        row = rows.f64(place[token, slot]) if packed else rows.f64((token, slot))
        total[token] += weights[token, slot, None] * row
    if "shared" in case:
        total = total + case["shared"].f64(slice(tokens))
    return total


def moe_combine(case):
    """Each token's expert outputs, weighted and summed."""
    tokens = case.live(case["out"].dims[0])
    case["out"].store(combined(case, tokens), slice(tokens))


def moe_combine_residual(case):
    """The sum, rounded to f32, added to the residual in place."""
    residual = case["residual"]
    tokens = case.live(residual.dims[0])
    total = products.to_f32(combined(case, tokens))
    residual.store(residual.f64(slice(tokens)) + total, slice(tokens))


def moe_combine_residual_norm(case):
    """moe_combine_residual, then rms_norm of the residual as stored."""
    moe_combine_residual(case)
    residual = case["residual"]
    tokens = case.live(residual.dims[0])
    normed = rms_norm_rows(residual.f64(slice(tokens)), case["norm_weight"].f64(), case.real("eps"))
    case["normed"].store(normed, slice(tokens))


def moe_ffn(case):
    """Route, group, gate and up, down, the shared expert, and the combine, over the case's own scratch."""
    rule = {name: case.param(name) for name in routing.RULE}
    act = {"act": case.param("act")}
    n_experts = {"n_experts": case["logits"].dims[1]}

    routing.moe_route(case.part(
        "moe_route", rule, logits="logits", bias="bias", expert_scale="expert_scale", live="live", experts="experts",
        weights="weights", no_finite="no_finite", counts="counts"))
    grouping.moe_group(case.part(
        "moe_group", n_experts, experts="experts", live="live", offsets="offsets", row_pair="row_pair",
        pair_row="pair_row"))
    products.moe_gate_up(case.part(
        "moe_gate_up", {"top_k": rule["top_k"], **act}, x="x", gate="gate", up="up", offsets="offsets",
        row_pair="row_pair", out="hidden"))
    products.moe_down(case.part("moe_down", {}, x="hidden", down="down", offsets="offsets", out="expert_out"))

    combine = {"rows": "expert_out", "weights": "weights", "pair_row": "pair_row", "live": "live",
               "residual": "residual"}
    if "shared_gate" in case:
        products.moe_shared_expert(case.part(
            "moe_shared_expert", act, x="x", shared_gate="shared_gate", shared_up="shared_up",
            shared_down="shared_down", shared_gate_inp="shared_gate_inp", live="live", shared_hidden="shared_hidden",
            out="shared_out"))
        combine["shared"] = "shared_out"
    if "normed" in case:
        moe_combine_residual_norm(case.part(
            "moe_combine_residual_norm", {"eps": case.param("eps")}, norm_weight="norm_weight", normed="normed",
            **combine))
    else:
        moe_combine_residual(case.part("moe_combine_residual", {}, **combine))
