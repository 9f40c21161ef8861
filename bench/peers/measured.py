"""What every program is asked to do, and what it reports. Imported by each in its own process; needs the standard library only.

One process runs one program: load, a warm-up, then `--repeats` times a prompt of `--prompt` ids and `--tokens` greedy ids behind it.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator

Generate = Callable[[list[int], int], Iterator[int]]  # prompt, how many → ids as they come


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--ids", required=True, help="the prompt, comma-separated")
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", default="bfloat16")
    return parser.parse_args()


def report(given: argparse.Namespace, generate: Generate, load_s: float, version: str) -> None:
    """Measure `generate` and write one line of JSON."""
    ids = [int(i) for i in given.ids.split(",")]
    for _ in generate(ids[:2], 2):
        pass
    prefill, decode, found = [], [], []
    for _ in range(given.repeats):
        start = time.perf_counter()
        new = generate(ids, given.tokens)
        found.append([next(new)])
        first = time.perf_counter()
        found[-1] += new
        last = time.perf_counter()
        prefill.append(len(ids) / (first - start))
        decode.append((given.tokens - 1) / (last - first))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    result = {"version": version, "load_s": load_s, "prefill": prefill, "decode": decode, "ids": found, "peak_rss_bytes": peak}
    print(json.dumps(result))
