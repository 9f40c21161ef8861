"""Every kernel at a model's true shapes against what it cannot beat and what others reach: `lilliput bench kernels`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from lilliput import _core
from lilliput.bench.kernels.contest import Contest, Key, Results, Spread
from lilliput.bench.kernels.experts import Experts
from lilliput.bench.kernels.group import OVERHEAD, Group
from lilliput.bench.kernels.kv_b import KvB
from lilliput.bench.kernels.rivals import Rivals
from lilliput.bench.kernels.small import Small
from lilliput.bench.kernels.state import Attention, Recurrence
from lilliput.bench.kernels.targets import OTHER_SHARE, target_of
from lilliput.bench.kernels.trunk import Trunk
from lilliput.engine.engine import choose_machine
from lilliput.engine.source import check_whole
from lilliput.errors import DoesNotFitError, LilliputError, UsageError
from lilliput.machine.memory import format_size, tightest
from lilliput.model.config import Config
from lilliput.model.layout import layout

GROUPS: tuple[type[Group], ...] = (Trunk, Experts, KvB, Recurrence, Attention, Small)
KERNELS = tuple(kernel for group in GROUPS for kernel in group.kernels)
LEAST_SIZE = 100_000  # bytes of weights: below, a group may come out without any
FREE_SHARE = 0.9  # of what is available may be taken

# Yardstick → what is compared; those BY_TOKENS are run with as many tokens as the kernel, doubles with one.
YARDSTICKS = {"read": "nbytes", "copy": "nbytes", "peak": "products", "doubles": "products", "numpy": "products", "torch": "products"}
BY_TOKENS = ("numpy", "torch")

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Kernels:
    """What was measured. `interrupt`: what ended it early; everything from before is there."""

    config: Config
    size: int
    repeats: int
    contest: Contest
    interrupt: BaseException | None = None

    @property
    def results(self) -> Results:
        return self.contest.results

    def verdict(self) -> LilliputError | None:
        """What is wrong with the kernels, if anything is: outputs that differ."""
        found = self.results.disagreements()
        return LilliputError("the outputs differ, which they must never do: " + "; ".join(found)) if found else None

    def cases(self) -> list[Key]:
        """Kernels that have been timed, in the order of measuring."""
        return [key for key in self.results.samples if key.name in KERNELS]

    def ratios(self, key: Key) -> dict[str, Spread]:
        """Of one kernel to every yardstick of its group; "one token": its time beside its own with one token."""
        found = {}
        for yardstick, by in YARDSTICKS.items():
            isa = key.isa if yardstick == "peak" else None
            other = Key(key.group, yardstick, key.tokens if yardstick in BY_TOKENS else 0, isa, key.threads)
            if yardstick == "doubles" and key.tokens > 1:
                continue
            if (ratio := self.results.ratio(key, other, by)) is not None:
                found[yardstick] = ratio
        if "read" in found and (stored := self.results.ratio(key, Key(key.group, "read", 0, None, key.threads), "stored")) is not None:
            found["read stored"] = stored
        one = Key(key.group, key.name, 1, key.isa, key.threads)
        if key.tokens > 1 and (slower := self.results.ratio(one, key, "products")) is not None:
            found["one token"] = Spread(*(key.tokens * value for value in asdict(slower).values()))
        return found

    def shares(self) -> list[dict[str, Any]]:
        """For every setting: seconds of a decode pass by kernel, and the small ones' share. Empty where too little was measured."""
        found = []
        for threads in self.contest.threads:
            for isa in self.contest.isas:
                seconds = self._decode_seconds(isa, threads)
                if seconds is not None:
                    small = sum(seconds.get(kernel, 0.0) for kernel in Small.kernels)
                    share = small / sum(seconds.values())
                    row = {"isa": isa, "threads": threads, "seconds": seconds, "share": share}
                    found.append(row | {"at_most": OTHER_SHARE, "met": share <= OTHER_SHARE})
        return found

    def _decode_seconds(self, isa: str, threads: int) -> dict[str, float] | None:
        """Of one token through all weights from memory, without attention: that depends on the context."""
        config = self.config
        trunk = "k12" if self.results.rates(Key("trunk", "k12", 1, isa, threads), "products") else "bf16"
        experts = layout(config).experts
        parts = {
            ("trunk", trunk, "products"): sum(t.parameters for t in layout(config).tape()),
            ("experts", "mxfp4", "products"): experts.parameters * len(experts.layers) * config.moe.top_k if experts else 0,
            ("recurrence", "kda", "nbytes"): 8 * sum(config.is_kda) * config.kda.num_heads * config.kda.head_dim**2,
        }
        seconds = {}
        for (group, name, by), amount in parts.items():
            rate = self.results.rates(Key(group, name, 1, isa, threads), by)
            if rate is None:
                return None
            seconds[name] = amount / rate.median
        for kernel in Small.kernels:
            samples = self.results.samples.get(Key("other", kernel, 1, isa, threads))
            if not samples:
                return None
            seconds[kernel] = Spread.of([sample.seconds for sample in samples.values()]).median
        return seconds

    def as_dict(self) -> dict[str, Any]:
        results, most = self.results, max(self.contest.threads)

        def case(key: Key) -> dict[str, Any]:
            samples = results.samples[key].values()
            row: dict[str, Any] = {"group": key.group, "kernel": key.name, "tokens": key.tokens, "isa": key.isa, "threads": key.threads}
            row["seconds"] = asdict(Spread.of([sample.seconds for sample in samples]))
            for name, by, factor in (("gb_per_s", "nbytes", 1e-9), ("stored_gb_per_s", "stored", 1e-9), ("gflop_per_s", "products", 2e-9)):
                rate = results.rates(key, by)
                row[name] = {what: value * factor for what, value in asdict(rate).items()} if rate else None
            ratios = {}
            for name, found in self.ratios(key).items():
                target = target_of(key.name, name, key.tokens, key.isa, key.threads, most)
                ratios[name] = asdict(found) | (target.as_dict(found) if target else {})
            return row | {"ratios": ratios}

        return {
            "size_bytes": self.size,
            "rounds": self.repeats,
            "interrupted": self.interrupt is not None,
            "isas": list(self.contest.isas),
            "threads": list(self.contest.threads),
            "processor_granted": [{"threads": n, "share": results.granted(n)} for n in self.contest.threads],
            "versions": self.contest.rivals.versions,
            "left_out": self.contest.rivals.missing,
            "kernels": [case(key) for key in self.cases()],
            "yardsticks": [case(key) for key in results.samples if key.name not in KERNELS],
            "decode": self.shares(),
            "digests": self.digests(),
            "digests_agree": not results.disagreements(),
        }

    def digests(self) -> list[dict[str, Any]]:
        """For every set of outputs, who made them and what came out."""
        return [
            {
                "outputs": outputs,
                "tokens": tokens,
                "digests": [
                    {"kernel": key.name, "isa": key.isa, "threads": key.threads, "digest": f"{digest:016x}"} for key, digest in made.items()
                ],
            }
            for (_, outputs, tokens), made in self.results.digests.items()
        ]


