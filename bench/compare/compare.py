#!/usr/bin/env python3
"""How fast conclave runs a model beside another engine's llama-bench, on the same file, in turns.

The two programs run one after the other, again and again, with the same number of threads: what disturbs the machine
disturbs both. Each turn gives one ratio for each row, conclave's tokens per second over the other's; the middle one of
all turns counts. Python's standard library is all it needs; nothing of the other engine is part of this project, and
whoever compares brings a binary.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Failed(Exception):
    """One line for the user."""


def count_list(text, least):
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of whole numbers from {least} on, such as 1,2,4")
    return counts


def positive(text):
    counts = count_list(text, 1)
    if len(counts) != 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not one number")
    return counts[0]


def arguments():
    parser = argparse.ArgumentParser(
        prog="compare.py",
        description="Runs `conclave bench` and a given llama-bench on the same file in turns, and prints the ratios.",
        epilog="example: bench/compare/compare.py --llama-bench ~/llama.cpp/build/bin/llama-bench -m model.gguf",
    )
    parser.add_argument("-m", "--model", required=True, metavar="FILE", help="a GGUF file that both can run")
    parser.add_argument("--llama-bench", required=True, metavar="PROGRAM", help="the other engine's llama-bench")
    parser.add_argument(
        "--llama-batched-bench", metavar="PROGRAM", help="its llama-batched-bench: needed for batches of more than 1"
    )
    parser.add_argument(
        "--conclave", metavar="PROGRAM", default=str(ROOT / "build/release/bin/conclave"), help="(%(default)s)"
    )
    parser.add_argument("-p", type=lambda t: count_list(t, 0), default=[512], metavar="N,...", help="prefills (512)")
    parser.add_argument("-n", type=lambda t: count_list(t, 0), default=[128], metavar="N,...", help="decodes (128)")
    parser.add_argument(
        "-b", type=lambda t: count_list(t, 1), default=[1], metavar="N,...", help="sequences decoded together (1)"
    )
    parser.add_argument("-t", "--threads", type=positive, metavar="N", help="of both (what conclave chooses)")
    parser.add_argument("--turns", type=positive, default=5, metavar="N", help="(5)")
    parser.add_argument("--reps", type=positive, default=1, metavar="N", help="repetitions of each in a turn (1)")
    parser.add_argument("--name", default="llama.cpp", help="what to call the other engine (llama.cpp)")
    parser.add_argument("--json", action="store_true", help="one object a line instead of the table")
    return parser.parse_args()


def program(path):
    found = shutil.which(path)
    if found is None:
        raise Failed(f"{path}: there is no such program")
    return found


def output_of(command):
    """What the program printed, stdout and then stderr: some print results to one, some to the other."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "it said nothing")
        raise Failed(f"{Path(command[0]).name} ended with {done.returncode}: {reason.strip()}")
    return done.stdout + "\n" + done.stderr


def json_objects(text):
    """Every line that is a JSON object."""
    objects = []
    for line in text.splitlines():
        if not line.lstrip().startswith("{"):
            continue
        try:
            objects.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return objects


def counts_text(counts):
    return ",".join(str(count) for count in counts)


def run_conclave(options):
    """{(work, tokens, batch): speed} and the facts that go with them."""
    command = [options.conclave, "bench", "-m", options.model, "--json", "--reps", str(options.reps)]
    command += ["-p", counts_text(options.p), "-n", counts_text(options.n), "-b", counts_text(options.b)]
    if options.threads:
        command += ["-t", str(options.threads)]
    rows = json_objects(output_of(command))
    if not rows:
        raise Failed("conclave bench gave no results")
    return {(row["work"], row["tokens"], row["batch"]): row["tokens_per_second"] for row in rows}, rows


def run_llama_bench(options):
    command = [options.llama_bench, "-m", options.model, "-o", "json", "-r", str(options.reps)]
    command += ["-p", counts_text(options.p), "-n", counts_text(options.n), "-t", str(options.threads)]
    text = output_of(command)
    try:
        rows, _ = json.JSONDecoder().raw_decode(text[text.index("[") :])
        speeds = {}
        for row in rows:
            speed = statistics.median(row.get("samples_ts") or [row["avg_ts"]])
            prompt, generated = row["n_prompt"], row["n_gen"]
            if prompt and generated:
                continue
            speeds[("prefill", prompt, 1) if prompt else ("decode", generated, 1)] = speed
        return speeds
    except (ValueError, KeyError, TypeError) as error:
        raise Failed(f"{Path(command[0]).name}: its output is not what -o json gives") from error


