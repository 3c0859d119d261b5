"""Trains the bundled model on one GPU in a few minutes, from the generated corpus to Hugging Face files.

    python3 train.py --out DIR --minutes 7

Every couple of minutes, and at the end, DIR holds the whole model: config.json, safetensors shards and their index, the
tokenizer's files, and training_log.json with the losses and the accuracy on held-out problems.
With --steps N instead of --minutes the learning rate follows the step count and the run can be repeated exactly.
"""

import argparse
import contextlib
import json
import multiprocessing
import pathlib
import shutil
import tempfile
import time

import numpy as np

import corpus
from tokenizer import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
TASK_WEIGHT = 2.0  # of an answer's token beside a story's
BALANCE = 0.003  # weight of the load-balancing loss: enough to use every expert, too little to forbid specialising


# ---------------------------------------------------------------- data


def _chunk(job):
    path, seed, rows, length, evaluation = job
    tokenizer = Tokenizer(HERE / "tokenizer.json")
    tokens, labels = corpus.pack(tokenizer.encode, seed, rows, length, evaluation)
    np.save(f"{path}.tokens.npy", tokens)
    np.save(f"{path}.labels.npy", labels)
    return path


def make_corpus(tokens, length, processes, seed, seconds):
    """Packed rows made by all cores; unless `seconds` run out, the result depends on the seed and the sizes only."""
    end = time.time() + seconds
    chunk_rows = 512
    count = max(1, tokens // (chunk_rows * length))
    with tempfile.TemporaryDirectory() as scratch:
        jobs = [(f"{scratch}/{i}", f"{seed}-{i}", chunk_rows, length, False) for i in range(count)]
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            done = []
            for path in pool.imap(_chunk, jobs):
                done.append(path)
                if time.time() > end:
                    break
            pool.terminate()
        return tuple(np.concatenate([np.load(f"{path}.{part}.npy") for path in done]) for part in ("tokens", "labels"))


# ---------------------------------------------------------------- evaluation


class Evaluator:
    def __init__(self, torch, model, tokenizer, device, length, count):
        self.torch, self.model, self.tokenizer, self.device = torch, model, tokenizer, device
        tokens, labels = corpus.pack(tokenizer.encode, "held-out", 64 if device == "cuda" else 4, length, True)
        self.tokens, self.labels = torch.from_numpy(tokens.astype(np.int64)), torch.from_numpy(labels)
        self.prompts = corpus.evaluation_prompts(count=count)

    def autocast(self):
        return self.torch.autocast("cuda", self.torch.bfloat16) if self.device == "cuda" else contextlib.nullcontext()

    def losses(self):
        """Mean loss of the trained tokens of held-out documents per domain, and how the experts share the domains."""
        torch = self.torch
        total, count = np.zeros(len(corpus.DOMAINS)), np.zeros(len(corpus.DOMAINS))
        c = self.model.c
        use = np.zeros((c.layers, len(corpus.DOMAINS), c.experts))
        with torch.no_grad(), self.autocast():
            for at in range(0, len(self.tokens), 16):
                ids = self.tokens[at : at + 16].to(self.device)
                logits, _, weights = self.model(ids[:, :-1], routing=True)
                logits, targets = logits.float().flatten(0, 1), ids[:, 1:].flatten()
                loss = torch.nn.functional.cross_entropy(logits, targets, reduction="none").cpu().numpy()
                label = self.labels[at : at + 16, 1:].flatten().numpy()
                here = self.labels[at : at + 16, :-1].flatten().numpy() & (corpus.TRAINED - 1)
                chosen = [(w > 0).flatten(0, 1).float().cpu().numpy() for w in weights]
                for d in range(len(corpus.DOMAINS)):
                    mask = label == (d | corpus.TRAINED)
                    total[d] += loss[mask].sum()
                    count[d] += mask.sum()
                    for i, w in enumerate(chosen):
                        use[i, d] += w[here == d].sum(0)
        share = use / np.maximum(use.sum(-1, keepdims=True), 1)
        loss = {name: round(float(total[d] / max(count[d], 1)), 4) for d, name in enumerate(corpus.DOMAINS)}
        return loss, np.round(share, 4).tolist()

    def generate(self, prompts, new_tokens):
        """Greedy continuations of token lists, in one batch. Padding lies to the right, where causality hides it."""
        torch = self.torch
        lengths = torch.tensor([len(p) for p in prompts], device=self.device)
        ids = torch.zeros(len(prompts), int(lengths.max()) + new_tokens, dtype=torch.long, device=self.device)
        for i, p in enumerate(prompts):
            ids[i, : len(p)] = torch.tensor(p)
        rows = torch.arange(len(prompts), device=self.device)
        with torch.no_grad(), self.autocast():
            for _ in range(new_tokens):
                logits, _ = self.model(ids[:, : int(lengths.max())])
                ids[rows, lengths] = logits[rows, lengths - 1].argmax(-1)
                lengths += 1
        return [ids[i, len(p) : len(p) + new_tokens].tolist() for i, p in enumerate(prompts)]

    def ask(self, prompt, chat):
        encode = self.tokenizer.encode
        context, _, question = prompt.rpartition("\0")
        if not chat:
            return encode(f"{context}Q: {question}\nA:")
        segments = []
        if context:
            segments += corpus.chat_turn(0, "Tell me a story.", context.rstrip())
        segments += corpus.chat_turn(0, question, "")[:6]
        return [i for text, _, _ in segments for i in encode(text)]

    def accuracy(self):
        """Exact answers per task, half of them asked in plain text and half in a chat."""
        result, misses = {}, []
        stop = set(self.tokenizer.specials.values())
        for name, problems in self.prompts.items():
            prompts = [self.ask(q, i % 2 == 1) for i, (q, _) in enumerate(problems)]
            new = max(len(self.tokenizer.encode(" " + a)) for _, a in problems) + 2
            right = 0
            for i, (out, (q, a)) in enumerate(zip(self.generate(prompts, new), problems)):
                end = next((k for k, t in enumerate(out) if t in stop), len(out))
                text = self.tokenizer.decode(out[:end])
                text = text.split("\n")[0].strip() if i % 2 == 0 else text
                if text == a:
                    right += 1
                elif len(misses) < 40:
                    misses.append((name, q.rpartition("\0")[2], a, text))
            result[name] = round(right / len(problems), 4)
        return result, misses

    def samples(self):
        prompts = [
            "Once upon a time",
            "One day a fox",
            "<chat>Tell me a story about a girl named Mia and a kite.",
            "<chat>Hello",
        ]
        ids = [self.ask(p[6:], True) if p.startswith("<chat>") else self.tokenizer.encode(p) for p in prompts]
        out = []
        for p, new in zip(prompts, self.generate(ids, 220)):
            end = next((k for k, t in enumerate(new) if t in self.tokenizer.specials.values()), len(new))
            out.append(p + self.tokenizer.decode(new[:end]))
        return out


# ---------------------------------------------------------------- training


def schedule(progress, warmup=0.02, decay=0.4):
    """Warm up, hold, then fall in a straight line to zero."""
    if progress < warmup:
        return progress / warmup
    return 1.0 if progress < 1 - decay else max(0.0, (1 - progress) / decay)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=7.0, help="training time, without the corpus")
    parser.add_argument(
        "--deadline",
        type=float,
        default=0.0,
        help="minutes after the start at which everything is written: shortens the training",
    )
    parser.add_argument("--steps", type=int, default=0, help="train this many steps, whatever the time")
    parser.add_argument("--tokens", type=int, default=400_000_000)
    parser.add_argument("--batch", type=int, default=64, help="rows of --context tokens in a step")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--corpus-seconds", type=float, default=120, help="train on what is made by then")
    parser.add_argument("--report", type=float, default=60, help="seconds between evaluations")
    parser.add_argument("--save", type=float, default=100, help="seconds between exports")
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--questions", type=int, default=64, help="held-out problems per task")
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    began = time.time()

    def note(text):
        print(f"[{time.time() - began:6.1f}s] {text}", flush=True)

    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(HERE / "tokenizer.json")
    tokens, labels = make_corpus(args.tokens, args.context, args.processes, args.seed, args.corpus_seconds)
    note(f"corpus: {tokens.size / 1e6:.1f} M tokens in {len(tokens)} rows")

    import torch
    from model import Config, Model, export

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    model = Model(Config(vocab=tokenizer.size, context=args.context, layers=args.layers)).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    note(f"model: {parameters / 1e6:.2f} M parameters on {device}")
    matrices = [p for n, p in model.named_parameters() if p.dim() == 2 and "embedding" not in n]
    others = [p for n, p in model.named_parameters() if p.dim() != 2 or "embedding" in n]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=args.lr,
        betas=(0.9, 0.95),
        eps=1e-9,
        fused=device == "cuda",
    )
    data = torch.from_numpy(tokens.view(np.int16)).to(device)
    marks = torch.from_numpy(labels).to(device)
    weight_of = torch.zeros(256, device=device)
    for d in range(len(corpus.DOMAINS)):
        weight_of[d | corpus.TRAINED] = 1.0 if d in (corpus.STORY, corpus.TALK) else TASK_WEIGHT
    evaluator = Evaluator(torch, model, tokenizer, device, args.context, args.questions)

    def step_loss(ids, weights):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits, balance = model(ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (loss * weights).sum() / weights.sum()
        return loss + BALANCE * balance, loss.detach(), balance.detach()

    def batch(rows):
        return data[rows].long() & 0xFFFF, weight_of[marks[rows][:, 1:].long()].flatten()

    run_loss = step_loss
    if device == "cuda" and not args.no_compile:
        try:
            compiled = torch.compile(step_loss)
            compiled(*batch(torch.arange(args.batch, device=device)))[0].backward()
            run_loss = compiled
            note("compiled")
        except Exception as error:  # training without the compiler is slower but right
            note(f"torch.compile does not work here, going on without it: {str(error)[:300]}")
        optimizer.zero_grad(set_to_none=True)

    log = {"arguments": vars(args), "parameters": parameters, "corpus_tokens": int(tokens.size), "reports": []}

    def save():
        export(model, out, tokenizer)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(HERE / name, out / name)
        (out / "training_log.json").write_text(json.dumps(log, indent=1) + "\n")

    start, step, epoch_order = time.time(), 0, None
    budget = args.minutes * 60
    if args.deadline:
        budget = min(budget, args.deadline * 60 - 40 - (start - began))
    reported = saved = start
    good, peak = [p.detach().clone() for p in model.parameters()], args.lr
    recent, generator = [], torch.Generator().manual_seed(args.seed)
    per_epoch = len(data) // args.batch
    if per_epoch == 0:
        raise SystemExit("the corpus is smaller than one batch: raise --tokens or lower --batch")

    def report(final=False):
        loss, share = evaluator.losses()
        accuracy, misses = evaluator.accuracy()
        mean = [float(x) for x in torch.stack([torch.stack(pair) for pair in recent]).mean(0)] if recent else [0.0, 0.0]
        log["reports"].append(
            {
                "seconds": round(time.time() - start, 1),
                "step": step,
                "tokens": step * args.batch * args.context,
                "loss": round(mean[0], 4),
                "balance": round(mean[1], 4),
                "held_out_loss": loss,
                "accuracy": accuracy,
            }
        )
        note(
            f"step {step}: loss {mean[0]:.4f}, balance {mean[1]:.3f},"
            f" {step * args.batch * args.context / (time.time() - start) / 1e6:.3f} M tokens/s"
        )
        note("  held-out loss " + ", ".join(f"{k} {v}" for k, v in loss.items()))
        note("  exact " + ", ".join(f"{k} {100 * v:.0f}%" for k, v in accuracy.items()))
        if final:
            log.update(expert_share_by_layer_domain=share, misses=misses, samples=evaluator.samples(), steps=step)
            for m in misses[:12]:
                note(f"  miss {m}")
            for s in log["samples"]:
                note("  sample: " + s.replace("\n", " / "))

    while True:
        progress = step / args.steps if args.steps else (time.time() - start) / budget
        if progress >= 1:
            break
        if step % per_epoch == 0:
            epoch_order = torch.randperm(len(data), generator=generator).to(device)
        at = step % per_epoch * args.batch
        for group in optimizer.param_groups:
            group["lr"] = peak * schedule(progress)
        total, loss, balance = run_loss(*batch(epoch_order[at : at + args.batch]))
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        recent = (recent + [(loss, balance)])[-50:]
        if step % 10 == 0:
            if device == "cuda":
                torch.cuda.synchronize()  # the clock steers the schedule: it must see the work done
            if not torch.isfinite(loss):  # go back to the last good weights, more gently
                peak *= 0.5
                note(f"step {step}: the loss is not finite; back to the last saved weights, peak rate {peak}")
                with torch.no_grad():
                    for p, old in zip(model.parameters(), good):
                        p.copy_(old)
                optimizer.state.clear()
            now = time.time()
            if now - reported > args.report:
                report()
                reported = now
            if now - saved > args.save:
                save()
                saved = now
                good = [p.detach().clone() for p in model.parameters()]
                note("saved")
    save()
    note("saved the trained model; last evaluation follows")
    evaluator.prompts = corpus.evaluation_prompts(count=args.questions * 4)
    report(final=True)
    (out / "training_log.json").write_text(json.dumps(log, indent=1) + "\n")
    note("done")


if __name__ == "__main__":
    main()
