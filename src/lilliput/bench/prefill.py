"""Passes over many tokens at once: tokens per second beside the machine's peak, where the time goes, and memory beside the plan.

For each length: one pass under `tracemalloc`, which counts arrays and loads what stays in memory, then rounds over all lengths in turn,
each with a measurement of the peak. Every pass begins an empty sequence of other ids, whose state is in memory as that of a longer one
would be, and asks for the logits of its last token.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import numpy as np

from lilliput import _bench, _core
from lilliput.bench.crowd import BusyCore, in_proportion
from lilliput.bench.facts import k3
from lilliput.bench.kernels.contest import Sample, Spread, Work, timed
from lilliput.bench.kernels.group import PEAK_SECONDS, rounds_of
from lilliput.bench.kernels.targets import DECODE_SECONDS
from lilliput.bench.split import Split
from lilliput.engine import scheduler
from lilliput.engine.engine import Engine
from lilliput.engine.report import storage
from lilliput.engine.source import check_whole
from lilliput.errors import LilliputError
from lilliput.machine import footprint
from lilliput.model.config import Config, read_config
from lilliput.model.layout import layout
from lilliput.model.state import KdaState, State
from lilliput.weights.layout import HEAD

TARGET_THREADS = 2  # of the released model's seconds per token

Progress = Callable[[int, int], None]


def products(config: Config, tokens: int) -> int:
    """Multiply-adds of one pass over a prompt of `tokens`, logits of the last one included; norms, gates and mixing are not counted."""
    wanted = layout(config)
    head = config.vocab_size * config.hidden_size
    trunk = sum(t.parameters for t in wanted.tape() if t.name != HEAD)
    experts = wanted.experts
    routed = experts.parameters * len(experts.layers) * config.moe.top_k if experts else 0
    kda_layers = sum(config.is_kda)
    recurrence = 3 * kda_layers * config.kda.num_heads * config.kda.head_dim**2
    mla = config.mla
    each_position = (config.num_layers - kda_layers) * mla.num_heads * (2 * mla.kv_lora_rank + mla.qk_rope_head_dim)
    return tokens * (trunk + routed + recurrence) + head + each_position * tokens * (tokens + 1) // 2


def pass_bytes(config: Config, tokens: int, threads: int) -> int:
    """What the plan counts for a pass in flight over `tokens` prompt tokens, beside the state and its result."""
    each = tokens * footprint.token_bytes(config) + footprint.change_bytes(config, tokens)
    return each + footprint.scratch_bytes(config, tokens, threads)


def reserve_for(config: Config, tokens: int, threads: int) -> int:
    """What a pass of `tokens` takes beyond the single token that a plan for `prompt=1` counts."""
    return pass_bytes(config, tokens, threads) - pass_bytes(config, 1, threads)


@dataclass(slots=True)
class Length:
    """One length of pass, and what its rounds brought."""

    tokens: int
    memory: int = 0  # most bytes of arrays that were alive at once, beyond the empty state
    seconds: list[float] = field(default_factory=list)
    peaks: list[Sample] = field(default_factory=list)  # of the same rounds
    crowded: list[float] = field(default_factory=list)  # seconds of the same passes beside a busy core, where asked for
    split: Split = field(default_factory=Split)


@dataclass(slots=True)
class Prefill:
    """What was measured; `interrupt`: what ended it early."""

    engine: Engine
    lengths: list[Length]
    repeats: int
    same_ids: bool
    interrupt: BaseException | None = None

    def as_dict(self) -> dict[str, Any]:
        source = self.engine.source
        whole = read_config(source.directory)
        return {
            "rounds": self.repeats,
            "budget_bytes": self.engine.plan.budget,
            "trunk": storage(self.engine),
            "same_ids": self.same_ids,
            "interrupted": self.interrupt is not None,
            "processor_granted": median(granted) if (granted := [peak.granted for x in self.lengths for peak in x.peaks]) else None,
            "passes": [self._row(length, whole) for length in self.lengths if length.seconds],
        }

    def _row(self, length: Length, whole: Config) -> dict[str, Any]:
        config, n = self.engine.config, length.tokens
        work = products(config, n)
        planned = n * footprint.token_bytes(config) + footprint.change_bytes(config, n) + footprint.latent_bytes(config, n)
        rate = Spread.of([n / s for s in length.seconds])
        row: dict[str, Any] = {
            "tokens": n,
            "seconds": asdict(Spread.of(length.seconds)),
            "tokens_per_s": asdict(rate),
            "gflop_per_s": asdict(Spread.of([2e-9 * work / s for s in length.seconds])),
            "share_of_peak": asdict(
                Spread.of([work / s / peak.rate("products") for s, peak in zip(length.seconds, length.peaks, strict=True)])
            ),
            "bytes_per_token": length.memory / n,
            "planned_bytes_per_token": planned / n,
            "busy_core": self._crowded(length),
            "split": length.split.as_dict(config.hidden_size),
            "scaled": None,
        }
        factor = 1.0
        if config.num_layers < whole.num_layers:
            factor = products(whole, n) / work
            row["scaled"] = {"layers": whole.num_layers, "factor": factor, "tokens_per_s": rate.median / factor}
        if n == 1 and layout(whole) == layout(k3()) and _core.threads() == TARGET_THREADS:
            seconds = factor / rate.median
            row["decode"] = {"seconds": seconds, "at_most": DECODE_SECONDS, "met": seconds <= DECODE_SECONDS}
        return row

    def _crowded(self, length: Length) -> dict[str, Any] | None:
        """Times beside a busy core over those without, of the same rounds."""
        if not length.crowded:
            return None
        slower = [busy / alone for busy, alone in zip(length.crowded, length.seconds, strict=False)]  # an interrupt may leave one over
        return asdict(Spread.of(slower)) | {"in_proportion": in_proportion(_core.threads())}


def measure_prefill(
    engine: Engine,
    lengths: Sequence[int],
    *,
    repeats: int = 3,
    same_ids: bool = False,
    busy: BusyCore | None = None,
    progress: Progress | None = None,
) -> Prefill:
    """Time single passes of each of `lengths` tokens. The engine must have been opened with `reserve_for` the longest.

    With `same_ids` every round plays those of the first, whose experts are in memory then, where they fit. With `busy` every pass is played
    again beside it. An interrupt ends the measuring and is kept in the result.
    """
    check_whole("--repeats", repeats, 1)
    found = Prefill(engine, [Length(n) for n in lengths], repeats, same_ids)
    _bench.set_threads(_core.threads())
    done, steps = 0, len(lengths) * (1 + repeats)

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, steps)

    try:
        _play(engine, _begun(engine), _ids(engine, 1, 0))  # what is made once, by whatever pass comes first
        for length in found.lengths:
            length.memory = _peak_bytes(engine, length.tokens)
            tick()
        rounds = rounds_of(_core.isa(), PEAK_SECONDS)
        for number in range(repeats):
            for length in found.lengths:
                length.peaks.append(timed(lambda: Work(_bench.peak(_core.isa(), rounds)), _core.threads()))
                before = length.split.wall
                state, ids = _begun(engine), _ids(engine, length.tokens, 0 if same_ids else number + 1)
                with length.split.counting(engine):
                    _play(engine, state, ids)
                del state  # before the next one is made: the plan counts one
                length.seconds.append(length.split.wall - before)
                if busy is not None:
                    state = _begun(engine)
                    with busy.working():
                        start = time.perf_counter()
                        _play(engine, state, ids)
                        length.crowded.append(time.perf_counter() - start)
                    del state
                tick()
    except LilliputError:
        raise
    except BaseException as interrupt:  # Ctrl-C or SIGTERM: the caller reports what is there, and ends as it would have
        if isinstance(interrupt, Exception):
            raise
        found.interrupt = interrupt
        for length in found.lengths:
            del length.peaks[len(length.seconds) :]
    return found


def _ids(engine: Engine, tokens: int, seed: int) -> list[int]:
    usable = np.array([i for i in range(engine.source.usable_ids or engine.config.vocab_size) if i not in engine.config.media_ids])
    return np.random.default_rng((tokens, seed)).choice(usable, tokens).tolist()  # type: ignore[no-any-return]


def _play(engine: Engine, state: State, ids: Sequence[int]) -> None:
    """One pass, whatever chunk the plan has chosen."""
    for _ in scheduler.run(engine.model, [scheduler.Work(state, ids, [len(ids) - 1])], len(ids)):
        pass


def _begun(engine: Engine) -> State:
    """An empty state, most of whose memory has been touched: the pages of a new one are made as the first pass comes to them."""
    state = State(engine.config)
    for layer in state.layers:
        if isinstance(layer, KdaState):
            layer.s.fill(0)
    return state


def _peak_bytes(engine: Engine, tokens: int) -> int:
    """The most bytes of arrays that a pass has alive at once, beside the state it begins with."""
    ids = _ids(engine, tokens, 0)
    gc.collect()
    tracemalloc.start()
    try:
        state = _begun(engine)
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        _play(engine, state, ids)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
