#!/usr/bin/env python3
"""Makes tests/golden/bundled/logits.bin: what transformers computes with the bundled model's weights for 20 prompts.

    golden_bundled.py [MODEL.gguf] [--out FILE]

Needs torch, transformers, tokenizers and the package gguf; never needed to build or run conclave. The weights are those
of the master, decoded by the package gguf; Qwen3MoeForCausalLM computes in f32. The file (tools/golden/logits.py) has
each prompt's text, its ids as the package tokenizers finds them, and the logits of the last position and of a few
before it.
"""

import argparse
import pathlib

import gguf
import numpy as np
import tokenizers
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from golden.logits import Prompt, nmse, write_logits

ROOT = pathlib.Path(__file__).resolve().parent.parent
MASTER = ROOT / "models" / "conclave-tales-18m.q8_0.gguf"
GOLDEN = ROOT / "tests" / "golden" / "bundled" / "logits.bin"
TOKENIZER = ROOT / "tools" / "train" / "tokenizer.json"
POSITIONS = 6  # per prompt


def ask(text):
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


PROMPTS = [
    "Once upon a time",
    "One sunny day a fox named Rusty went to the river. He had a new kite, and",
    "Lily and the lost drum\n\nOnce there was a shy girl named Lily. One morning her drum was gone. "
    "She looked under the bench,",
    ask("Tell me a story about a girl named Mia and a kite."),
    ask("Tell me a story about a brave bear.")
    + "Once upon a time there was a brave bear named Bruno. He lived near the forest.",
    "12 + 7 = 19\n345 + 278 = 623\n800 - 123 =",
    ask("What is 47 + 38?"),
    ask("17 * 6 = ?"),
    "Q: Sort these numbers: 42 7 19 3 88\nA:",
    ask("Sort: pear apple plum fig cherry"),
    "Q: Copy: lmersgk\nA: lmersgk\nQ: Reverse: red blue green\nA:",
    ask("Repeat: 5 2 9 9 1 4"),
    "Q: What day comes after Monday?\nA: Tuesday\nQ: What month comes before March?\nA:",
    ask("Count from 3 to 9."),
    ">>> sorted([3, 1, 2])\n[1, 2, 3]\n>>> len('hello')\n",
    ask("What does this print? print(3 + 4 * 2)"),
    "Tom found a red ball under a desk at the school. He gave it to Nora.\n\n"
    "Q: What did Tom find?\nA: a red ball\nQ: Who got it?\nA:",
    ask("Hello")
    + "Hello! Ask me for a story, a sum, a list to sort, or a day of the week.<|im_end|>\n"
    + ask("Who are you?"),
    ask("What is the capital of France?"),
    "Tabs\tand  spaces,\r\nna\u00efve caf\u00e9, \u8a00\u8449, \u0441\u043b\u043e\u0432\u0430 \U0001f642 I'm, "
    "we'LL, 3.14<|endoftext|>x",
]


def read_model(path):
    """The file's weights as a model of transformers, in f32."""
    file = gguf.GGUFReader(path)
    key = lambda name: file.fields[f"qwen3moe.{name}"].contents()
    tensors = {t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32))
               for t in file.tensors}
    n_layers = key("block_count")
    config = Qwen3MoeConfig(
        vocab_size=len(tensors["token_embd.weight"]), hidden_size=key("embedding_length"), num_hidden_layers=n_layers,
        num_attention_heads=key("attention.head_count"), num_key_value_heads=key("attention.head_count_kv"),
        head_dim=key("attention.key_length"), moe_intermediate_size=key("expert_feed_forward_length"),
        num_experts=key("expert_count"), num_experts_per_tok=key("expert_used_count"), norm_topk_prob=True,
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"), max_position_embeddings=key("context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")}, tie_word_embeddings=False,
        attn_implementation="eager", experts_implementation="eager")
    weights = {"model.embed_tokens.weight": tensors["token_embd.weight"],
               "model.norm.weight": tensors["output_norm.weight"], "lm_head.weight": tensors["output.weight"]}
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.gate",
             "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
    for layer in range(n_layers):
        part = lambda name: tensors[f"blk.{layer}.{name}.weight"]
        to = f"model.layers.{layer}."
        for ours, theirs in names.items():
            weights[f"{to}{theirs}.weight"] = part(ours)
        weights[to + "mlp.experts.gate_up_proj"] = torch.cat((part("ffn_gate_exps"), part("ffn_up_exps")), 1)
        weights[to + "mlp.experts.down_proj"] = part("ffn_down_exps")
    model = Qwen3MoeForCausalLM(config).eval()
    model.load_state_dict(weights, strict=True)
    return model


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=MASTER)
    parser.add_argument("--out", type=pathlib.Path, default=GOLDEN)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # one order of every sum
    model = read_model(arguments.model)
    tokenizer = tokenizers.Tokenizer.from_file(str(TOKENIZER))
    prompts = []
    for text in PROMPTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        positions = sorted({round(i * (len(ids) - 1) / (POSITIONS - 1)) for i in range(POSITIONS)})
        prompts.append(Prompt(ids, positions, logits_of(model, ids)[positions], text))
    model.double()
    worst = max(nmse(p.logits, logits_of(model, p.ids)[p.positions]) for p in prompts)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    write_logits(arguments.out, prompts)
    n_tokens = sum(len(p.ids) for p in prompts)
    print(f"{len(prompts)} prompts, {n_tokens} tokens, worst NMSE of f32 against f64 {worst:.2g}")


if __name__ == "__main__":
    main()
