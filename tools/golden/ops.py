"""The ops by name, and how a case is run."""

import numpy as np

from . import combine, grouping, products, routing, transformer
from .exchange import GoldenError

OPS = {function.__name__: function for function in (
    routing.moe_route, routing.moe_route_to_host, routing.moe_routing_upload,
    grouping.moe_group, grouping.moe_pairs_by_token, grouping.moe_expert_ids, grouping.moe_align_blocks,
    products.moe_matmul, products.moe_gate_up, products.silu_mul, products.moe_down, products.moe_shared_expert,
    combine.moe_combine, combine.moe_combine_residual, combine.moe_combine_residual_norm, combine.moe_ffn,
    transformer.embed, transformer.rms_norm, products.matmul, transformer.rope, transformer.kv_write,
    transformer.attention, transformer.add, transformer.softmax, transformer.argmax, transformer.top_k)}


def run_case(case):
    """Writes the results into the case's tensors. Any failure names the op and the case."""
    if case.op not in OPS:
        raise GoldenError(f"unknown op {case.op} (case {case.name})")
    try:
        with np.errstate(all="ignore"):  # infinities and NaN are results here
            OPS[case.op](case)
    except GoldenError as error:
        raise GoldenError(f"{case.op} {case.name}: {error}") from error
    except (ValueError, LookupError, TypeError, OverflowError, ZeroDivisionError) as error:
        text = " ".join(str(error).split())
        raise GoldenError(f"{case.op} {case.name}: {type(error).__name__}: {text}") from error
