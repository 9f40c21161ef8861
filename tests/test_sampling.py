"""Sampling: Philox against its published vectors, the filters against a plain float64 program, chance against chi-square."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from contract import everywhere
from hypothesis import given, settings
from hypothesis import strategies as st

from lilliput import _core
from lilliput.engine.sampling import Sampling
from lilliput.errors import NumericError, UsageError

F = np.float32
WORD = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (2**64 - 1, (WORD, WORD, WORD, WORD), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (0x299F31D0A4093822, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_philox_known_answers(key: int, counter: tuple[int, ...], words: tuple[int, ...]) -> None:
    """The vectors published with the generator; a key is low word, then high word."""
    assert _core.philox4x32(key, counter) == words


def uniform(seed: int, position: int, choice: int) -> float:
    words = _core.philox4x32(seed, (position & WORD, position >> 32, choice & WORD, choice >> 32))
    return ((words[1] << 32 | words[0]) >> 11) / 2.0**53


def survivors(logits: np.ndarray, temp: float, top_k: int, top_p: float, min_p: float) -> tuple[list[int], list[float]]:
    """Ids in order (-logit, id) and their shares, in float64."""
    order = sorted(range(len(logits)), key=lambda i: (-float(logits[i]), i))
    wide = logits.astype(np.float64)
    weight = np.exp((wide - wide.max()) / temp)
    if top_k:
        order = order[:top_k]
    if top_p < 1:
        cumulative = np.cumsum([weight[i] for i in order])
        order = order[: int(np.argmax(cumulative >= top_p * cumulative[-1])) + 1]
    order = [i for i in order if weight[i] >= min_p]
    shares = np.array([weight[i] for i in order])
    return order, (shares / shares.sum()).tolist()


def slow_choice(logits: np.ndarray, temp: float, top_k: int, top_p: float, min_p: float, u: float) -> tuple[int, float]:
    """The chosen id, and how far u is from the edges of its interval (as a share)."""
    order, shares = survivors(logits, temp, top_k, top_p, min_p)
    edges = np.cumsum(shares)
    at = min(int(np.searchsorted(edges, u, side="right")), len(order) - 1)
    return order[at], float(np.abs(edges - u).min()) if len(order) > 1 else 1.0


@pytest.mark.parametrize("temp", [0.3, 1.0, 2.5])
@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p"), [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.9, 0.0), (0, 1.0, 0.05), (20, 0.8, 0.02), (1, 0.5, 1.0)]
)
def test_against_a_plain_program(temp: float, top_k: int, top_p: float, min_p: float) -> None:
    random = np.random.default_rng(4)
    compared = 0
    for position in range(300):
        logits = random.normal(0, 3, 50).astype(F)
        want, margin = slow_choice(logits, temp, top_k, top_p, min_p, uniform(99, position, 0))
        if margin < 1e-5:  # float32 exponentials may fall on the other side
            continue
        compared += 1
        assert _core.sample(logits, temp, top_k, top_p, min_p, 99, position, 0) == want
    assert compared > 280


@pytest.mark.parametrize("options", [{}, {"top_k": 4}, {"top_p": 0.75}, {"min_p": 0.1}, {"temp": 2.0, "top_k": 6, "top_p": 0.9}])
def test_distribution(options: dict[str, float]) -> None:
    """Chi-square over 20,000 positions with a fixed seed: every survivor with its share, nothing else."""
    logits = np.random.default_rng(8).normal(0, 1.5, 12).astype(F)
    sampling = Sampling(seed=7, **options)  # type: ignore[arg-type]
    n = 20_000
    counts = np.bincount([sampling.choose(logits, position) for position in range(n)], minlength=12)
    order, shares = survivors(logits, sampling.temp, sampling.top_k, sampling.top_p, sampling.min_p)
    expected = np.zeros(12)
    expected[order] = np.array(shares) * n
    assert not counts[expected == 0].any()
    kept = expected > 0
    statistic = float(((counts[kept] - expected[kept]) ** 2 / expected[kept]).sum())
    freedom = int(kept.sum()) - 1
    assert statistic < freedom + 4.5 * math.sqrt(2 * freedom)


def test_the_same_everywhere() -> None:
    """Instruction sets, threads, repetition; different for another seed, position or choice."""
    logits = np.random.default_rng(1).normal(0, 2, 3000).astype(F)

    def run(seed: int = 5, first: int = 0, choice: int = 0) -> np.ndarray:
        return np.array([_core.sample(logits, 1.0, 0, 0.95, 0.0, seed, first + i, choice) for i in range(40)])

    (same,) = everywhere(run)
    assert same.tolist() == run().tolist()
    for other in (run(seed=6), run(first=1000), run(choice=1), run(seed=5 + 2**32), run(first=2**32), run(choice=2**32)):
        assert other.tolist() != same.tolist()


def test_ties_are_in_order_of_id() -> None:
    """Equal logits, top-k 3: exactly the three lowest ids, -0 and 0 alike."""
    logits = np.zeros(30, F)
    logits[1::2] = F(-0.0)
    seen = {_core.sample(logits, 1.0, 3, 1.0, 0.0, 1, position, 0) for position in range(200)}
    assert seen == {0, 1, 2}


def test_the_cumulative_edge_is_exclusive() -> None:
    """Four equal candidates: u in [i/4, (i+1)/4) chooses i."""
    logits = np.zeros(4, F)
    for position in range(200):
        assert _core.sample(logits, 1.0, 0, 1.0, 0.0, 3, position, 0) == int(uniform(3, position, 0) * 4)


def test_top_p_keeps_the_smallest_prefix_that_reaches_it() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125])).astype(F)

    def seen(top_p: float) -> set[int]:
        return {_core.sample(logits, 1.0, 0, top_p, 0.0, 2, position, 0) for position in range(300)}

    assert seen(1e-9) == {0}
    assert seen(0.4) == {0}
    assert seen(0.6) == {0, 1}
    assert seen(0.8) == {0, 1, 2}
    assert seen(0.95) == {0, 1, 2, 3}


def test_top_p_counts_in_what_top_k_left() -> None:
    """Shares 0.4 0.3 0.3 of which top-k 2 leaves 4/7 and 3/7: top-p 0.55 keeps one, not two."""
    logits = np.log(np.array([0.4, 0.3, 0.3])).astype(F)
    assert {_core.sample(logits, 1.0, 2, 0.55, 0.0, 2, p, 0) for p in range(200)} == {0}


@pytest.mark.parametrize("temp", [0.0, 1e-9, 1e-30, 1e-300, 5e-324])
def test_no_temperature_and_hardly_any_is_argmax(temp: float) -> None:
    logits = np.array([1.0, 3.0, 3.0, -3e38, 3e38, 2.0], F)
    assert {_core.sample(logits, temp, 0, 1.0, 0.0, 1, p, 0) for p in range(20)} == {4}
    assert Sampling(temp=temp, seed=1).choose(logits, 0) == 4


@pytest.mark.parametrize("temp", [1e30, 1e38, 1e300])
def test_great_heat_makes_all_alike(temp: float) -> None:
    logits = np.array([1.0, -50.0, 20.0, 0.0], F)
    counts = np.bincount([_core.sample(logits, temp, 0, 1.0, 0.0, 1, p, 0) for p in range(2000)], minlength=4)
    assert counts.min() > 400


@settings(max_examples=200)
@given(
    logits=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40),
    temp=st.floats(0, 1e300),
    top_k=st.integers(0, 2**64 - 1),
    top_p=st.floats(0, 1, exclude_min=True),
    min_p=st.floats(0, 1),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**64 - 1),
)
def test_some_candidate_always_survives(
    logits: list[float], temp: float, top_k: int, top_p: float, min_p: float, seed: int, position: int
) -> None:
    x = np.array(logits, F)
    chosen = Sampling(temp=temp, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed).choose(x, position)
    assert 0 <= chosen < len(x)
    if top_k == 1 or min_p == 1.0:
        assert x[chosen] == x.max() or temp > 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temp", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error_with_the_place(bad: float, temp: float) -> None:
    logits = np.zeros(100, F)
    logits[41] = bad
    with pytest.raises(NumericError, match=r"output logits at position 12: .*entry 41"):
        Sampling(temp=temp, seed=1).choose(logits, 12)
    with pytest.raises(ValueError, match=r"^logits: needed finite numbers, found .* at entry 41$"):
        _core.sample(logits, 1.0, 0, 1.0, 0.0, 0, 0, 0)


def test_a_seed_is_drawn_where_needed_and_told() -> None:
    one, two = Sampling(), Sampling()
    assert isinstance(one.seed, int)
    assert 0 <= one.seed < 2**64
    assert one.seed != two.seed
    assert Sampling(temp=0.0).seed is None
    assert Sampling(temp=0.0).greedy
    assert not one.greedy
    assert Sampling(seed=0).seed == 0


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("temp", [-1e-9, math.nan, math.inf, -math.inf, "1", None, True, 10**400]),
        ("top_p", [0.0, -0.1, 1.0000001, math.nan, math.inf, "0.5", None]),
        ("top_k", [-1, 1.5, 2**64, "3", None, True]),
        ("min_p", [-0.01, 1.01, math.nan, None]),
        ("seed", [-1, 2**64, 1.0, "7", True]),
    ],
)
def test_values_out_of_range_name_the_option(option: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(UsageError, match=rf"^--{option.replace('_', '-')}: needed .*, found ") as caught:
            Sampling(**{option: value})  # type: ignore[arg-type]
        assert caught.value.exit_code == 2


def test_all_complaints_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        Sampling(temp=-1, top_p=2, top_k=-1, min_p=-1, seed=-1)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["--temp", "--top-p", "--top-k", "--min-p", "--seed"]


def test_edges_of_the_ranges_are_allowed() -> None:
    logits = np.array([0.0, 1.0], F)
    for options in ({"temp": 1}, {"top_p": 1}, {"top_p": 5e-324}, {"top_k": 2**64 - 1}, {"min_p": 0}, {"min_p": 1}, {"seed": 2**64 - 1}):
        assert Sampling(**options).choose(logits, 2**64 - 1, 2**64 - 1) in (0, 1)
    assert Sampling(temp=np.float32(0.5), top_k=np.int64(3), seed=np.uint64(9)).choose(logits, 0) in (0, 1)  # type: ignore[arg-type]
    assert Sampling(temp=Fraction(1, 2), seed=1).choose(logits, 0) in (0, 1)  # type: ignore[arg-type]
