"""What several benches print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from lilliput.bench import split
from lilliput.cli.tables import table

BUSY = 0.95  # below that, figures of several threads tell more of the neighbours than of the kernels


def show_busy(out: Console, granted: float | None, threads: int) -> None:
    """Say so when the threads did not get the processors they asked for."""
    if granted is not None and granted < BUSY:
        asked = f"{threads} thread{'s' * (threads != 1)}"
        out.print(f"the machine was busy: {asked} got {100 * granted:.0f} % of the processors asked for")


def bound(found: dict[str, Any]) -> str | None:
    """The target in a ratio's report, if it has one."""
    return next((f"{what.replace('_', ' ')} {found[what]:g}" for what in ("at_least", "at_most") if what in found), None)


def rounds(count: int) -> str:
    return f"{count} round{'s' * (count != 1)}"


def met(is_met: bool) -> str:
    return "met" if is_met else "missed"


def show_splits(out: Console, names: Sequence[str], splits: Sequence[dict[str, Any]]) -> None:
    """Milliseconds per pass by kind of kernel (`Split.as_dict`), one column per split."""
    if not splits:
        return
    shown = table("ms per pass", *names)
    for what, seconds in split.table(splits):
        shown.add_row(what, *(f"{1000 * s:.4g}" for s in seconds))
    overheads = [found["overhead"] for found in splits]
    shares = [f"{100 * o['share']:.1f} %" + (f" {met(o['met'])}" if "met" in o else "") for o in overheads]
    stated = f"at most {100 * overheads[0]['at_most']:g} %" if "at_most" in overheads[0] else "no target for a model so small"
    shown.add_row(f"Python, forks and joins, {stated}", *shares)
    out.print(shown)