def measure_kernels(
    config: Config,
    *,
    kernels: Sequence[str] = KERNELS,
    size: int = 1_000_000_000,
    isas: Sequence[str] = (),
    threads: Sequence[int] = (1,),
    repeats: int = 5,
    rivals: Rivals | None = None,
    progress: Progress | None = None,
) -> Kernels:
    """Measure `kernels` at the shapes of `config`, `size` bytes of weights each, on `isas` (default: all with vectors).

    Raises UsageError for names that are not known here, DoesNotFitError before anything is allocated. An interrupt ends the measuring and
    is kept in the result. Instruction set and threads of the process are put back.
    """
    isas = _isas(isas)
    unknown = [kernel for kernel in kernels if kernel not in KERNELS]
    if unknown or not kernels:
        raise UsageError(f"--kernels: needed some of {', '.join(KERNELS)}, found {', '.join(unknown) or 'none'}")
    if size < LEAST_SIZE:
        raise UsageError(
            f"--size: needed at least {format_size(LEAST_SIZE)}, because less holds nothing to measure, found {format_size(size)}"
        )
    check_whole("--repeats", repeats, 1)
    for n in threads:
        check_whole("--threads", n, 1, _core.MOST_THREADS)
    wanted = [group for group in GROUPS if set(group.kernels) & set(kernels)]
    _refuse_too_large(wanted, config, size)
    found = Kernels(config, size, repeats, Contest(isas, tuple(threads), rivals or Rivals()))
    done, steps = 0, len(wanted) * (1 + repeats)

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, steps)

    try:
        with found.contest.settings_kept():
            for kind in wanted:
                _core.set_threads(max(threads))  # memory is touched by all of them
                with closing(kind(config, size, kernels, found.contest.rivals)) as group:
                    found.contest.measure(group.name, group.contenders, repeats, tick)
    except BaseException as interrupt:  # Ctrl-C or SIGTERM: the caller reports what is there, and ends as it would have
        if isinstance(interrupt, Exception):
            raise
        found.interrupt = interrupt
    return found


def _isas(asked: Sequence[str]) -> tuple[str, ...]:
    have = _core.isas()
    if not asked and os.environ.get("LILLIPUT_ISA"):
        return (choose_machine(None, None)[1],)
    unknown = [isa for isa in asked if isa not in have]
    if unknown:
        raise UsageError(f"--isa: needed some of {', '.join(have)} (what this machine has), found {', '.join(unknown)}")
    return tuple(asked or [isa for isa in have if isa != "scalar"] or have)


def _refuse_too_large(wanted: Sequence[type[Group]], config: Config, size: int) -> None:
    largest = max(wanted, key=lambda group: group.needs(config, size))
    needed, there = largest.needs(config, size), tightest()
    granted = int(FREE_SHARE * there.nbytes)
    if needed + OVERHEAD > granted:
        fitting = int((granted - OVERHEAD) / needed * size * 0.95) // 10**6 * 10**6
        advice = f"use --size {format_size(fitting)}" if fitting > 0 else "end what uses the memory"
        raise DoesNotFitError(
            f"--size {format_size(size)}: measuring {', '.join(largest.kernels)} takes {format_size(needed + OVERHEAD)} with what they are "
            f"compared with, and {format_size(there.nbytes)} are free ({there.name}), of which a tenth is left alone: short by "
            f"{format_size(needed + OVERHEAD - granted)}; {advice}"
        )
