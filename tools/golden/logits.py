"""The file format of golden logits, little endian:

    4 bytes "CLG1", u32 n_vocab, u32 n_prompts, and for each prompt
    u32 n_text, the text in UTF-8 (may be empty: ids alone),
    u32 n_tokens, i32 ids [n_tokens],
    u32 n_rows, u32 positions [n_rows], f32 logits [n_rows, n_vocab] at those positions.

tests/support/golden_logits.h reads it.
"""

import dataclasses
import struct

import numpy as np

MAGIC = b"CLG1"


@dataclasses.dataclass
class Prompt:
    ids: list
    positions: list
    logits: np.ndarray  # f32 [len(positions), n_vocab]
    text: str = ""


def write_logits(path, prompts):
    n_vocab = prompts[0].logits.shape[1]
    with open(path, "wb") as file:
        file.write(MAGIC + struct.pack("<II", n_vocab, len(prompts)))
        for prompt in prompts:
            text = prompt.text.encode()
            rows = np.ascontiguousarray(prompt.logits, "<f4")
            assert rows.shape == (len(prompt.positions), n_vocab)
            file.write(struct.pack("<I", len(text)) + text)
            file.write(struct.pack("<I", len(prompt.ids)) + np.array(prompt.ids, "<i4").tobytes())
            file.write(struct.pack("<I", len(prompt.positions)) + np.array(prompt.positions, "<u4").tobytes())
            file.write(rows.tobytes())


def nmse(got, want):
    """Mean squared error over mean square."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    return float(((got - want) ** 2).sum() / (want**2).sum())
