"""One training run: seeded, resumable, and the same for both models until the quarter where they are compared.

The learning rate rises over the first steps, stays, and falls linearly to zero over the last part of `tokens`. A run may `stop` earlier;
continued later it follows the same curve. Progress is a file of JSON lines: step, tokens, rate, training loss, held-out bits per byte.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from demo_training.muon import optimisers
from demo_training.parallel import Processes, processes
from demo_training.shape import RANKS
from lilliput.text.tokenizer import Tokenizer

SAVE_SECONDS = 180
CLIP = 1.0  # largest norm of a gradient (mean over tokens)
REPORTS = 20  # evaluations in a whole run


class Model(Protocol):
    """What `Network` and `Plain` have in common."""

    def loss(self, ids: Tensor, targets: Tensor) -> Tensor: ...
    def balance(self, step: float) -> None: ...


class Texts(Protocol):
    """What training needs of a `Corpus` (`mixture.py`)."""

    rows: np.ndarray  # uint16 [n, T + 1]
    heldout: np.ndarray  # uint16 [m, T + 1], prose
    heldout_bytes: int  # that the predicted tokens of `heldout` stand for
    tokenizer: Path


@dataclass(frozen=True)
class Plan:
    """Numbers of a run. Token counts are rounded down to whole steps."""

    tokens: int
    rows_per_step: int = 12
    warm_up: int = 60  # steps
    decay: float = 0.3  # share of the steps over which the rate falls to zero
    rates: dict[str, float] = field(default_factory=lambda: {"muon": 0.02, "embedding": 0.03, "head": 0.008, "vector": 0.008})
    weight_decay: float = 0.05
    balance: float = 4e-3
    seed: int = 0

    def steps(self, width: int, tokens: int | None = None) -> int:
        """Steps for `tokens` (default: all) with rows of `width` predicted tokens."""
        return max(1, (self.tokens if tokens is None else tokens) // (self.rows_per_step * width))

    def same_until(self, other: Plan, step: int, width: int) -> bool:
        """Whether both are the same run up to `step`: length and decay may differ as long as neither rate has begun to fall."""
        flat = min((1 - plan.decay) * plan.steps(width) for plan in (self, other))
        return self == other or (replace(self, tokens=other.tokens, decay=other.decay) == other and step <= flat)

    def factor(self, step: int, steps: int) -> float:
        """Share of the full rate at a step counted from 0."""
        return min(1.0, (step + 1) / self.warm_up, (steps - step) / (self.decay * steps))


class Sample(NamedTuple):
    """Evenly spaced held-out rows for the curve, and the bytes that their predicted tokens stand for."""

    rows: np.ndarray
    nbytes: int

    @classmethod
    def of(cls, corpus: Texts, count: int = 96) -> Sample:
        rows = corpus.heldout[:: max(1, len(corpus.heldout) // count)][:count]
        tokenizer = Tokenizer.open(corpus.tokenizer, RANKS + 256)
        assert tokenizer is not None, "a corpus comes with its tokenizer"
        return cls(rows, sum(len(tokenizer.decode_bytes(row[1:].tolist(), skip_special=True)) for row in rows))


class StoppedError(Exception):
    """Ctrl-C or a termination request; everything is saved."""


def train(model: nn.Module, corpus: Texts, plan: Plan, work: Path, name: str, stop: int | None = None) -> float:
    """Train (or continue) up to `stop` tokens, default all; bits per byte of the whole held-out prose there.

    Writes `work/NAME.pt` (weights, optimisers, position) and `work/NAME.jsonl`. Raises `StoppedError` after Ctrl-C or SIGTERM and
    `ValueError` if the saved run had another plan.
    """
    width = corpus.rows.shape[1] - 1
    steps = plan.steps(width)
    last = steps if stop is None else min(steps, plan.steps(width, stop))
    every = max(1, steps // REPORTS)
    made = optimisers(model, plan.rates, plan.weight_decay)
    saved, log = work / f"{name}.pt", work / f"{name}.jsonl"
    done, lines = _load(saved, model, made, plan, width)
    sample = Sample.of(corpus)
    started, began, saved_at, losses = time.monotonic(), done, time.monotonic(), []
    with _interruptions() as interrupted, processes(model, torch.get_num_threads() if done < last else 1) as team:
        for step in range(done, last):
            factor = plan.factor(step, steps)
            losses.append(_step(team, model, made, corpus, plan, step, factor))
            if not math.isfinite(losses[-1]):
                raise FloatingPointError(f"{name}: the loss is not finite at step {step}; lower the rates and start again")
            if (step + 1) % every == 0 or step + 1 == last:
                rate = (time.monotonic() - started) / (step + 1 - began)
                lines.append(
                    {
                        "step": step + 1,
                        "tokens": (step + 1) * plan.rows_per_step * width,
                        "rate": factor,
                        "loss": sum(losses) / len(losses),
                        "bits_per_byte": bits_per_byte(model, *sample),
                        "largest_load": _largest_load(model),
                    }
                )
                if step + 1 == last:
                    lines[-1]["heldout"] = bits_per_byte(model, corpus.heldout, corpus.heldout_bytes)
                losses = []
                _report(name, lines[-1], step + 1, last, rate)
                _write_lines(log, lines)
            if interrupted or step + 1 == last or time.monotonic() - saved_at > SAVE_SECONDS:
                # A report's mean loss starts afresh after a restart; nothing else differs.
                _save(saved, model, made, plan, step + 1, lines)
                saved_at = time.monotonic()
            if interrupted:
                raise StoppedError(f"{name}: stopped after step {step + 1} of {last}; the same command goes on from there")
    return next(float(line["heldout"]) for line in lines if line["step"] == last)


def _step(team: Processes, model: Any, made: list[torch.optim.Optimizer], corpus: Texts, plan: Plan, step: int, factor: float) -> float:
    """One optimiser step; the mean loss per token in nats."""
    n = plan.rows_per_step
    picked = np.arange(step * n, (step + 1) * n) % len(corpus.rows)
    loss = team.gradients(corpus.rows[picked])
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    for optimiser in made:
        for group in optimiser.param_groups:
            group["lr"] = group["peak"] * factor
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    model.balance(plan.balance * factor)
    return loss


@torch.no_grad()
def bits_per_byte(model: Any, rows: np.ndarray, nbytes: int, batch: int = 16) -> float:
    """Held-out loss of rows [m, T + 1] whose predicted tokens stand for `nbytes` bytes."""
    nats = 0.0
    for begin in range(0, len(rows), batch):
        part = torch.from_numpy(rows[begin : begin + batch].astype(np.int64))
        nats += float(model.loss(part[:, :-1], part[:, 1:]))
    return nats / math.log(2) / nbytes


def _largest_load(model: nn.Module) -> list[float]:
    """Per router: how often its favourite expert was chosen in the last pass, against an even share."""
    return [round(float(m.loads.max() / m.loads.mean()), 2) for m in getattr(model, "gates", list)()]


def _report(name: str, line: dict[str, Any], step: int, last: int, seconds: float) -> None:
    left = (last - step) * seconds / 60
    speed = line["tokens"] / step / seconds
    print(
        f"{name}: {100 * step / last:5.1f} %  {line['tokens'] / 1e6:6.2f} M tokens  loss {line['loss']:.3f}  held-out "
        f"{line['bits_per_byte']:.4f} bits per byte  rate {line['rate']:.2f}  {speed:,.0f} tokens/s  {left:.1f} min left",
        flush=True,
    )


def _save(path: Path, model: nn.Module, made: list[torch.optim.Optimizer], plan: Plan, step: int, lines: list[dict[str, Any]]) -> None:
    state = {
        "plan": asdict(plan),
        "step": step,
        "lines": lines,
        "model": model.state_dict(),
        "optimisers": [optimiser.state_dict() for optimiser in made],
    }
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _load(path: Path, model: nn.Module, made: list[torch.optim.Optimizer], plan: Plan, width: int) -> tuple[int, list[dict[str, Any]]]:
    """Steps done and lines reported by a saved run, with model and optimisers brought to that state; (0, []) without one."""
    if not path.exists():
        return 0, []
    state = torch.load(path, weights_only=True)
    if not plan.same_until(Plan(**state["plan"]), state["step"], width):
        raise ValueError(f"{path}: needed a run with {asdict(plan)}, found {state['plan']}; remove it or choose another --work")
    model.load_state_dict(state["model"])
    for optimiser, saved in zip(made, state["optimisers"], strict=True):
        optimiser.load_state_dict(saved)
    return int(state["step"]), list(state["lines"])


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    partial = path.with_suffix(".partial-lines")
    partial.write_text("".join(json.dumps(line) + "\n" for line in lines))
    partial.replace(path)


@contextmanager
def _interruptions() -> Iterator[list[int]]:
    """Collects Ctrl-C and SIGTERM instead of dying in the middle of a step; a second one kills at once."""
    seen: list[int] = []

    def note(number: int, _frame: object) -> None:
        seen.append(number)
        print("stopping after this step", file=sys.stderr, flush=True)
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
