#!/usr/bin/env python3
"""Computes the golden results of exported op cases, from the ops' headers alone, with NumPy.

    golden_ops.py CASES ANSWERS [--sample N]    results of every case of CASES into ANSWERS
    golden_ops.py --selfcheck                   checks the building blocks against independent definitions
"""

import argparse
import os
import sys

from golden import routing, scoring, selfcheck
from golden.exchange import GoldenError, read_cases, write_answer
from golden.ops import run_case


def answer(cases_path, answers_path, sample):
    """Answers every case, one record at a time. ANSWERS appears only when all of it is there."""
    partial = answers_path + ".partial"
    try:
        with open(cases_path, "rb") as cases, open(partial, "wb") as answers:
            for case in read_cases(cases):
                run_case(case)
                write_answer(answers, case, sample)
        os.replace(partial, answers_path)
    except BaseException:
        if os.path.exists(partial):
            os.remove(partial)
        raise


def parse(arguments):
    parser = argparse.ArgumentParser(description="Golden results of op cases, computed with NumPy.")
    parser.add_argument("cases", nargs="?", metavar="CASES", help="file of exported cases")
    parser.add_argument("answers", nargs="?", metavar="ANSWERS", help="file to write the results to")
    parser.add_argument("--sample", type=int, metavar="N", help="store about N elements of larger outputs")
    parser.add_argument("--scoring", choices=sorted(scoring.ARITHMETICS), default=routing.arithmetic,
                        help="arithmetic of the scores that rank experts (default: %(default)s)")
    parser.add_argument("--selfcheck", action="store_true", help="check the building blocks and stop")
    options = parser.parse_args(arguments)
    if not options.selfcheck and options.answers is None:
        parser.error("CASES and ANSWERS are needed")
    if options.sample is not None and options.sample < 1:
        parser.error("--sample must be at least 1")
    return options


def main(arguments):
    options = parse(arguments)
    routing.arithmetic = options.scoring
    try:
        if options.selfcheck:
            selfcheck.run()
            print("ok")
        else:
            answer(options.cases, options.answers, options.sample)
    except (GoldenError, AssertionError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
