"""Lilliput and its peers on one checkpoint and machine: prompts and decoding in tokens per second, peak memory, and the ids.

Each program runs in processes of its own, in rounds, so that a busy moment falls on all; medians of all rounds are shown. A line on
stderr says which process runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from lilliput.engine.models import find_model
from lilliput.errors import LilliputError, UsageError
from lilliput.machine.memory import parse_size
from lilliput.model.config import read_config

HERE = Path(__file__).resolve().parent
QUICK = "A quick form, with a twenty-fourth of the tokens: --rounds 1 --repeats 1 --prompt 16 --tokens 8"


def main() -> int:
    given = _arguments()
    try:
        model = _checked(given)
    except LilliputError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return error.exit_code
    chance = random.Random(given.seed)
    ids = ",".join(str(chance.randrange(given.vocabulary)) for _ in range(given.prompt))
    programs = {
        "lilliput": [sys.executable, str(HERE / "peer_lilliput.py")],
        "mlx-lm, bfloat16": [given.peer_python, str(HERE / "peer_mlx.py"), "--dtype", "bfloat16"],
        "mlx-lm, float32": [given.peer_python, str(HERE / "peer_mlx.py"), "--dtype", "float32"],
    }
    asked = ["--ids", ids, "--tokens", str(given.tokens), "--repeats", str(given.repeats), "--threads", str(given.threads)]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in programs}
    began, processes = time.monotonic(), given.rounds * len(programs)
    for number, name in enumerate([*programs] * given.rounds, 1):
        print(f"process {number} of {processes}: {name}, {time.monotonic() - began:.0f} s so far", file=sys.stderr, flush=True)
        command = programs[name]
        found[name].append(_run(name, [command[0], command[1], str(model), *command[2:], *asked], given.memory))
    _show(found)
    if given.json:
        Path(given.json).write_text(
            json.dumps({"prompt": given.prompt, "tokens": given.tokens, "threads": given.threads, "programs": found})
        )
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run.sh", description=__doc__, epilog=QUICK)
    parser.add_argument("model", help="a checkpoint directory, e.g. of `lilliput synth DIR --shape mini`, or `demo`")
    parser.add_argument("--peer-python", required=True, help="the interpreter of the peers' environment (run.sh)")
    parser.add_argument("--prompt", type=int, default=64, help="ids of the prompt; default %(default)s")
    parser.add_argument("--tokens", type=int, default=32, help="greedy ids behind it; default %(default)s")
    parser.add_argument("--repeats", type=int, default=3, help="of both, in every process; default %(default)s")
    parser.add_argument("--rounds", type=int, default=2, help="processes of every program; default %(default)s")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of every program; default %(default)s")
    parser.add_argument("--memory", help="Lilliput's budget; default: what is safely free")
    parser.add_argument("--vocabulary", type=int, default=256, help="prompt ids are below this; default %(default)s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write everything that was measured")
    return parser.parse_args()


def _checked(given: argparse.Namespace) -> Path:
    """The checkpoint's directory; raises LilliputError for what no program could run with."""
    for option, least in (("prompt", 1), ("tokens", 2), ("repeats", 1), ("rounds", 1), ("threads", 1), ("vocabulary", 1)):
        if getattr(given, option) < least:
            raise UsageError(f"--{option}: needed {least} or more, found {getattr(given, option)}")
    if given.memory is not None:
        parse_size(given.memory, "--memory")
    directory = find_model(given.model)
    read_config(directory)
    return directory


def _run(name: str, command: list[str], memory: str | None) -> dict[str, Any]:
    environment = os.environ | ({"PEERS_MEMORY": memory} if memory else {})
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed with exit code {done.returncode}: see its message above")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _show(found: dict[str, list[dict[str, Any]]]) -> None:
    ours = found["lilliput"][0]["ids"][0]
    print(f"{'':18} {'prompt tokens/s':>16} {'decode tokens/s':>16} {'load s':>8} {'peak RSS GB':>12}  ids as lilliput's")
    for name, runs in found.items():
        prefill, decode = (median(value for run in runs for value in run[what]) for what in ("prefill", "decode"))
        load, peak = median(run["load_s"] for run in runs), max(run["peak_rss_bytes"] for run in runs)
        each = [ids for run in runs for ids in run["ids"]]
        same = min(next((i for i, (a, b) in enumerate(zip(ids, ours, strict=True)) if a != b), len(ours)) for ids in each)
        alike = "" if all(ids == each[0] for ids in each) else ", and not the same every time"
        print(f"{name:18} {prefill:16.2f} {decode:16.2f} {load:8.2f} {peak / 1e9:12.3f}  the first {same} of {len(ours)}{alike}")
    for name, runs in found.items():
        print(f"{name}: {runs[0]['version']}")


if __name__ == "__main__":
    raise SystemExit(main())
