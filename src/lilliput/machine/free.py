"""The budget against the machine: what is safely free, whether a plan fits into it, and when to step back during a run."""

from __future__ import annotations

from dataclasses import replace

import psutil

from lilliput.errors import DoesNotFitError
from lilliput.machine.memory import GB, Free, Pressure, format_size
from lilliput.machine.plan import Budget, Plan

HEADROOM_SHARE = 0.05  # of what is free, left to everybody else when the user names no budget
HEADROOM_LEAST, HEADROOM_MOST = GB // 4, 4 * GB
STALLED = 5.0  # percent of ten seconds in which nobody got on for want of memory: swap or reclaim is eating the machine
STEP = 8  # a stalled machine gets back an eighth of the cache at a time


def own_memory() -> int:
    """Resident bytes of this process now."""
    return int(psutil.Process().memory_info().rss)


def headroom(free: int) -> int:
    """What is left to others of `free` bytes: a twentieth, at least 0.25 and at most 4 GB, never more than half."""
    return min(max(int(HEADROOM_SHARE * free), HEADROOM_LEAST), HEADROOM_MOST, free // 2)


def settle(budget: Budget, free: Free, own: int) -> Budget:
    """The budget with its total filled in: what the user said, else what is free by the tightest authority less headroom.

    `own`: resident bytes of this process, which are part of the budget and no longer free.
    """
    if budget.total is not None:
        return budget
    reserve = headroom(free.nbytes)
    source = f"free memory ({free.name}: {format_size(free.nbytes)}, less {format_size(reserve)} for others)"
    return replace(budget, total=free.nbytes - reserve + own, source=source)


def refuse_overdraft(plan: Plan, free: Free, own: int) -> None:
    """Raises DoesNotFitError when the machine cannot give what the plan takes; `own` as in `settle`."""
    there = free.nbytes + own
    if plan.total > there:
        raise DoesNotFitError(
            f"{plan.source} {format_size(plan.budget)}: the plan takes {format_size(plan.total)}, and only {format_size(there)} can be had "
            f"({free.name}): short by {format_size(plan.total - there)}; use --memory {format_size(_down(there))} or less, or end what "
            "uses the memory"
        )


def _down(nbytes: int) -> int:
    """For advice: whole tens of MB where there are some."""
    step = 10_000_000
    return nbytes // step * step or nbytes


def step_back(slots: int, planned: int, slot_bytes: int, free: int, pressure: Pressure | None) -> int:
    """How many experts the cache should hold now, of `planned`, when it holds `slots` and `free` bytes are left to the machine.

    It gives back what is missing to the headroom, and an eighth when tasks stall for want of memory. It grows again, an eighth of the
    plan at a time, while nobody waits and twice the headroom would still be free afterwards. Pure; asked between passes.
    """
    step = max(planned // STEP, 1)
    reserve = headroom(free + slots * slot_bytes)  # of what others have and could have
    stalled = pressure is not None and pressure.full >= STALLED
    missing = max(-(-(reserve - free) // slot_bytes), step if stalled else 0)
    if missing > 0:
        return max(slots - missing, 0)
    calm = pressure is None or pressure.some == 0
    if slots < planned and calm and free - step * slot_bytes >= 2 * reserve:
        return min(slots + step, planned)
    return slots
