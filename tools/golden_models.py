#!/usr/bin/env python3
"""Makes tests/golden/models: tiny checkpoints of every family, and the logits that transformers computes with them.

    golden_models.py [OUT]

Needs torch and transformers; never needed to build or run conclave. The same versions on the same machine give the same
bytes. A directory OUT/CASE is a checkpoint without a tokenizer (config.json, model.safetensors) and logits.bin
(tools/golden/logits.py): f32 logits of every position of a few sequences of tokens. Weights are stored in 16 bits (one
case: 32), and the logits are those of the stored weights, computed in f32.

The cases cover what a family may vary: query heads per key head, heads that are not d_model / n_heads wide, expert
counts that are no power of two, all experts chosen or one, weights renormalised or not, tied heads, biases, the base
and the scaling of rope.
"""

import argparse
import pathlib
import shutil

import numpy as np
import torch
import transformers
from transformers import MixtralForCausalLM, OlmoeForCausalLM, Qwen2MoeForCausalLM, Qwen3MoeForCausalLM

from golden.logits import Prompt, nmse, write_logits

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden" / "models"
LENGTHS = (1, 7, 67)  # the last one passes a tile of attention
SIZES = dict(vocab_size=48, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=128, initializer_range=0.02)


def rope(theta, **scaling):
    return {"rope_type": "default", "rope_theta": theta, **scaling}


QWEN3 = dict(SIZES, head_dim=16, intermediate_size=64, moe_intermediate_size=24, num_experts=8, num_experts_per_tok=2,
             norm_topk_prob=True, tie_word_embeddings=False, rope_parameters=rope(1e6))
QWEN2 = dict(SIZES, intermediate_size=64, moe_intermediate_size=20, shared_expert_intermediate_size=40, num_experts=6,
             num_experts_per_tok=4, norm_topk_prob=False, rope_parameters=rope(1e4))
MIXTRAL = dict(SIZES, intermediate_size=24, num_local_experts=8, num_experts_per_tok=2, sliding_window=None,
               rope_parameters=rope(1e6))
OLMOE = dict(SIZES, num_key_value_heads=4, intermediate_size=12, num_experts=16, num_experts_per_tok=8,
             norm_topk_prob=False, eos_token_id=None, rope_parameters=rope(1e4))

# name: (class, members of config.json, how the weights are stored)
CASES = {
    "qwen3moe": (Qwen3MoeForCausalLM, QWEN3, torch.bfloat16),
    "qwen3moe_plain_weights": (Qwen3MoeForCausalLM, dict(
        QWEN3, hidden_size=40, num_attention_heads=3, num_key_value_heads=1, num_experts=7, num_experts_per_tok=3,
        norm_topk_prob=False, tie_word_embeddings=True, rope_parameters=rope(1e4)), torch.float16),
    "qwen3moe_all_experts": (Qwen3MoeForCausalLM, dict(
        QWEN3, num_hidden_layers=1, num_experts=5, num_experts_per_tok=5, rms_norm_eps=1e-5), torch.float32),
    "qwen3moe_linear": (Qwen3MoeForCausalLM, dict(
        QWEN3, num_experts=4, rope_parameters=rope(1e4, rope_type="linear", factor=4.0)), torch.float16),
    "qwen3moe_yarn": (Qwen3MoeForCausalLM, dict(
        QWEN3, num_experts=4, rope_parameters=rope(1e4, rope_type="yarn", factor=4.0,
                                                   original_max_position_embeddings=32)), torch.float16),
    "qwen2moe": (Qwen2MoeForCausalLM, QWEN2, torch.float16),
    "qwen2moe_one_expert": (Qwen2MoeForCausalLM, dict(
        QWEN2, num_key_value_heads=4, qkv_bias=False, num_experts=9, num_experts_per_tok=1), torch.bfloat16),
    "qwen2moe_renormalized": (Qwen2MoeForCausalLM, dict(
        QWEN2, num_key_value_heads=1, norm_topk_prob=True, num_experts_per_tok=3), torch.float16),
    "mixtral": (MixtralForCausalLM, MIXTRAL, torch.bfloat16),
    "mixtral_tied": (MixtralForCausalLM, dict(
        MIXTRAL, num_attention_heads=6, num_key_value_heads=1, head_dim=10, num_local_experts=3,
        tie_word_embeddings=True, rope_parameters=rope(1e4)), torch.float16),
    "mixtral_llama3_rope": (MixtralForCausalLM, dict(
        MIXTRAL, num_key_value_heads=4, num_local_experts=4, num_experts_per_tok=3,
        rope_parameters=rope(5e5, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=32)), torch.float16),
    "olmoe": (OlmoeForCausalLM, OLMOE, torch.bfloat16),
    "olmoe_renormalized": (OlmoeForCausalLM, dict(
        OLMOE, num_key_value_heads=2, num_experts=11, num_experts_per_tok=3, norm_topk_prob=True), torch.float16),
}  # fmt: skip


def make_model(kind, members, dtype, seed):
    """Random weights that a small mistake would show with: norms near 1, matrices that keep activations near 1."""
    config = kind.config_class(**members, attn_implementation="eager", experts_implementation="eager")
    model = kind(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=generator)
            if "norm" in name:
                noise = 1 + 0.2 * noise
            elif weight.dim() > 1:
                noise *= 1.5 / weight.shape[-1] ** 0.5
            weight.copy_(noise.to(dtype))
    return model


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def make_case(folder, name, seed):
    kind, members, dtype = CASES[name]
    model = make_model(kind, members, dtype, seed)
    rng = np.random.default_rng(seed)
    prompts = []
    for length in LENGTHS:
        ids = rng.integers(0, members["vocab_size"], length).tolist()
        prompts.append(Prompt(ids, list(range(length)), logits_of(model, ids)))
        # A choice of experts that hangs on the last bits would make the golden answer a matter of luck.
        exact = logits_of(model.double(), ids)
        error = nmse(prompts[-1].logits, exact)
        model.float()
        assert error < 1e-11, f"{name}: {error} between f32 and f64: try another seed"
    model.to(dtype).save_pretrained(folder)
    for extra in folder.iterdir():
        if extra.name not in ("config.json", "model.safetensors"):
            extra.unlink()
    write_logits(folder / "logits.bin", prompts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=pathlib.Path, default=GOLDEN)
    out = parser.parse_args().out
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)  # one order of every sum
    for seed, name in enumerate(CASES):
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        make_case(folder, name, 100 + seed)
        print(name, sum(file.stat().st_size for file in folder.iterdir()))


if __name__ == "__main__":
    main()
