#!/usr/bin/env python3
"""One MoE layer of Qwen3-30B-A3B on a GPU: conclave's, and transformers' on the same machine in the same run.

`conclave bench --kernels` does ours, from router logits to the next norm, with Q4_K experts, and checks its output
before it times anything. transformers' is Qwen3MoeSparseMoeBlock with experts by grouped_mm in bf16, router included,
norm and residual left out; its output is checked against its own plain loop over experts. Both are replayed as CUDA
graphs over several layers of weights, more than the caches hold. Without PyTorch, transformers (5 or later) or a GPU
that column stays empty. vLLM's figures are of its Triton kernel in bf16, products and sum alone, on an H200 on
another day.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = "qwen3-30b-a3b"
TOKENS = (1, 8, 32, 64, 128, 512, 2048, 8192)
# tokens: us with Q4_K and with Q6_K in `down`
WANTED = {1: (9.5, 10.5), 8: (42, 48), 32: (92, 105), 64: (102, 117), 512: (160, 175), 2048: (390, 390), 8192: (1300, 1300)}
VLLM = {1: 29.9, 8: 128, 32: 247, 64: 295, 128: 295, 512: 325, 2048: 487, 8192: 1356}


def ours(program, device):
    """us by (tokens, format of down)."""
    command = [program, "bench", "--kernels", "--device", device, "--model", MODEL, "--skew", "uniform", "--json"]
    command += ["--tokens", ",".join(map(str, TOKENS))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"moe_layer.py: {' '.join(command)} failed")
    rows = map(json.loads, done.stdout.splitlines())
    return {(row["tokens"], row["down"]): row["us"] for row in rows}


def transformers_layers(torch, count):
    """Layers of random bf16 weights whose experts go by grouped_mm."""
    from transformers import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    config = Qwen3MoeConfig(hidden_size=2048, moe_intermediate_size=768, num_experts=128, num_experts_per_tok=8)
    config._experts_implementation = "grouped_mm"
    layers = []
    for _ in range(count):
        with torch.device("cuda"):
            layer = Qwen3MoeSparseMoeBlock(config).to(torch.bfloat16)
        for weight in layer.parameters():
            torch.nn.init.normal_(weight, std=0.02)
        layers.append(layer.eval())
    return layers


def check(torch, layer, rows):
    """grouped_mm and the plain loop over experts agree."""
    config = layer.experts.config
    fast = layer(rows).float()
    config._experts_implementation = "eager"
    plain = layer(rows).float()
    config._experts_implementation = "grouped_mm"
    error = ((fast - plain).square().sum() / plain.square().sum()).item()
    if not error < 1e-4:
        sys.exit(f"moe_layer.py: transformers' grouped_mm is off by {error:.1e} of its own plain loop")


def replay_us(torch, layers, rows, replays):
    """Median us of a layer, all layers one after another in a graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for layer in layers:
            layer(rows)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in layers:
            layer(rows)
    times = []
    for _ in range(replays + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000 / len(layers))
    return statistics.median(times[1:])


def transformers_us():
    """us by tokens, and what was measured; nothing where the machine cannot."""
    try:
        import torch
        import transformers

        if not torch.cuda.is_available():
            return {}, "no GPU for PyTorch"
        layers = transformers_layers(torch, 4)
    except (ImportError, AttributeError, TypeError) as missing:
        return {}, f"not measured: {missing}"
    found = {}
    with torch.inference_mode():
        for tokens in TOKENS:
            rows = torch.randn(1, tokens, 2048, device="cuda", dtype=torch.bfloat16)
            if tokens <= 64:
                check(torch, layers[0], rows)
            found[tokens] = replay_us(torch, layers, rows, 20)
    return found, f"transformers {transformers.__version__}, PyTorch {torch.__version__}"


def cell(value, width, digits):
    return "-".rjust(width) if value is None else f"{value:{width},.{digits}f}"


def main():
    parser = argparse.ArgumentParser(prog="moe_layer.py", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--conclave", default=str(ROOT / "build/cuda/bin/conclave"), help="(%(default)s)")
    parser.add_argument("--device", default="cuda", help="(%(default)s)")
    given = parser.parse_args()
    mine = ours(given.conclave, given.device)
    theirs, what = transformers_us()
    print(what)
    print(f"{'tokens':>6}{'down':>6}{'us':>10}{'wanted':>9}{'transformers':>14}{'x':>7}{'vLLM':>9}{'x':>7}")
    for (tokens, down), us in sorted(mine.items()):
        wanted = WANTED.get(tokens, (None, None))[down == "q6_k"]
        peer, vllm = theirs.get(tokens), VLLM.get(tokens)
        print(
            f"{tokens:>6}{down:>6}{cell(us, 10, 1)}{cell(wanted, 9, 1)}{cell(peer, 14, 1)}{cell(peer and peer / us, 7, 2)}"
            f"{cell(vllm, 9, 1)}{cell(vllm and vllm / us, 7, 2)}"
        )


if __name__ == "__main__":
    main()
