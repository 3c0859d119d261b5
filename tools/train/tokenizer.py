"""Byte-level BPE with qwen2's pre-tokeniser: training of the vocabulary, and a fast encoder for the corpus.

    python3 tokenizer.py --out DIR     trains on the corpus, writes tokenizer.json and tokenizer_config.json

The corpus is ASCII; for ASCII the scanner below splits exactly as qwen2's pattern does. Digits stay single tokens.
"""

import argparse
import collections
import json
import pathlib
import re

from corpus import SPECIALS, Writer

QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ASCII_SCANNER = re.compile(
    QWEN2_PATTERN.replace(r"\p{L}", "A-Za-z")
    .replace(r"\p{N}", "0-9")
    .replace(r"]?A-Za-z+", "]?[A-Za-z]+")
    .replace("|0-9|", "|[0-9]|")
)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_alphabet():
    """The printable character that stands for each byte in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {}, 0
    for byte in range(256):
        if byte in plain:
            table[byte] = chr(byte)
        else:
            table[byte] = chr(256 + extra)
            extra += 1
    return table


class Tokenizer:
    def __init__(self, path):
        data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        self.vocab = dict(data["model"]["vocab"])
        self.specials = {t["content"]: t["id"] for t in data["added_tokens"]}
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(data["model"]["merges"])}
        self.alphabet = byte_alphabet()
        byte_of = {c: b for b, c in self.alphabet.items()}
        self.bytes_of = {
            i: bytes(byte_of[c] for c in token) for token, i in self.vocab.items() if token not in self.specials
        }
        self.size = len(set(self.vocab.values()) | set(self.specials.values()))
        self.words = {}

    def _word(self, word):
        parts = [self.alphabet[b] for b in word.encode()]
        while len(parts) > 1:
            rank, at = min((self.ranks.get((a, b), 1 << 30), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
            if rank == 1 << 30:
                break
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return [self.vocab[p] for p in parts]

    def encode(self, text):
        """Token ids of one segment: a special token's name alone, or plain ASCII text."""
        if text in self.specials:
            return [self.specials[text]]
        words, out = self.words, []
        for word in ASCII_SCANNER.findall(text):
            ids = words.get(word)
            if ids is None:
                ids = self._word(word)
                if len(words) < 100_000:
                    words[word] = ids
            out += ids
        return out

    def decode(self, ids):
        names = {i: name.encode() for name, i in self.specials.items()}
        return b"".join(names.get(i) or self.bytes_of[i] for i in ids).decode("utf-8", "replace")


def train(counts, merges):
    """The most frequent adjacent pair, again and again. Ties go to the pair that sorts first: the result is fixed."""
    alphabet = byte_alphabet()
    words = [([alphabet[b] for b in word.encode()], n) for word, n in sorted(counts.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, (parts, n) in enumerate(words):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += n
            where[pair].add(i)
    result = []
    while len(result) < merges:
        best = min(((-n, pair) for pair, n in pairs.items() if n > 0), default=None)
        if best is None:
            raise SystemExit(f"the corpus has only {len(result)} merges, {merges} are wanted")
        a, b = best[1]
        result.append((a, b))
        for i in sorted(where[(a, b)]):
            parts, n = words[i]
            for pair in zip(parts, parts[1:]):
                pairs[pair] -= n
            at = 0
            while at + 1 < len(parts):
                if parts[at] == a and parts[at + 1] == b:
                    parts[at : at + 2] = [a + b]
                at += 1
            for pair in zip(parts, parts[1:]):
                pairs[pair] += n
                where[pair].add(i)
        del pairs[(a, b)]
    return result


def write(directory, merges, size):
    alphabet = byte_alphabet()
    tokens = [alphabet[b] for b in range(256)] + [a + b for a, b in merges]
    vocab = {token: i for i, token in enumerate(tokens)}
    added = [
        {
            "id": len(tokens) + i,
            "content": name,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i, name in enumerate(SPECIALS)
    ]
    assert len(vocab) + len(added) == size
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    data = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": QWEN2_PATTERN}, "behavior": "Isolated", "invert": False},
                byte_level,
            ],
        },
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(m) for m in merges],
        },
    }
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": SPECIALS[2],
        "pad_token": SPECIALS[0],
        "unk_token": None,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
        "errors": "replace",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "chat_template": CHAT_TEMPLATE,
        "additional_special_tokens": list(SPECIALS[1:]),
        "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in added},
    }
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="directory for tokenizer.json and tokenizer_config.json")
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--documents", type=int, default=40_000)
    args = parser.parse_args()
    writer, counts = Writer("tokenizer"), collections.Counter()
    for _ in range(args.documents):
        for text, _, _ in writer.document():
            if text not in SPECIALS:
                counts.update(ASCII_SCANNER.findall(text))
    merges = train(counts, args.size - 256 - len(SPECIALS))
    write(args.out, merges, args.size)
    print(f"{len(counts)} words, {len(merges)} merges, the last is {merges[-1]}")


if __name__ == "__main__":
    main()