def run_llama_batched_bench(options):
    """Batches of more than one. Its context starts with one token of each sequence, ours is empty."""
    batches = [batch for batch in options.b if batch > 1]
    lengths = [length for length in options.n if length > 0]
    if not options.llama_batched_bench or not batches or not lengths:
        return {}
    context = max(batches) * (max(lengths) + 1)
    command = [options.llama_batched_bench, "-m", options.model, "-c", str(context), "-t", str(options.threads)]
    command += ["-npp", "1", "-ntg", counts_text(lengths), "-npl", counts_text(batches), "--output-format", "jsonl"]
    rows = [row for row in json_objects(output_of(command)) if "speed_tg" in row]
    if not rows:
        raise Failed(f"{Path(command[0]).name}: its output has no line of results")
    return {("decode", row["tg"], row["pl"]): row["speed_tg"] for row in rows}


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def busy_note():
    """Said where other programs were running before the first turn."""
    try:
        load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    except OSError:
        return ""
    if load < 0.5 * cpus:
        return ""
    return f"noisy run: repeat it (a load of {load:.1f} on {cpus} CPUs before it began)"


def take_turns(options):
    """[(ours, theirs)], and the facts of our last run."""
    turns, facts = [], []
    for turn in range(options.turns):
        progress(f"turn {turn + 1} of {options.turns}: conclave")
        ours, facts = run_conclave(options)
        options.threads = options.threads or facts[0]["threads"]
        progress(f"turn {turn + 1} of {options.turns}: {options.name}")
        theirs = run_llama_bench(options)
        theirs.update(run_llama_batched_bench(options))
        turns.append((ours, theirs))
    progress("")
    return turns, facts


def summaries(turns):
    """One for each row that both have measured, in our order."""
    for key in turns[0][0]:
        pairs = [(ours[key], theirs[key]) for ours, theirs in turns if key in ours and theirs.get(key)]
        if not pairs:
            continue
        ratios = [ours / theirs for ours, theirs in pairs]
        yield {
            "work": key[0],
            "tokens": key[1],
            "batch": key[2],
            "tokens_per_second": statistics.median(ours for ours, _ in pairs),
            "other_tokens_per_second": statistics.median(theirs for _, theirs in pairs),
            "ratio": statistics.median(ratios),
            "min": min(ratios),
            "max": max(ratios),
            "ratios": ratios,
        }


def show(options, rows, facts, note):
    model = Path(options.model).name
    if options.json:
        for row in rows:
            row.update(other=options.name, model=model, threads=options.threads, turns=options.turns)
            row.update(kernels=facts[0]["kernels"], cpu=facts[0]["cpu"], commit=facts[0]["commit"])
            row.update(noise=note)
            print(json.dumps(row))
        return
    print(f"{model}, {options.threads} threads, {options.turns} turns")
    print(f"{facts[0]['cpu']}, {facts[0]['kernels']} kernels, commit {facts[0]['commit']}\n")
    print(f"{'work':<8}{'tokens':>7}{'batch':>6}{'conclave':>11}{options.name:>15}{'ratio':>8}{'min':>7}{'max':>7}")
    for row in rows:
        print(
            f"{row['work']:<8}{row['tokens']:>7}{row['batch']:>6}{row['tokens_per_second']:>11.2f}"
            f"{row['other_tokens_per_second']:>15.2f}{row['ratio']:>8.2f}{row['min']:>7.2f}{row['max']:>7.2f}"
        )
    print()
    if note:
        print(note)
    print("tokens per second, medians; ratios are of the same turn, and the middle one counts")
    if not options.llama_batched_bench and max(options.b) > 1:
        print("batches of more than 1: llama-bench has none, --llama-batched-bench measures them")


def main():
    options = arguments()
    try:
        options.conclave = program(options.conclave)
        options.llama_bench = program(options.llama_bench)
        if options.llama_batched_bench:
            options.llama_batched_bench = program(options.llama_batched_bench)
        if not os.path.isfile(options.model):
            raise Failed(f"{options.model}: there is no such file")
        note = busy_note()
        turns, facts = take_turns(options)
        rows = list(summaries(turns))
        if not rows:
            raise Failed("there is no row that both programs have measured")
        show(options, rows, facts, note)
    except Failed as error:
        progress("")
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        progress("")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
