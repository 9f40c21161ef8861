"""`bench prefill` on a tiny model: work, memory and calls are counted exactly; times are not asserted."""

from __future__ import annotations

import json
import re
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from demands import config_of

from lilliput import _core
from lilliput.bench import prefill as bench
from lilliput.bench.prefill import measure_prefill, products, reserve_for
from lilliput.bench.split import Split, table
from lilliput.cli.main import run
from lilliput.engine.engine import Engine
from lilliput.engine.source import Source
from lilliput.errors import LilliputError
from lilliput.machine import footprint
from lilliput.machine.plan import Budget
from lilliput.model.model import Model
from lilliput.model.state import JOURNAL_TOKENS, State

K3 = config_of("k3")


@pytest.fixture(autouse=True)
def _short_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PEAK_SECONDS", 1e-4)


@pytest.fixture
def engine(tiny_synth: Path) -> Iterator[Engine]:
    with Engine(Source(tiny_synth), budget=Budget(900_000_000), context=64, prompt=1, threads=1) as opened:
        yield opened


def test_every_length_is_one_pass_with_its_speed_memory_and_split(engine: Engine) -> None:
    steps: list[tuple[int, int]] = []
    found = measure_prefill(engine, [1, 8, 40], repeats=2, progress=lambda done, total: steps.append((done, total)))
    assert steps == [(i + 1, 9) for i in range(9)]
    report = found.as_dict()
    json.dumps(report)
    assert (report["budget_bytes"], report["trunk"]) == (900_000_000, "in place")
    assert report["processor_granted"] > 0
    config = engine.config
    assert [row["tokens"] for row in report["passes"]] == [1, 8, 40]
    for row in report["passes"]:
        n = row["tokens"]
        for name in ("seconds", "tokens_per_s", "gflop_per_s", "share_of_peak"):
            assert 0 < row[name]["lowest"] <= row[name]["median"] <= row[name]["highest"]
        planned = footprint.change_bytes(config, n) + n * footprint.token_bytes(config) + footprint.latent_bytes(config, n)
        assert row["planned_bytes_per_token"] == planned / n
        assert row["bytes_per_token"] * n < planned + 300_000  # Python's own objects
        assert row["scaled"] is None
        assert "decode" not in row
        split = row["split"]
        assert split["passes"] == 2
        calls = {kind: found["calls"] for kind, found in split["kernels"].items()}
        layers, kda, moe = config.num_layers, sum(config.is_kda), sum(config.is_moe(i) for i in range(config.num_layers))
        assert calls["kda"] == (2 * kda if n <= JOURNAL_TOKENS else kda)  # a short span is replayed into the state when it is committed
        assert calls["attention"] == layers - kda
        assert calls["kv_b"] == 2 * (layers - kda)
        assert calls["router"] == moe
        assert calls["mixing"] == 2 * layers  # all but the very first, and one at the end
        assert calls["experts"] >= moe  # those that are there go together
        assert calls["bf16"] >= len(list(engine.source.layout.tape())) - (layers - kda)
    assert report["passes"][2]["bytes_per_token"] > 0.5 * report["passes"][2]["planned_bytes_per_token"]


def test_other_ids_every_round_and_an_empty_sequence_every_pass(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[int, ...], int]] = []
    honest = Model.forward

    def forward(self: Model, spans: Any, **how: Any) -> None:
        seen.extend((span.ids, span.state.position) for span in spans)
        honest(self, spans, **how)

    monkeypatch.setattr(Model, "forward", forward)
    measure_prefill(engine, [1, 8], repeats=3)
    assert [len(ids) for ids, _ in seen] == [1, 1, 8] + 3 * [1, 8]  # whatever comes first, memory, rounds
    assert all(position == 0 for _, position in seen)
    eights = [ids for ids, _ in seen if len(ids) == 8]
    assert len(set(eights)) == 4
    assert not any(i in engine.config.media_ids or i >= engine.source.usable_ids for ids in eights for i in ids)


