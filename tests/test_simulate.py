"""The simulator against brute force on small traces, against an independent library, and the verb."""

from __future__ import annotations

import errno
import json
import re
import sys
from collections import OrderedDict
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from conftest import missing
from hypothesis import given, settings
from hypothesis import strategies as st

from lilliput.cli.main import run
from lilliput.simulate import EXPERT_BYTES, NEVER, belady, lru_curve, next_uses, replay, simulate
from lilliput.trace import HEADER, Request, Trace, TraceWriter, read_trace
from lilliput.weights.policy import POLICIES, make_policy

small = st.lists(st.integers(0, 4), min_size=0, max_size=12)


def best(keys: tuple[int, ...], capacity: int, *, bypass: bool) -> int:
    """The most hits there are, by trying every choice of what to displace."""

    @cache
    def from_here(at: int, resident: frozenset[int]) -> int:
        if at == len(keys):
            return 0
        key = keys[at]
        if key in resident:
            return 1 + from_here(at + 1, resident)
        choices = [resident] if bypass or capacity == 0 else []
        if capacity and len(resident) < capacity:
            choices.append(resident | {key})
        elif capacity:
            choices += [resident - {other} | {key} for other in resident]
        return max(from_here(at + 1, choice) for choice in choices)

    return from_here(0, frozenset())


@settings(max_examples=300)
@given(keys=small, capacity=st.integers(0, 5), bypass=st.booleans())
def test_belady_is_the_optimum(keys: list[int], capacity: int, bypass: bool) -> None:
    assert belady(np.array(keys, np.int64), capacity, bypass=bypass) == best(tuple(keys), capacity, bypass=bypass)


def test_letting_an_expert_go_at_once_can_pay() -> None:
    keys = np.array([0, 1, 0, 1])
    assert belady(keys, 1) == 1
    assert belady(keys, 1, bypass=False) == 0


@given(keys=small)
def test_next_uses(keys: list[int]) -> None:
    expected = [next((j for j in range(i + 1, len(keys)) if keys[j] == key), NEVER) for i, key in enumerate(keys)]
    assert next_uses(np.array(keys, np.int64)).tolist() == expected


@settings(max_examples=100)
@given(keys=st.lists(st.integers(0, 9), max_size=60))
def test_the_lru_curve_at_every_capacity(keys: list[int]) -> None:
    curve = lru_curve(np.array(keys, np.int64))
    assert len(curve) == len(set(keys)) + 1
    for capacity, hits in enumerate(curve):
        order: OrderedDict[int, None] = OrderedDict()
        found = 0
        for key in keys:
            found += key in order
            order[key] = None
            order.move_to_end(key)
            if len(order) > capacity:
                order.popitem(last=False)
        assert hits == found


@settings(max_examples=60)
@given(data=st.data(), capacity=st.integers(0, 12))
def test_no_policy_beats_belady(data: st.DataObject, capacity: int) -> None:
    ids = st.lists(st.integers(0, 7), min_size=3, max_size=3, unique=True)
    tokens = data.draw(st.lists(st.tuples(ids, ids), min_size=1, max_size=12))
    trace = Trace([[Request(layer, np.array([chosen], np.int32)) for layer, chosen in enumerate(token)] for token in tokens])
    bound = belady(trace.keys, capacity)
    for name in POLICIES:
        assert sum(replay(trace, make_policy(name, capacity, trace.layers, trace.experts))) <= bound


def test_an_expert_that_several_tokens_choose_is_asked_for_once() -> None:
    trace = Trace([[Request(0, np.array([[0, 1], [1, 2]], np.int32))], [Request(0, np.array([[1, 2]], np.int32))]])
    result = simulate(trace, [30, 20], expert_bytes=10)
    assert (result.passes, result.tokens, result.requests, result.distinct) == (2, 3, 5, 3)
    assert [(row.size, row.capacity, row.belady) for row in result.rows] == [(30, 3, 2), (20, 2, 2)]
    assert all(hits == 2 for hits in result.rows[0].hits.values()), "all three fit"
    assert result.lru_curve.tolist() == [0, 0, 0.4, 0.4]


