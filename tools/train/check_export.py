"""Checks that exported files mean the same in transformers as in training: logits in f32, and the tokenizer's ids.

python3 check_export.py [DIR]      DIR: an exported model; without it, random weights
"""

import json
import pathlib
import sys
import tempfile

import torch
from transformers import AutoTokenizer, Qwen3MoeForCausalLM

from corpus import Writer
from model import Config, Model, export, hf_tensors
from tokenizer import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent


def load(directory):
    """Our model from exported shards, read without transformers."""
    config = json.loads((directory / "config.json").read_text())
    model = Model(Config(vocab=config["vocab_size"], layers=config["num_hidden_layers"]))
    from safetensors.torch import load_file

    tensors = {}
    for file in sorted(directory.glob("*.safetensors")):
        tensors.update(load_file(file))
    with torch.no_grad():
        for name, t in hf_tensors(model):
            t.copy_(tensors.pop(name).float())
    assert not tensors, f"tensors nobody asked for: {list(tensors)[:4]}"
    return model


def main():
    tokenizer = Tokenizer(HERE / "tokenizer.json")
    with tempfile.TemporaryDirectory() as scratch:
        if len(sys.argv) > 1:
            directory = pathlib.Path(sys.argv[1])
            model = load(directory)
        else:
            torch.manual_seed(0)
            model = Model(Config(vocab=tokenizer.size))
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(4.0) if p.dim() == 2 else p.add_(0.3 * torch.randn_like(p))
            directory = pathlib.Path(scratch)
            export(model, directory, tokenizer, torch.float32)
            for name in ("tokenizer.json", "tokenizer_config.json"):
                (directory / name).write_bytes((HERE / name).read_bytes())
        theirs = Qwen3MoeForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        ids_of = AutoTokenizer.from_pretrained(directory)
        writer, worst = Writer("check"), 0.0
        for _ in range(20):
            document = writer.document()
            ids = [i for text, _, _ in document for i in tokenizer.encode(text)]
            text = "".join(t for t, _, _ in document)
            assert ids_of(text)["input_ids"] == ids, "token ids differ"
            x = torch.tensor([ids[:300]])
            with torch.no_grad():
                a, b = model(x)[0], theirs(x).logits
            worst = max(worst, float((a - b).pow(2).sum() / b.pow(2).sum()))
        chat = [{"role": "user", "content": "Hi"}]
        print(repr(ids_of.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)))
        print(f"worst NMSE of 20 documents: {worst:.3g}")
        sys.exit(0 if worst < 1e-9 else 1)


if __name__ == "__main__":
    main()
