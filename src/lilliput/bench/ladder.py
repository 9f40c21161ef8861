"""One command at many budgets, each under a ceiling of that size: what memory buys, and that it buys no other ids.

Every run is the shipped command, `python -m lilliput generate`, in a process of its own below a ceiling that the kernel enforces, with
swap off. A budget that the engine refuses is a result, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from lilliput.errors import DoesNotFitError, LilliputError, UsageError
from lilliput.machine.ceiling import ceiling
from lilliput.machine.lock import RUNNING
from lilliput.machine.memory import format_size

KILLED = (-9, 137)
PATIENCE = 30  # seconds for a child to end after it was asked to

Progress = Callable[[int, int, str], None]  # runs done, runs in all, what the last one brought


class EngineRunningError(DoesNotFitError):
    """Another engine holds the lock: that says nothing of the budget."""


@dataclass(slots=True)
class Rung:
    """What was measured at one budget. `status`: "ran", "refused" (the plan says no), "killed" (by the ceiling) or "failed"; the last
    three with their `reason`. Times and bytes are of generated tokens behind the first, which includes the prompt and the pins."""

    nbytes: int
    status: str = "waiting"
    reason: str = ""
    ids: list[list[int]] = field(default_factory=list)  # of each run
    seconds: list[float] = field(default_factory=list)
    first_token: list[float] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    hits: int = 0
    experts: int = 0
    peak_rss: int = 0
    plan_total: int = 0
    group_peak: int | None = None

    def take(self, report: dict[str, Any], group_peak: int | None) -> None:
        """Add one finished run, from its report."""
        tokens = report["tokens"][1:]
        self.status = "ran"
        self.ids.append(report["ids"])
        self.first_token.append(report["timings"]["first_token_s"])
        self.seconds += [token["seconds"] for token in tokens]
        self.read += [token["trunk_bytes"] + token["expert_bytes"] for token in tokens]
        self.hits += sum(token["hits"] for token in tokens)
        self.experts += sum(token["experts"] for token in tokens)
        self.peak_rss = max(self.peak_rss, report["peak_rss_bytes"])
        self.plan_total = report["plan"]["total"]
        self.group_peak = max(self.group_peak or 0, group_peak) if group_peak is not None else None

    def as_dict(self) -> dict[str, Any]:
        """For reports; what was not measured is None."""
        s = self.seconds
        return {
            "memory": format_size(self.nbytes),
            "memory_bytes": self.nbytes,
            "status": self.status,
            "reason": self.reason or None,
            "runs": len(self.ids),
            "tokens_timed": len(s),
            "seconds_per_token": {"median": median(s), "lowest": min(s), "highest": max(s)} if s else None,
            "first_token_s": median(self.first_token) if self.first_token else None,
            "bytes_read_per_token": median(self.read) if self.read else None,
            "expert_hits": self.hits / self.experts if self.experts else None,
            "peak_rss_bytes": self.peak_rss or None,
            "group_peak_bytes": self.group_peak,
            "plan_total_bytes": self.plan_total or None,
        }


@dataclass(slots=True)
class Ladder:
    """All rungs; `about`: what a run said of machine and model, `kind`: how the ceiling was made. What ended it early: an `interrupt`,
    or `busy`, an engine that was not ours."""

    rungs: list[Rung]
    ids: list[int]
    tokens: int
    repeats: int
    kind: str = ""
    about: dict[str, Any] = field(default_factory=dict)
    interrupt: BaseException | None = None
    busy: EngineRunningError | None = None

    def verdict(self) -> LilliputError | None:
        """What is wrong with the ladder as a whole; refused rungs are not, unless all were."""
        seen: dict[str, list[str]] = {}
        for rung in self.rungs:
            for ids in rung.ids:
                seen.setdefault(",".join(map(str, ids)), []).append(format_size(rung.nbytes))
        if len(seen) > 1:
            said = "; ".join(f"{', '.join(dict.fromkeys(sizes))}: {ids}" for ids, sizes in seen.items())
            return LilliputError(f"the ids depend on the budget, which they must never do: {said}")
        broken = [f"{format_size(rung.nbytes)}: {rung.reason}" for rung in self.rungs if rung.status in ("killed", "failed")]
        if broken:
            return LilliputError("; ".join(broken))
        if self.busy is not None:
            return self.busy
        if not seen and self.interrupt is None:
            return DoesNotFitError(f"no rung ran; {format_size(self.rungs[-1].nbytes)}: {self.rungs[-1].reason}")
        return None


def climb(
    model: Path,
    rungs: Sequence[int],
    *,
    ids: Sequence[int],
    tokens: int,
    repeats: int = 1,
    options: Sequence[str] = (),
    progress: Progress | None = None,
) -> Ladder:
    """Generate `tokens` ids after `ids` at every budget of `rungs` (bytes), `repeats` times, in rounds over all rungs so that a busy
    moment does not fall on one. `options` go to `generate`.

    An interrupt, or another engine, ends it and is kept in the result beside all finished runs. Raises NoCeilingError where no ceiling
    can be made, UsageError for what no rung could run with.
    """
    if tokens < 2:
        raise UsageError(f"-n: needed 2 or more, found {tokens}: the first token's time is the prompt's")
    if repeats < 1:
        raise UsageError(f"--repeats: needed 1 or more, found {repeats}")
    ladder = Ladder([Rung(nbytes) for nbytes in sorted(set(rungs))], list(ids), tokens, repeats)
    if not ladder.rungs:
        raise UsageError("--rungs: needed at least one size, found none")
    done, in_all = 0, len(ladder.rungs) * repeats
    arguments = ["generate", str(model), "--ids", ",".join(map(str, ids)), "--max-tokens", str(tokens), "--quiet", *options]
    try:
        for _ in range(repeats):
            for rung in ladder.rungs:
                if rung.status in ("waiting", "ran"):
                    _run(ladder, rung, arguments)
                done += 1
                if progress:
                    progress(done, in_all, _in_short(rung))
    except EngineRunningError as error:
        ladder.busy = error
    except LilliputError:
        raise
    except BaseException as interrupt:  # Ctrl-C or SIGTERM: the caller reports what is there, and ends as it would have
        if isinstance(interrupt, Exception):
            raise
        ladder.interrupt = interrupt
    return ladder


def _run(ladder: Ladder, rung: Rung, arguments: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, ceiling(rung.nbytes) as above:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-m", "lilliput", *arguments, "--memory", f"{rung.nbytes}B", "--json", str(file)]
        code, stderr = _call(above.command(command))
        ladder.kind = above.kind
        if code == 0:
            report = json.loads(file.read_bytes())
            rung.take(report, above.peak())
            ladder.about = ladder.about or {key: report[key] for key in ("versions", "isa", "threads", "layers", "checkpoint")}
            ladder.about.setdefault("trunk", report["run"]["trunk"]["storage"])
            return
    message = stderr.strip().rpartition("lilliput: ")[2]  # --quiet: nothing but the error
    reason = message or f"exit code {code}"
    if code == UsageError.exit_code:
        raise UsageError(reason)
    if reason.startswith(RUNNING):
        raise EngineRunningError(reason)
    rung.status = "refused" if code == DoesNotFitError.exit_code else "killed" if code in KILLED else "failed"
    rung.reason = "killed by the kernel: it took more memory than its ceiling" if rung.status == "killed" else reason


def _call(command: Sequence[str]) -> tuple[int, str]:
    """(exit code, stderr). An interrupt ends the child before it goes on."""
    with tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            code = child.wait()
        finally:
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()
        stderr.seek(0)
        return code, stderr.read().decode(errors="replace")


def _in_short(rung: Rung) -> str:
    if rung.status != "ran":
        return f"{format_size(rung.nbytes)}: {rung.status}, {rung.reason}"
    return f"{format_size(rung.nbytes)}: {rung.seconds[-1]:.3g} s per token" if rung.seconds else f"{format_size(rung.nbytes)}: one token"
