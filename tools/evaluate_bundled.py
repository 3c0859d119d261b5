#!/usr/bin/env python3
"""Measures the bundled model with conclave in every format: exact answers per task, loss, and divergence from F32.

    evaluate_bundled.py [--conclave PROGRAM] [--formats F32,Q8_0,...] [--questions N] [--rows N] [--jobs N]
                        [--out FILE.json]

Needs NumPy. `conclave quantize` makes each format from the master, `conclave logits` runs it: what is measured is the
engine with the format's own kernels. Prints the tables of models/README.md.

An answer counts when greedy decoding would give it exactly: given the prompt and the answer's tokens so far, the most
likely token is the answer's next one, up to the end of the line or of the turn. Half of a task's questions are asked in
plain text and half as a chat. No question and no held-out text was in the training data (tools/train/tasks.py
says how they are kept apart).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools" / "train"))

import corpus  # noqa: E402
from tokenizer import Tokenizer  # noqa: E402

MASTER = ROOT / "models" / "conclave-tales-18m.q8_0.gguf"
FORMATS = "F32,Q8_0,Q6_K,Q5_K,Q4_K_M,Q4_K,Q4_0,MXFP4"
CONTEXT = 1024


class Engine:
    """One model file, run by the program."""

    def __init__(self, program, model, scratch):
        self.program, self.model, self.scratch = program, model, scratch

    def logits(self, ids):
        """f32 [len(ids), n_vocab]"""
        with tempfile.NamedTemporaryFile(suffix=".npy", dir=self.scratch) as output:
            tokens = ",".join(map(str, ids))
            command = [self.program, "logits", "-t", "1", "-m", self.model, "--tokens", tokens, "-o", output.name]
            subprocess.run(command, check=True)
            return np.load(output.name)


class Question:
    """A prompt with its one right answer. Before a \\0 in it stands the story that it is about."""

    def __init__(self, tokenizer, prompt, answer, chat):
        context, _, question = prompt.rpartition("\0")
        if chat:
            segments = corpus.chat_turn(0, "Tell me a story.", context.rstrip()) if context else []
            segments = segments + corpus.chat_turn(0, question, "")[:6]
        else:
            segments = [(f"{context}Q: {question}\nA:", 0, False)]
        self.prompt = [i for text, _, _ in segments for i in tokenizer.encode(text)]
        if chat:
            self.answer = tokenizer.encode(answer) + tokenizer.encode(corpus.IM_END)
        else:
            self.answer = tokenizer.encode(f" {answer}\n")

    def is_answered(self, engine):
        logits = engine.logits(self.prompt + self.answer[:-1])
        return logits[len(self.prompt) - 1 :].argmax(1).tolist() == self.answer


def log_softmax(logits):
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))


def held_out_text(tokenizer, rows):
    tokens, labels = corpus.pack(tokenizer.encode, "card", rows, CONTEXT - 1, evaluation=True)
    return tokens.astype(int).tolist(), labels


def text_scores(engine, pool, tokens, labels, plain):
    """Loss per domain over what the model should say; against `plain` (log-probabilities by row) also the divergence,
    over every token and over what the model should say: stories and answers, not the questions."""
    total, count = np.zeros(len(corpus.DOMAINS)), np.zeros(len(corpus.DOMAINS))
    divergences, said_divergences, said_same, kept = [], [], [], []
    for row, (ids, label, logits) in enumerate(zip(tokens, labels, pool.map(engine.logits, tokens))):
        scores = log_softmax(logits)
        loss = -scores[np.arange(len(ids) - 1), ids[1:]]
        for domain in range(len(corpus.DOMAINS)):
            mask = label[1:] == (domain | corpus.TRAINED)
            total[domain] += loss[mask].sum()
            count[domain] += mask.sum()
        if plain is None:
            kept.append(scores.astype(np.float32))
        else:
            said = np.flatnonzero(label[1:] & corpus.TRAINED)
            divergences.append((np.exp(plain[row]) * (plain[row] - scores)).sum(1))
            said_divergences.append(divergences[-1][said])
            said_same.append((plain[row].argmax(1) == scores.argmax(1))[said])
    result = {"loss": {name: total[d] / max(count[d], 1) for d, name in enumerate(corpus.DOMAINS)},
              "mean_loss": total.sum() / count.sum()}
    if plain is not None:
        result.update(kl=np.concatenate(divergences).mean(), kl_said=np.concatenate(said_divergences).mean(),
                      same_said=np.concatenate(said_same).mean())
    return result, kept


def print_tables(results):
    formats = list(results)
    print("| task | " + " | ".join(formats) + " |\n|---|" + "---:|" * len(formats))
    for task in results[formats[0]]["accuracy"]:
        print(f"| {task} | " + " | ".join(f"{100 * results[f]['accuracy'][task]:.1f}" for f in formats) + " |")
    print("\n| format | bytes | loss | KL, every token | KL, answers | same first choice, answers |\n|---|" + "---:|" * 5)
    for name, r in results.items():
        ends = "0 | 0 | 100%"
        if "kl" in r:
            ends = f"{r['kl']:.2g} | {r['kl_said']:.2g} | {100 * r['same_said']:.2f}%"
        print(f"| {name} | {r['bytes']} | {r['mean_loss']:.4f} | {ends} |")
    print("\n| domain | " + " | ".join(formats) + " |\n|---|" + "---:|" * len(formats))
    for domain in corpus.DOMAINS:
        print(f"| {domain} | " + " | ".join(f"{results[f]['loss'][domain]:.4f}" for f in formats) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conclave", default=str(ROOT / "build" / "release" / "bin" / "conclave"))
    parser.add_argument("--model", default=str(MASTER))
    parser.add_argument("--formats", default=FORMATS, help="the first one is what the others are compared with")
    parser.add_argument("--questions", type=int, default=128, help="per task")
    parser.add_argument("--rows", type=int, default=16, help=f"of {CONTEXT} tokens of held-out text")
    parser.add_argument("--jobs", type=int, default=2, help="programs that run at a time")
    parser.add_argument("--out", help="results as JSON")
    arguments = parser.parse_args()
    tokenizer = Tokenizer(ROOT / "tools" / "train" / "tokenizer.json")
    questions = {task: [Question(tokenizer, q, a, i % 2 == 1) for i, (q, a) in enumerate(problems)]
                 for task, problems in corpus.evaluation_prompts(count=arguments.questions).items()}
    tokens, labels = held_out_text(tokenizer, arguments.rows)
    results, plain = {}, None
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(arguments.jobs) as pool:
        for name in arguments.formats.split(","):
            model = f"{scratch}/model.gguf"
            subprocess.run([arguments.conclave, "quantize", arguments.model, model, name], check=True,
                           stdout=subprocess.DEVNULL)
            engine = Engine(arguments.conclave, model, scratch)
            result, kept = text_scores(engine, pool, tokens, labels, plain)
            plain = plain or kept
            result["bytes"] = pathlib.Path(model).stat().st_size
            result["accuracy"] = {task: float(np.mean(list(pool.map(lambda q: q.is_answered(engine), asked))))
                                  for task, asked in questions.items()}
            results[name] = result
            if arguments.out:
                pathlib.Path(arguments.out).write_text(json.dumps(results, indent=1, default=float) + "\n")
            print(f"{name}: {json.dumps(result['accuracy'])}", file=sys.stderr, flush=True)
    print_tables(results)


if __name__ == "__main__":
    main()
