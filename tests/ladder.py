"""The exactness ladder: every way of computing the same logits must give the same bytes (`docs/exactness.md`).

As a program (`python tests/ladder.py DIRECTORY IDS VARIANTS`) it prints a digest per variant, so that a variant can run in a
process of its own, with numpy's CPU features masked.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from models import STORAGES, all_logits, build_model
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

from lilliput import _core
from lilliput.engine import scheduler
from lilliput.model import state_file
from lilliput.model.batch import Span
from lilliput.model.model import Model
from lilliput.model.state import State

SMALL_PIECES = 8192  # bytes: several pieces a matrix even in a tiny model

Variant = dict[str, Any]
Feed = Callable[[Model, Sequence[int]], np.ndarray]

MASKED = {"NPY_DISABLE_CPU_FEATURES": " ".join(f for f in __cpu_dispatch__ if __cpu_features__.get(f))}  # all that numpy would dispatch to


def whole(model: Model, ids: Sequence[int]) -> np.ndarray:
    return all_logits(model, ids)


def chunks(size: int) -> Feed:
    return lambda model, ids: all_logits(model, ids, chunk=size)


def saved(model: Model, ids: Sequence[int]) -> np.ndarray:
    """A third of the ids, then to a file and back, then the rest."""
    cut = max(len(ids) // 3, 1)
    state = State(model.config)
    first = all_logits(model, ids[:cut], state=state)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session"
        state_file.save(path, state, "ladder")
        restored = state_file.load(path, model.config, "ladder").state
    return np.concatenate([first, all_logits(model, ids[cut:], state=restored)])


def drafts(model: Model, ids: Sequence[int]) -> np.ndarray:
    """Spans whose tail is wrong and given up: commit 0, 1, 2, 3 of 4 in turn, as a verifier of drafts would."""
    state, rows, turn = State(model.config), [], 0
    while state.position < len(ids):
        right = turn % 4 or 1 if turn % 5 else 0
        real = list(ids[state.position : state.position + right])
        span = Span(state, [*real, *(7 + i for i in range(4 - len(real)))], range(len(real)))
        model.forward([span])
        rows.append(span.logits)
        span.commit(len(real))
        turn += 1
    return np.concatenate(rows)


def mixed(feed_chunk: int) -> Feed:
    """In one pass with two other sequences, before and after it, of other lengths."""

    def run(model: Model, ids: Sequence[int]) -> np.ndarray:
        other = [int(i) for i in reversed(ids)]
        work = [
            scheduler.Work(State(model.config), other[: len(ids) // 2 + 1], [0]),
            scheduler.Work(State(model.config), ids, range(len(ids))),
            scheduler.Work(State(model.config), [*other, *other], []),
        ]
        return np.concatenate([part.span.logits for parts in scheduler.run(model, work, feed_chunk) for part in parts if part.work == 1])

    return run


FEEDS: dict[str, Feed] = {
    "whole": whole,
    "chunks of 3": chunks(3),
    "chunks of 17": chunks(17),
    "token by token": chunks(1),
    "saved": saved,
    "drafts": drafts,
    "mixed": mixed(scheduler.CHUNK),
    "mixed chunks": mixed(5),
}


def axes() -> dict[str, list[Any]]:
    return {
        "feed": list(FEEDS),
        "storage": ["bf16", "k12"],
        "memory": list(STORAGES),
        "threads": [1, 2, 3],
        "isa": _core.isas(),
        "numpy": ["plain", "masked"],
    }


def base() -> Variant:
    return {axis: values[0] for axis, values in axes().items()} | {"isa": _core.isas()[-1]}


def singles() -> Iterator[Variant]:
    """Every axis alone."""
    for axis, values in axes().items():
        yield from (base() | {axis: value} for value in values)


def product() -> Iterator[Variant]:
    names = list(axes())
    yield from (dict(zip(names, values, strict=True)) for values in itertools.product(*axes().values()))


def pairwise() -> list[Variant]:
    """A small set in which every two values of different axes meet wherever that is possible (greedy cover)."""
    candidates = list(product())
    missing = set().union(*(_pairs(v) for v in candidates))
    cover = []
    while missing:
        best = max(candidates, key=lambda v: len(_pairs(v) & missing))
        cover.append(best)
        missing -= _pairs(best)
    return cover


def _pairs(variant: Variant) -> set[Any]:
    return set(itertools.combinations(sorted(variant.items()), 2))


def digest(directory: Path, ids: Sequence[int], variant: Variant, models: dict[Any, Model]) -> str:
    """sha256 of the logits' bytes at all positions."""
    _core.use_isa(variant["isa"])
    _core.set_threads(variant["threads"], 0)
    key = (variant["storage"], variant["memory"])
    if key not in models:
        models[key] = build_model(directory, variant["memory"], k12=variant["storage"] == "k12", piece_bytes=SMALL_PIECES)
    logits = FEEDS[variant["feed"]](models[key], ids)
    assert logits.shape == (len(ids), models[key].config.vocab_size)
    return hashlib.sha256(np.ascontiguousarray(logits).tobytes()).hexdigest()


def digests(directory: Path, ids: Sequence[int], variants: Sequence[Variant]) -> list[str]:
    """A digest per variant; those with masked numpy features come from one process of their own."""
    models: dict[Any, Model] = {}
    here = {i: digest(directory, ids, v, models) for i, v in enumerate(variants) if v["numpy"] == "plain"}
    masked = [i for i, v in enumerate(variants) if v["numpy"] == "masked"]
    if masked:
        arguments = [sys.executable, "-W", "ignore", str(Path(__file__).resolve()), str(directory), json.dumps(list(ids))]
        arguments.append(json.dumps([variants[i] for i in masked]))
        done = subprocess.run(arguments, env=os.environ | MASKED, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        here |= dict(zip(masked, done.stdout.split(), strict=True))
    return [here[i] for i in range(len(variants))]


if __name__ == "__main__":
    kept: dict[Any, Model] = {}
    for wanted in json.loads(sys.argv[3]):
        print(digest(Path(sys.argv[1]), json.loads(sys.argv[2]), wanted, kept))