def test_published_hit_rates(shared_data: Path) -> None:
    """Percent, as measured with another implementation on the same trace."""
    keys = read_trace(shared_data / "k3-expert-trace.bin").unrolled().keys
    curve = lru_curve(keys)
    assert round((len(curve) - 1) / len(keys), 2) == 0.57, "first touches"
    for capacity, lru, optimum in ((455, 0, 25.2), (911, 0, 35.8), (1367, 0, 39.8), (1823, 31.5, 42.4), (3647, 39.0, 43.3)):
        assert round(100 * curve[capacity] / len(keys), 1) == lru
        assert round(100 * belady(keys, capacity, bypass=False) / len(keys), 1) == optimum


@pytest.mark.acceptance
def test_against_libcachesim(shared_data: Path) -> None:
    try:
        import libcachesim
    except ImportError:
        missing("libcachesim is not installed: `make acceptance` does it")
    keys = read_trace(shared_data / "k3-expert-trace.bin").unrolled().keys
    curve, following = lru_curve(keys), next_uses(keys)
    for capacity in (56, 455, 911, 1367, 1595, 1823, 3647):
        lru, optimum = libcachesim.LRU(cache_size=capacity), libcachesim.Belady(cache_size=capacity)
        lru_hits = optimal_hits = 0
        for key, after in zip(keys.tolist(), following.tolist(), strict=True):
            lru_hits += lru.get(libcachesim.Request(obj_id=key, obj_size=1))
            optimal_hits += optimum.get(libcachesim.Request(obj_id=key, obj_size=1, next_access_vtime=after))
        assert curve[capacity] == lru_hits
        assert belady(keys, capacity, bypass=False) == optimal_hits


# --- the verb ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    rng = np.random.default_rng(3)
    with TraceWriter(tmp_path / "run.trace", top_k=4, expert_bytes=1_000_000) as writer:
        for _ in range(5):
            for layer in range(1, 4):
                writer.routed(layer, np.stack([rng.choice(12, 4, replace=False) for _ in range(2)]))
    return str(tmp_path / "run.trace")


