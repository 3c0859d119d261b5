#!/usr/bin/env python3
"""Qwen3-30B-A3B's shape on an H200: every row of the table that this project holds itself to, the peers' figures beside.

`conclave bench` does the work, and checks its output before it times anything. The peers' figures are of the same file
(48 layers, Q4_K_M, 17.28 GiB, random weights) on such a GPU, measured on another day: llama.cpp and sparkinfer of
2026-08-22. Python's standard library is all it needs.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# work, tokens, batch, depth: wanted, llama.cpp, sparkinfer (tokens/s; None: not known)
ROWS = [
    ("decode", 128, 1, 0, 1000, 301, 401),
    ("decode", 128, 1, 4096, 850, 266, 337),
    ("decode", 128, 1, 32768, 500, 215, None),
    ("decode", 128, 2, 0, None, 454, None),
    ("decode", 128, 4, 0, None, 661, None),
    ("decode", 128, 8, 0, 3000, 877, None),
    ("decode", 128, 16, 0, None, 913, None),
    ("decode", 128, 32, 0, 5500, 1242, None),
    ("decode", 128, 64, 0, 9500, 1631, None),
    ("prefill", 128, 1, 0, 128 / 0.009, None, None),  # the first token after 9 ms
    ("prefill", 512, 1, 0, 38000, 9490, 420),
    ("prefill", 2048, 1, 0, None, 12114, None),
    ("prefill", 8192, 1, 0, 45000, 12010, None),
]


def measured(program, model, device, repetitions, deep):
    """Tokens per second by (work, tokens, batch, depth)."""
    runs = [
        ["-p", "128,512,2048,8192", "-n", "128", "-b", "1,2,4,8,16,32,64"],
        ["-p", "0", "-n", "128", "-d", "4096,32768"],
    ]
    found = {}
    for extra in runs if deep else runs[:1]:
        command = [program, "bench", "-m", model, "--device", device, "--reps", str(repetitions), "--json", *extra]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"h200.py: {' '.join(command)} failed")
        for line in done.stdout.splitlines():
            row = json.loads(line)
            found[row["work"], row["tokens"], row["batch"], row["depth"]] = row["tokens_per_second"]
    return found


def cell(value, width, digits=0):
    return "-".rjust(width) if value is None else f"{value:{width},.{digits}f}"


def main():
    parser = argparse.ArgumentParser(prog="h200.py", description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", required=True, metavar="FILE", help="the GGUF file")
    parser.add_argument("--conclave", default=str(ROOT / "build/cuda/bin/conclave"), help="(%(default)s)")
    parser.add_argument("--device", default="cuda", help="(%(default)s)")
    parser.add_argument("--reps", type=int, default=3, help="how often each row is timed (%(default)s)")
    parser.add_argument("--shallow", action="store_true", help="without the long contexts, which take longest")
    given = parser.parse_args()
    found = measured(given.conclave, given.model, given.device, given.reps, not given.shallow)
    print(
        f"{'work':<8}{'tokens':>7}{'batch':>6}{'after':>7}{'tokens/s':>10}{'wanted':>9}{'of it':>7}"
        f"{'llama.cpp':>11}{'ratio':>7}{'sparkinfer':>12}"
    )
    for work, tokens, batch, depth, wanted, llama, spark in ROWS:
        speed = found.get((work, tokens, batch, depth))
        if speed is None:
            continue
        print(
            f"{work:<8}{tokens:>7}{batch:>6}{depth:>7}{cell(speed, 10)}{cell(wanted, 9)}"
            f"{cell(wanted and speed / wanted, 7, 2)}{cell(llama, 11)}{cell(llama and speed / llama, 7, 2)}{cell(spark, 12)}"
        )


if __name__ == "__main__":
    main()
