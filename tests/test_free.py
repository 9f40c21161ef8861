"""The budget against the machine: what is safely free, what is refused, and when the cache steps back."""

from __future__ import annotations

import re

import pytest
from demands import demand
from hypothesis import given
from hypothesis import strategies as st

from lilliput.errors import DoesNotFitError
from lilliput.machine.free import headroom, own_memory, refuse_overdraft, settle, step_back
from lilliput.machine.memory import Free, Pressure, parse_size
from lilliput.machine.plan import Budget, make_plan

GB = 10**9
SLOT = 17_551_360


def test_without_a_budget_it_is_what_is_free_less_headroom_and_says_what_was_the_limit() -> None:
    budget = settle(Budget(None, trunk=3), Free("/sys/fs/cgroup/memory.max", 10 * GB), 200_000_000)
    assert budget.total == 10 * GB - GB // 2 + 200_000_000
    assert budget.trunk == 3
    assert "/sys/fs/cgroup/memory.max" in budget.source
    assert "10GB" in budget.source


def test_a_budget_that_was_named_stays() -> None:
    assert settle(Budget(5 * GB), Free("MemAvailable", GB), 7) == Budget(5 * GB)


def test_headroom_is_a_twentieth_within_bounds() -> None:
    assert [headroom(n) for n in (0, GB // 4, 2 * GB, 20 * GB, 1000 * GB)] == [0, GB // 8, GB // 4, GB, 4 * GB]


def test_what_the_machine_cannot_give_is_refused_with_the_limit_and_a_budget_that_works() -> None:
    model = demand()
    plan = make_plan(model, Budget(8 * GB), context=8, prompt=5)
    refuse_overdraft(plan, Free("MemAvailable", plan.total - 100), 100)
    with pytest.raises(DoesNotFitError) as refused:
        refuse_overdraft(plan, Free("/job/memory.max", 3 * GB), 123_000_000)
    assert refused.value.exit_code == 3
    message = str(refused.value)
    assert "--memory 8GB" in message
    assert "/job/memory.max" in message
    advised = parse_size(re.findall(r"--memory (\S+)", message)[-1], "test")
    refuse_overdraft(make_plan(model, Budget(advised), context=8, prompt=5), Free("/job/memory.max", 3 * GB), 123_000_000)


def test_a_small_model_runs_whatever_the_budget_says() -> None:
    """What counts is what is taken, not what was allowed."""
    plan = make_plan(demand("tiny"), Budget(224 * GB))
    refuse_overdraft(plan, Free("MemAvailable", GB), 0)


def test_own_memory_is_measured() -> None:
    assert 10_000_000 < own_memory() < 100 * GB


CALM, BUSY, STALLED = Pressure("memory", 0, 0), Pressure("memory", 3, 0), Pressure("memory", 40, 12)


def test_the_cache_keeps_its_size_while_there_is_room() -> None:
    assert step_back(1000, 1000, SLOT, 20 * GB, CALM) == 1000
    assert step_back(1000, 1000, SLOT, 20 * GB, None) == 1000
    assert step_back(500, 1000, SLOT, 2 * GB, BUSY) == 500


def test_it_gives_back_what_others_miss() -> None:
    cache = 1000 * SLOT  # 17.6 GB: a twentieth is 0.9 GB
    reserve = headroom(cache + GB // 2)
    assert step_back(1000, 1000, SLOT, GB // 2, CALM) == 1000 - -(-(reserve - GB // 2) // SLOT)
    assert step_back(1000, 1000, SLOT, 20 * GB, STALLED) == 1000 - 125
    assert step_back(3, 1000, SLOT, 0, STALLED) == 0


def test_it_grows_again_slowly() -> None:
    assert step_back(500, 1000, SLOT, 20 * GB, CALM) == 625
    assert step_back(990, 1000, SLOT, 20 * GB, None) == 1000
    assert step_back(500, 1000, SLOT, 20 * GB, BUSY) == 500


PRESSURES = st.none() | st.builds(Pressure, st.just("memory"), st.floats(0, 100), st.floats(0, 100))


@given(st.integers(0, 5000), st.integers(0, 5000), st.integers(1, 10**8), st.integers(0, 10**12), PRESSURES)
def test_it_stays_within_the_plan_and_never_swings(slots: int, more: int, slot: int, free: int, pressure: Pressure | None) -> None:
    planned = slots + more
    now = step_back(slots, planned, slot, free, pressure)
    assert 0 <= now <= planned
    if now > slots:  # growing must not bring on the next step back
        assert step_back(now, planned, slot, free - (now - slots) * slot, pressure) >= now
