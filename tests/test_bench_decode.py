"""`bench decode` on a tiny model: what is counted and what is refused. Bytes and bits are asserted, times are not."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import missing

from lilliput.bench import decode as bench
from lilliput.bench.decode import measure_decode
from lilliput.bench.extents import Play, PureReading, Raw
from lilliput.bench.split import Split
from lilliput.cli import bench_decode
from lilliput.cli.main import run
from lilliput.engine.engine import Engine
from lilliput.engine.source import Source
from lilliput.errors import LilliputError, UsageError
from lilliput.machine.free import own_memory
from lilliput.machine.memory import Free, parse_size
from lilliput.machine.plan import Budget

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not count what came from the disk")

IDS = [1, 2, 3, 4, 5]


def small_budget(model: Path) -> Budget:
    """Room for a few pins and no more, so that both trunk and experts are read in every pass, however large this process is by now."""
    least = []
    for given in ({"trunk": 1}, {"experts": 1}):
        with pytest.raises(LilliputError) as refused:
            Engine(Source(model), budget=Budget(900_000_000, **given), context=16, prompt=5)
        least.append(parse_size(str(refused.value).partition("needed at least ")[2].partition(",")[0], ""))
    return Budget(900_000_000, least[0] + 2_000_000, least[1])


@pytest.fixture
def engine(tiny_synth: Path) -> Iterator[Engine]:
    with Engine(Source(tiny_synth), budget=small_budget(tiny_synth), context=16, prompt=5, threads=1) as opened:
        yield opened


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the test's files lie: a disk is not asked for."""
    monkeypatch.setattr(bench, "_check_fetched", lambda *_: None)


@pytest.mark.usefixtures("anywhere")
def test_the_report_has_every_figure(engine: Engine) -> None:
    steps: list[tuple[int, int]] = []
    found = measure_decode(engine, IDS, tokens=2, repeats=2, progress=lambda done, total: steps.append((done, total)))
    assert (found["rounds"], found["passes_per_round"]) == (2, 2)
    assert steps == [(i + 1, 13) for i in range(13)]
    assert found["trunk"] == "in place"
    assert found["processor_granted"] > 0
    for group in ("seconds_per_pass", "gb_per_s", "ratios"):
        for values in found[group].values():
            assert 0 <= values["lowest"] <= values["median"] <= values["highest"]
    overlap = {"wall_over_limit", "streaming_over_raw", "reading_over_raw"}
    assert set(found["ratios"]) == overlap | {"reader_cpu_s_per_gb", "reading_cpu_s_per_gb"}
    ratio = found["ratios"]["wall_over_limit"]
    assert (ratio["at_most"], ratio["met"]) == (1.05, ratio["median"] <= 1.05)
    assert "met" not in found["ratios"]["reading_over_raw"]
    assert set(found["gb_per_s"]) == {"streaming", "reading", "raw, 1 thread", "raw, 4 threads"}
    assert found["computing_is"] == "the same passes, all weights in memory"
    assert found["split"]["passes"] == 4
    assert found["split"]["kernels"]["attention"]["calls"] == engine.config.num_layers - sum(engine.config.is_kda)
    assert found["split"]["waited_for_disk_s"] >= 0
    json.dumps(found)


def told(capsys: pytest.CaptureFixture[str], ratio: float, granted: float = 1.0) -> list[str]:
    """What the command shows of a round whose wall time was `ratio` of what it cannot beat."""
    spread = {"median": 1.0, "lowest": ratio, "highest": 1.0}
    found = {"rounds": 1, "passes_per_round": 4, "bytes_per_pass": spread, "budget_bytes": 700_000_000, "trunk": "packed", "threads": 2}
    found |= {"processor_granted": granted, "computing_is": "the same passes", "seconds_per_pass": {"wall": spread}, "gb_per_s": {}}
    found |= {"ratios": {"wall_over_limit": spread | {"at_most": 1.05, "met": True}}, "split": Split(1, 1.0).as_dict(64), "page_cache": []}
    bench_decode._show(found)
    return capsys.readouterr().out.splitlines()


def test_the_command_says_how_it_was_measured_and_whether_the_figures_can_be_right(capsys: pytest.CaptureFixture[str]) -> None:
    lines = told(capsys, 0.96)
    assert lines[0] == "1 round of 4 passes, 0.000 GB read per pass with 700MB, trunk packed"
    assert "computing: the same passes" in lines[1]
    assert not any("busy" in line for line in lines)
    assert any("at most 1.05" in line and line.rstrip().endswith("met") for line in lines)
    assert any("Python, forks and joins, no target for a model so small" in line for line in lines)
    assert any("the engine took less time than its reading or computing" in line for line in told(capsys, 0.65))
    assert "the machine was busy: 2 threads got 50 % of the processors asked for" in told(capsys, 0.96, granted=0.5)


