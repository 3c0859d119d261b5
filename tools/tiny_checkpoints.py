#!/usr/bin/env python3
"""Makes small checkpoints with random weights, one for each kind of model that `conclave convert` knows.

    tiny_checkpoints.py OUT [--dtype float32|float16|bfloat16] [KIND ...]

Needs transformers, tokenizers and torch; never needed to build or run conclave. The same seeds give the same weights.
A directory OUT/KIND is what transformers' save_pretrained writes, with a tokenizer trained on a few lines:

    qwen3moe        byte-level BPE cut as Qwen cuts, a vocabulary with unused ids at its end, shards
    qwen3moe-tied   the same with the head tied to the embedding
    qwen3moe-fused  with all experts of a layer in one tensor, as newer versions of transformers hold them
    qwen2moe        biases and a shared expert; byte-level BPE
    mixtral         BPE over characters with a fallback to bytes, as SentencePiece has it
    olmoe           byte-level BPE cut as GPT-2 cuts
"""

import argparse
import json
import os
import sys

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (MixtralConfig, MixtralForCausalLM, OlmoeConfig, OlmoeForCausalLM, PreTrainedTokenizerFast,
                          Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

TEXT = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind.",
    "one two three four five six seven eight nine ten 1 2 3 10 20 300 4000",
    "Wörter mit Umlauten, слова, 言葉 and emoji 🙂 in one line.",
    "def add(a, b):\n    return a + b\n",
] * 4
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
         r"\s+(?!\S)|\s+")
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
SIZES = dict(hidden_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=512)


def byte_level(cut_as_qwen):
    tokenizer = Tokenizer(models.BPE())
    if cut_as_qwen:
        tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                                   chat_template=TEMPLATE)


def sentencepiece_like():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=480, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    saved = json.loads(tokenizer.to_str())  # the bytes are ordinary entries, not special tokens
    saved["added_tokens"] = saved["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(saved))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
                                   add_bos_token=True, add_eos_token=False)


def randomize(model, seed):
    """Weights that tell any two of them apart: norms near 1, the rest wide enough to matter."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.1 * noise if parameter.ndim == 1 and "norm" in name else 0.2 * noise)


def fuse(folder):
    """One tensor for all experts: gate above up in the rows of each."""
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    layers = sorted({name.split(".experts.")[0] for name in tensors if ".experts." in name})
    for layer in layers:
        if layer + ".experts.gate_up_proj" in tensors:
            continue
        n = sum(1 for name in tensors if name.startswith(layer + ".experts.") and name.endswith("gate_proj.weight"))
        part = lambda kind: [tensors.pop(f"{layer}.experts.{i}.{kind}.weight") for i in range(n)]
        gate, up, down = part("gate_proj"), part("up_proj"), part("down_proj")
        tensors[layer + ".experts.gate_up_proj"] = torch.stack([torch.cat(pair) for pair in zip(gate, up)])
        tensors[layer + ".experts.down_proj"] = torch.stack(down)
    save_file(tensors, path, metadata={"format": "pt"})


def qwen3moe(tied=False):
    tokenizer = byte_level(cut_as_qwen=True)
    config = Qwen3MoeConfig(**SIZES, vocab_size=416, head_dim=32, intermediate_size=96, moe_intermediate_size=48,
                            num_experts=6, num_experts_per_tok=3, norm_topk_prob=True, tie_word_embeddings=tied,
                            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
                            eos_token_id=tokenizer.eos_token_id)
    return Qwen3MoeForCausalLM(config), tokenizer


def qwen2moe():
    tokenizer = byte_level(cut_as_qwen=True)
    config = Qwen2MoeConfig(**SIZES, vocab_size=len(tokenizer), intermediate_size=96, moe_intermediate_size=32,
                            shared_expert_intermediate_size=96, num_experts=5, num_experts_per_tok=2,
                            norm_topk_prob=False)
    return Qwen2MoeForCausalLM(config), tokenizer


def mixtral():
    tokenizer = sentencepiece_like()
    config = MixtralConfig(**SIZES, vocab_size=len(tokenizer), intermediate_size=96, num_local_experts=8,
                           num_experts_per_tok=2)
    return MixtralForCausalLM(config), tokenizer


def olmoe():
    tokenizer = byte_level(cut_as_qwen=False)
    config = OlmoeConfig(**SIZES, vocab_size=len(tokenizer), intermediate_size=64, num_experts=8,
                         num_experts_per_tok=2, eos_token_id=tokenizer.eos_token_id,
                         pad_token_id=tokenizer.pad_token_id)
    return OlmoeForCausalLM(config), tokenizer


KINDS = {
    "qwen3moe": (qwen3moe, {"max_shard_size": "200KB"}),
    "qwen3moe-tied": (lambda: qwen3moe(tied=True), {}),
    "qwen3moe-fused": (qwen3moe, {}),
    "qwen2moe": (qwen2moe, {}),
    "mixtral": (mixtral, {}),
    "olmoe": (olmoe, {}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="those alone: " + ", ".join(KINDS))
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    arguments = parser.parse_args()
    for kind in arguments.kinds or KINDS:
        if kind not in KINDS:
            sys.exit(f"error: there is no kind '{kind}'; there are: {', '.join(KINDS)}")
        make, options = KINDS[kind]
        folder = os.path.join(arguments.out, kind)
        model, tokenizer = make()
        randomize(model, seed=1000 + list(KINDS).index(kind))
        model.to(getattr(torch, arguments.dtype)).save_pretrained(folder, **options)
        tokenizer.save_pretrained(folder)
        if kind.endswith("-fused"):
            fuse(folder)
        print(folder)


if __name__ == "__main__":
    main()
