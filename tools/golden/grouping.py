"""moe_group, moe_pairs_by_token, moe_expert_ids and moe_align_blocks: each a view of one stable sort."""

import numpy as np


class Groups:
    """The valid pairs of live tokens sorted by expert: token order, then slot order, within an expert."""

    def __init__(self, case):
        experts = case["experts"].ints()
        self.n_tokens, self.top_k = experts.shape
        self.n_experts = case.param("n_experts")
        self.n_pairs = experts.size
        flat = experts[:case.live(self.n_tokens)].reshape(-1)
        valid = np.flatnonzero((flat >= 0) & (flat < self.n_experts))
        self.row_pair = valid[np.argsort(flat[valid], kind="stable")]
        self.counts = np.bincount(flat[valid], minlength=self.n_experts)
        self.offsets = np.concatenate(([0], np.cumsum(self.counts)))

    @property
    def n_rows(self):
        return self.row_pair.size

    def pair_row(self):
        """[n_tokens, top_k]: the packed row of each pair, or -1."""
        rows = np.full(self.n_pairs, -1)
        rows[self.row_pair] = np.arange(self.n_rows)
        return rows.reshape(self.n_tokens, self.top_k)


def store_padded(tensor, values, padding):
    """`values` at the front, `padding` in the rest."""
    tensor.store_ints(padding)
    tensor.store_ints(values, slice(len(values)))


def moe_group(case):
    """A routing sorted by expert."""
    groups = Groups(case)
    case["offsets"].store_ints(groups.offsets)
    store_padded(case["row_pair"], groups.row_pair, -1)
    case["pair_row"].store_ints(groups.pair_row())


def moe_pairs_by_token(case):
    """moe_group's view by token."""
    groups = Groups(case)
    case["packed_row"].store_ints(groups.pair_row())
    store_padded(case["row_token"], groups.row_pair // groups.top_k, -1)
    case["offsets"].store_ints(groups.offsets)


def moe_expert_ids(case):
    """A list of pair ids per expert (the rest of its row of ids is left alone), and grids for indirect dispatch."""
    groups = Groups(case)
    for expert, count in enumerate(groups.counts):
        start = groups.offsets[expert]
        case["ids"].store_ints(groups.row_pair[start:start + count], (expert, slice(count)))
    max_rows = int(groups.counts.max(initial=0))
    case["tpe"].store_ints(groups.counts)
    case["max_rows"].store_ints(max_rows)
    nr0, nr1 = case.param("nr0"), case.param("nr1")
    for name, columns in (("grid_gate_up", case.param("d_ff")), ("grid_down", case.param("d_model"))):
        case[name].store_ints([max(1, -(-max_rows // nr1)), -(-columns // nr0), groups.n_experts])


def moe_align_blocks(case):
    """Each expert's rows padded to whole blocks."""
    groups = Groups(case)
    block = case.param("block_size")
    pair_ids = case.param("ids") == "pair"
    sorted_ids, block_expert = [], []
    for expert in np.flatnonzero(groups.counts):
        rows = np.arange(groups.offsets[expert], groups.offsets[expert + 1])
        blocks = -(-rows.size // block)
        padded = np.full(blocks * block, groups.n_pairs)
        padded[:rows.size] = groups.row_pair[rows] if pair_ids else rows
        sorted_ids.append(padded)
        block_expert += [expert] * blocks
    store_padded(case["sorted_ids"], np.concatenate([np.zeros(0, int), *sorted_ids]), groups.n_pairs)
    store_padded(case["block_expert"], block_expert, -1)
    case["n_padded"].store_ints(len(block_expert) * block)