@pytest.mark.usefixtures("anywhere")
def test_what_was_recorded_is_what_the_engine_read_and_reading_alone_reads_the_same(engine: Engine) -> None:
    specs, files = engine.tape.pieces, engine.tape.files
    play, step = Play(engine, specs), bench._of_engine(engine)
    step(IDS)
    assert engine.weights.experts is not None
    experts, tape = engine.weights.experts.stats, engine.weights.tape.stats
    before = (experts.reads, experts.bytes_read, tape.bytes_consumed)
    with play.recording():
        for new in (7, 8, 9):
            play.begin()
            step([new])
    assert len(play.passes) == 3
    read = [r for one in play.passes for r in one]
    assert sum(not isinstance(r, int) for r in read) == experts.reads - before[0] > 0
    unpinned = [i for i in range(len(specs)) if i not in engine.plan.pins]
    assert 0 < len(unpinned) < len(specs)
    assert [[r for r in one if isinstance(r, int)] for one in play.passes] == [unpinned] * 3
    bench._at_rest(engine)
    reading = PureReading(engine, specs, files)
    try:
        nbytes, _, _ = reading.run(play.passes)
    finally:
        reading.close()
    assert nbytes == experts.bytes_read - before[1] + tape.bytes_consumed - before[2]
    assert nbytes >= play.nbytes > 0


@pytest.mark.usefixtures("anywhere")
def test_a_model_too_large_for_memory_is_replaced_by_something_that_says_so(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "tightest", lambda: Free("a test", 1000))
    found = measure_decode(engine, IDS, tokens=1, repeats=1)
    assert found["computing_is"].startswith("the engine's wall time without its waits, because the model in memory would take")


@pytest.mark.usefixtures("anywhere")
def test_other_bits_are_never_reported_as_speed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = bench._of_model

    def wrong(*arguments: Any) -> bench.Step:
        step = honest(*arguments)
        return lambda ids: step(ids) + 1

    monkeypatch.setattr(bench, "_of_model", wrong)
    with pytest.raises(LilliputError, match="other logits"):
        measure_decode(engine, IDS, tokens=1, repeats=1)


def test_reads_that_memory_answered_are_refused(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "fetched_bytes", lambda: 0)
    with pytest.raises(LilliputError, match=r"only 0 of .* bytes came from a disk"):
        measure_decode(engine, IDS, tokens=1, repeats=1)


def test_a_budget_at_which_nothing_streams_is_refused(tiny_synth: Path) -> None:
    budget = Budget(own_memory() + 500_000_000)
    with Engine(Source(tiny_synth), budget=budget, context=16, prompt=5, threads=1) as engine:
        engine_run = bench._of_engine(engine)
        engine_run(IDS)
        if engine.plan.trunk_bytes_per_pass or engine.weights.experts is None:
            pytest.fail("the budget was meant to hold the whole model")
        with pytest.raises(UsageError, match="nothing is read at this budget"):
            measure_decode(engine, IDS, tokens=1, repeats=1)


def test_sparse_files_are_refused(tiny_synth: Path, tmp_path: Path) -> None:
    model = shutil.copytree(tiny_synth, tmp_path / "m")
    with Engine(Source(model), budget=small_budget(model), context=16, prompt=5, threads=1) as engine:
        shard = next(iter(engine.source.checkpoint.files))
        size = shard.stat().st_size
        os.truncate(shard, 0)
        os.truncate(shard, size)
        with pytest.raises(UsageError, match="found a sparse one"):
            measure_decode(engine, IDS, tokens=1, repeats=1)


def test_counts_below_one_are_refused(engine: Engine) -> None:
    for counts in ({"tokens": 0}, {"repeats": 0}):
        with pytest.raises(UsageError, match="needed 1 or more"):
            measure_decode(engine, IDS, **counts)


def test_plain_reading_covers_the_files_in_turn(tmp_path: Path) -> None:
    files = []
    for name, size in (("a", 3 * 4096 + 17), ("b", 4096)):
        (tmp_path / name).write_bytes(os.urandom(size))
        files.append((tmp_path / name, size))
    raw = Raw(files, piece=4096)
    try:
        assert raw.run(1, 1)[0] == 4096
        assert raw.run(2 * 4096 + 17, 2)[0] == 2 * 4096 + 17
        assert raw.run(4096, 1)[0] == 4096
        assert raw.run(5 * 4096 + 17, 4)[0] >= 5 * 4096 + 17
    finally:
        raw.close()


def test_the_verb(tiny_synth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = small_budget(tiny_synth)
    memory = ["--memory", "900MB", "--trunk-memory", f"{budget.trunk}B", "--expert-memory", f"{budget.experts}B"]
    arguments = ["bench", "decode", str(tiny_synth), *memory, "-n", "1", "--repeats", "1", "-t", "1"]
    code = run([*arguments, "-v", "--json", "-"])
    printed = capsys.readouterr()
    if code == 1 and "came from a disk" in printed.err:
        missing("the temporary directory is not on a disk")
    assert code == 0, printed.err
    assert "layers; " in printed.err
    report = json.loads(printed.out)
    assert report["command"] == "bench decode"
    assert report["ratios"]["wall_over_limit"]["median"] > 0
    assert run([*arguments, "-q"]) == 0
    shown = capsys.readouterr().out
    for word in ("wall / max(reading, computing)", "at most 1.05", "raw, 4 threads, GB/s", "ms per pass"):
        assert word in shown