def test_no_more_states_at_once_than_are_planned(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[int] = []

    class Counted(State):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            alive.append(1)
            weakref.finalize(self, alive.pop)
            assert len(alive) == 1

    monkeypatch.setattr(bench, "State", Counted)
    measure_prefill(engine, [1, 8], repeats=2)


def test_the_same_ids_every_round_where_asked(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    honest = Model.forward

    def forward(self: Model, spans: Any, **how: Any) -> None:
        honest(self, spans, **how)
        reads.append(engine.weights.disk.stats()["bytes_read"])

    monkeypatch.setattr(Model, "forward", forward)
    assert measure_prefill(engine, [8], repeats=3, same_ids=True).as_dict()["same_ids"] is True
    assert reads[0] < reads[1] == reads[2] == reads[4]  # everything fits: what one pass needed is there
    reads.clear()
    measure_prefill(engine, [8], repeats=3)
    assert reads[1] < reads[4]


def test_advice_counts_the_pass_itself(tiny_synth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "prefill", str(tiny_synth), "--tokens", "2048", "--memory", "60MB", "--repeats", "1"]) == 3
    err = capsys.readouterr().err
    assert re.search(r"what would fit: --memory \d+MB.*; the pass of 2,048 tokens takes [\d.]+MB of it: try fewer --tokens", err)
    assert run(["bench", "prefill", str(tiny_synth), "--tokens", "64", "--memory", "900MB", "--repeats", "1", "--json", "-"]) == 0
    lines = json.loads(capsys.readouterr().out)["plan"]["lines"]
    reserve = reserve_for(Source(tiny_synth).config, 64, _core.threads())
    assert [line["nbytes"] for line in lines if line["name"] == "reserve"] == [reserve]
    assert reserve > 63 * footprint.token_bytes(Source(tiny_synth).config)


def test_products_of_the_released_model_by_hand() -> None:
    """The tape's 111.1 GB of bf16, sixteen experts of 33,030,144 weights in 92 layers, three multiply-adds per number of the KDA state, and
    1,088 per head and position seen; the head once."""
    tape = 55_553_720_320
    routed = 92 * 16 * 3 * 3072 * 3584
    state = 69 * 96 * 128 * 128 * 3
    attention = 24 * 96 * (2 * 512 + 64)
    assert products(K3, 1) == tape + routed + state + attention
    head = 163_840 * 7168
    assert products(K3, 10) == 10 * (tape - head + routed + state) + head + 55 * attention


def test_the_speed_of_a_few_layers_is_scaled_and_said_to_be(tiny_synth: Path) -> None:
    source = Source(tiny_synth, layers=4)
    with Engine(source, budget=Budget(900_000_000), context=16, prompt=1, threads=1) as engine:
        (row,) = measure_prefill(engine, [8], repeats=1).as_dict()["passes"]
    whole = Source(tiny_synth).config
    factor = products(whole, 8) / products(source.config, 8)
    assert 1.5 < factor < 3
    assert row["scaled"]["layers"] == 9
    assert row["scaled"]["factor"] == factor
    assert row["scaled"]["tokens_per_s"] == pytest.approx(row["tokens_per_s"]["median"] / factor)


def test_the_released_model_is_held_to_its_target(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "TARGET_THREADS", 1)
    monkeypatch.setattr(bench, "k3", lambda: engine.source.config)
    passes = measure_prefill(engine, [1, 8], repeats=1).as_dict()["passes"]
    assert passes[0]["decode"]["seconds"] == pytest.approx(passes[0]["seconds"]["median"])
    assert passes[0]["decode"]["met"] is True
    assert "decode" not in passes[1]


def test_a_split_adds_up() -> None:
    split = Split(
        2,
        10.0,
        1.0,
        {"bf16": 5.0, "kda": 2.0, "router": 0.0, "forks": 0.5, "joins": 0.3},
        {"bf16": 8, "kda": 2, "router": 0, "forks": 4, "joins": 4},
    )
    both = Split.together([split, split])
    assert both.as_dict(K3.hidden_size - 1)["overhead"] == {"share": pytest.approx(0.28)}  # the target is for models of K3's width
    found = both.as_dict(K3.hidden_size)
    assert found["passes"] == 4
    assert found["wall_s"] == 5.0
    assert list(found["kernels"]) == ["bf16", "kda"]
    assert found["kernels"]["bf16"] == {"seconds": 2.5, "calls": 4.0, "share": 0.5}
    assert found["waited_for_disk_s"] == 0.5
    assert found["python_s"] == pytest.approx(1.0)
    assert found["forks_and_joins_s"] == pytest.approx(0.4)
    assert found["overhead"]["share"] == pytest.approx(0.28)
    assert found["overhead"]["met"] is False
    shown = dict(table([found]))
    assert sum(
        seconds[0] for what, seconds in shown.items() if what not in ("in all", "forks and joins among the kernels")
    ) == pytest.approx(5.0)


def test_the_profile_is_off_after_a_pass_that_failed(engine: Engine) -> None:
    split = Split()
    with pytest.raises(LilliputError), split.counting(engine):
        raise LilliputError("the pass failed")
    assert split.passes == 0
    assert not any(calls for calls, _ in _core.profile_stop().values())


def test_an_interrupt_keeps_what_was_measured(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    honest, count = bench._play, 0

    def play(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == 7:  # the second round's longer pass
            raise KeyboardInterrupt
        honest(*arguments)

    monkeypatch.setattr(bench, "_play", play)
    found = measure_prefill(engine, [1, 8], repeats=3)
    assert isinstance(found.interrupt, KeyboardInterrupt)
    report = found.as_dict()
    assert report["interrupted"] is True
    assert [len(length.seconds) for length in found.lengths] == [2, 1]
    assert [row["tokens"] for row in report["passes"]] == [1, 8]


def test_the_verb(tiny_synth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["bench", "prefill", str(tiny_synth), "--tokens", "8,1", "--repeats", "1", "-t", "1", "--layers", "4"]
    assert run([*arguments, "-q"]) == 0
    shown = capsys.readouterr().out
    for word in (
        "of peak",
        "planned",
        "ms per pass",
        "experts",
        "scaled to 9 layers by arithmetic",
        "Python, forks and joins, no target for a model so small",
        "trunk in place",
    ):
        assert word in shown
    assert run([*arguments, "--json", "-"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["command"] == "bench prefill"
    assert [row["tokens"] for row in report["passes"]] == [1, 8]
    assert report["layers"] == 4


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (["--tokens", "8,x"], 2, "--tokens: needed whole numbers above zero, separated by commas, found 'x'"),
        (["--repeats", "0"], 2, "--repeats: needed at least 1, found 0"),
        (["--memory", "100KB"], 3, "--memory"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    options: list[str], code: int, complaint: str, tiny_synth: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "prefill", str(tiny_synth), "--tokens", "8", *options]) == code
    assert complaint in capsys.readouterr().err