def test_the_verb_prints_a_table(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", recorded, "--sizes", "4MB,36MB"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("5 passes, 10 tokens, ")
    assert lines[1].split() == ["memory", "experts", *POLICIES, "belady"]
    assert [line.split()[:2] for line in lines[2:4]] == [["4MB", "4"], ["36MB", "36"]]
    assert len(set(lines[3].split()[2:])) == 1, "where all experts fit all policies are the same"


def test_sizes_that_all_hold_everything_are_said_to(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", recorded]) == 0
    out = capsys.readouterr().out
    assert re.search(r"every size holds all experts of the trace, which take [\d.]+[MGK]B: give smaller --sizes", out)
    assert run(["simulate", recorded, "--sizes", "4MB,36MB"]) == 0
    assert "every size" not in capsys.readouterr().out


def test_the_verb_reports_json(recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["simulate", recorded, "--sizes", "4MB,20MB"]
    assert run([*common, "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["command"], report["passes"], report["tokens"], report["unrolled"]) == ("simulate", 5, 10, False)
    assert [(row["bytes"], row["experts"]) for row in report["sizes"]] == [(4_000_000, 4), (20_000_000, 20)]
    assert set(report["sizes"][0]["hit_rate"]) == {*POLICIES, "belady"}
    assert run([*common, "--unroll", "--json", str(tmp_path / "r.json")]) == 0
    unrolled = json.loads((tmp_path / "r.json").read_text())
    assert (unrolled["passes"], unrolled["requests"]) == (10, 120)
    assert "belady" in capsys.readouterr().out


def test_a_trace_that_does_not_say_its_model_is_of_the_released_one(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(recorded).write_bytes(Path(recorded).read_bytes()[HEADER.size :])
    assert run(["simulate", recorded, "--top-k", "4", "--sizes", "1GB", "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["expert_bytes"] == EXPERT_BYTES == 17_547_264
    assert report["sizes"][0]["experts"] == 56
    assert report["recorded_expert_bytes"] is None
    assert run(["simulate", recorded]) == 2
    assert "needed a multiple of top_k = 16 pairs, found 8" in capsys.readouterr().err


def test_another_size_of_experts_than_the_recorded_one_is_taken_and_said(recorded: str, capsys: pytest.CaptureFixture[str]) -> None:
    for size, experts, said in (("500KB", 8, True), ("1MB", 4, False)):
        assert run(["simulate", recorded, "--top-k", "4", "--expert-size", size, "--sizes", "4MB", "--json", "-"]) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["sizes"][0]["experts"] == experts
        assert json.loads(out)["recorded_expert_bytes"] == 1_000_000
        assert ("--expert-size 500KB: replayed so, but an expert of the recorded model took 1,000,000 bytes" in err) == said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "8"], "--sizes: needed a number and a unit"),
        (["--expert-size", "-1MB"], "--expert-size: needed"),
        (["--expert-size", ""], "--expert-size: needed"),
        (["--top-k", "16"], "run.trace was recorded with 4 experts per token"),
    ],
)
def test_the_verb_refuses(recorded: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", recorded, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_picture_without_matplotlib(recorded: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["simulate", recorded, "--top-k", "4", "--plot", "x.png"]) == 2
    captured = capsys.readouterr()
    assert "pip install 'lilliput[plot]'" in captured.err
    assert captured.out == ""


class Pyplot(MagicMock):
    """In place of matplotlib: a picture is four bytes."""

    def subplots(self, **_options: object) -> tuple[Any, Any]:
        def savefig(to: Any, **_options: object) -> None:
            with to.open("wb") if isinstance(to, Path) else nullcontext(to) as file:
                file.write(b"drew")

        figure = MagicMock()
        figure.savefig = savefig
        return figure, MagicMock()


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    canvas = SimpleNamespace(get_supported_filetypes=lambda: {"png": "", "svg": ""})
    monkeypatch.setitem(sys.modules, "matplotlib", MagicMock())
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", Pyplot())
    monkeypatch.setitem(sys.modules, "matplotlib.backend_bases", SimpleNamespace(FigureCanvasBase=canvas))


@pytest.mark.usefixtures("drawing")
def test_a_picture_is_whole_or_not_there(
    recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pictures" / "a.svg"
    file.parent.mkdir()
    command = ["simulate", recorded, "--sizes", "4MB", "--plot", str(file)]
    file.write_bytes(b"old")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("lilliput.machine.output.os.fsync", full)
        assert run(command) == 3
    assert f"{file}: could not be written: No space left on device" in capsys.readouterr().err
    assert ([*file.parent.iterdir()], file.read_bytes()) == ([file], b"old")
    assert run(command) == 0
    assert ([*file.parent.iterdir()], file.read_bytes()) == ([file], b"drew")


@pytest.mark.usefixtures("drawing")
def test_a_picture_of_an_unknown_kind_is_refused_before_the_work(recorded: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", recorded, "--plot", str(tmp_path / "a.txt")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "a.txt: needed a name that ends in one of .png, .svg" in err


@pytest.mark.acceptance
def test_a_picture(recorded: str, tmp_path: Path) -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        missing("matplotlib is not installed: `make acceptance` does it")
    for name, magic in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a", b"\x89PNG")):
        assert run(["simulate", recorded, "--sizes", "4MB,20MB", "--plot", str(tmp_path / name)]) == 0
        assert (tmp_path / name).read_bytes().startswith(magic)
    assert run(["simulate", recorded, "--plot", str(tmp_path / "a.txt")]) == 2
