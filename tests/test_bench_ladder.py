"""`bench ladder` on a tiny model: what it reports, and what it refuses. Numbers of memory and ids are asserted, times are not."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hard_limit import ceiling

from lilliput.bench import ladder as bench
from lilliput.bench.ladder import Ladder, Rung, climb
from lilliput.bench.ladder_report import COLUMNS, as_csv, as_json, as_markdown
from lilliput.cli.main import run
from lilliput.errors import DoesNotFitError, LilliputError, UsageError
from lilliput.machine.ceiling import Ceiling, NoCeilingError
from lilliput.machine.lock import engine_lock

MB = 1_000_000
IDS = [1, 2, 3, 4, 5]


@pytest.fixture(scope="module")
def climbed(tiny_synth: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """The exit code of one ladder with a rung below the floor, and the folder of its reports."""
    with ceiling(100 * MB):
        pass
    folder = tmp_path_factory.mktemp("ladder")
    arguments = ["bench", "ladder", str(tiny_synth), "--rungs", "300MB,30MB,150MB,200MB", "--ids", "1,2,3,4,5", "-n", "3", "--repeats", "2"]
    for option, name in (("--json", "l.json"), ("--csv", "l.csv"), ("--markdown", "l.md")):
        arguments += [option, str(folder / name)]
    return run(arguments), folder


def report_of(climbed: tuple[int, Path]) -> dict[str, Any]:
    return json.loads((climbed[1] / "l.json").read_bytes())  # type: ignore[no-any-return]


def test_every_rung_is_there_and_the_ids_are_the_same(climbed: tuple[int, Path], tiny_synth: Path, tmp_path: Path) -> None:
    code, _ = climbed
    assert code == 0
    report = report_of(climbed)
    assert [rung["memory"] for rung in report["rungs"]] == ["30MB", "150MB", "200MB", "300MB"]
    assert report["ids_identical"] is True
    assert run(["generate", str(tiny_synth), "--ids", "1,2,3,4,5", "-n", "3", "-q", "--json", str(tmp_path / "g.json")]) == 0
    assert report["ids"] == json.loads((tmp_path / "g.json").read_bytes())["ids"]
    assert report["interrupted"] is False
    assert report["machine"]["ceiling"] in ("cgroup v1", "cgroup v2", "systemd scope")
    assert report["files"]["sparse"] is False


def test_a_rung_below_the_floor_is_refused_with_the_reason(climbed: tuple[int, Path]) -> None:
    first = report_of(climbed)["rungs"][0]
    assert (first["status"], first["runs"], first["seconds_per_token"]) == ("refused", 0, None)
    assert "short by" in first["reason"]
    assert "what would fit: --memory" in first["reason"]


def test_a_rung_that_ran_tells_times_bytes_hits_and_memory(climbed: tuple[int, Path]) -> None:
    for rung in report_of(climbed)["rungs"][1:]:
        assert (rung["status"], rung["runs"], rung["tokens_timed"]) == ("ran", 2, 4)
        s = rung["seconds_per_token"]
        assert 0 < s["lowest"] <= s["median"] <= s["highest"]
        assert rung["first_token_s"] > 0
        assert 0 <= rung["expert_hits"] <= 1
        assert 0 < rung["peak_rss_bytes"] <= rung["memory_bytes"]
        assert 0 < rung["plan_total_bytes"] <= rung["memory_bytes"]
        assert rung["group_peak_bytes"] is None or rung["group_peak_bytes"] <= rung["memory_bytes"]


def test_csv_and_markdown_hold_the_table(climbed: tuple[int, Path]) -> None:
    _, folder = climbed
    rows = list(csv.DictReader((folder / "l.csv").read_text().splitlines()))
    assert list(rows[0]) == [*COLUMNS, "reason"]
    assert [(row["memory"], row["status"]) for row in rows] == [("30MB", "refused"), ("150MB", "ran"), ("200MB", "ran"), ("300MB", "ran")]
    assert rows[0]["s/token"] == ""
    assert all(float(row["lowest"]) <= float(row["s/token"]) <= float(row["highest"]) for row in rows[1:])
    page = (folder / "l.md").read_text()
    ids = ",".join(map(str, report_of(climbed)["ids"]))
    assert f"identical in all runs ({ids})" in page
    assert "sparse" not in page
    assert "`lilliput bench ladder MODEL --rungs 30MB,150MB,200MB,300MB --ids 1,2,3,4,5 -n 3 --repeats 2`" in page
    assert f"| {' | '.join(COLUMNS)} |" in page
    for row in rows:
        assert f"| {' | '.join(row[name] for name in COLUMNS)} |" in page
    assert f"- 30MB: {rows[0]['reason']}" in page


def fake(monkeypatch: pytest.MonkeyPatch, answer: Any) -> list[list[str]]:
    """No ceiling and no child: `answer(rung in bytes, run number)` gives ids, an exit code with a message, or raises."""
    calls: list[list[str]] = []

    @contextmanager
    def none(nbytes: int) -> Iterator[Ceiling]:
        yield Ceiling("none", nbytes, None, ())

    def call(command: list[str]) -> tuple[int, str]:
        calls.append(command)
        found = answer(int(command[command.index("--memory") + 1].removesuffix("B")), len(calls))
        if isinstance(found, tuple):
            return found
        token = {"seconds": 0.5 * len(calls), "trunk_bytes": 7, "expert_bytes": 3, "hits": 1, "experts": 4}
        report = {"ids": found, "timings": {"first_token_s": 1.0}, "tokens": [token] * len(found), "peak_rss_bytes": 5}
        report |= {"plan": {"total": 6}, "versions": {}, "isa": "x", "threads": 1, "layers": 2, "checkpoint": "c"}
        report |= {"run": {"trunk": {"storage": "in place"}}}
        Path(command[command.index("--json") + 1]).write_text(json.dumps(report))
        return 0, ""

    monkeypatch.setattr(bench, "ceiling", none)
    monkeypatch.setattr(bench, "_call", call)
    return calls


def faked(rungs: list[int], repeats: int = 1) -> Ladder:
    return climb(Path("m"), rungs, ids=IDS, tokens=2, repeats=repeats)


def test_rounds_go_over_all_rungs_and_refused_ones_are_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = fake(monkeypatch, lambda size, n: (3, "lilliput: too small") if size == 1 else [8, 9])
    found = faked([3, 1, 2], repeats=2)
    assert [call[call.index("--memory") + 1] for call in calls] == ["1B", "2B", "3B", "2B", "3B"]
    assert [(rung.status, len(rung.ids)) for rung in found.rungs] == [("refused", 0), ("ran", 2), ("ran", 2)]
    assert found.rungs[1].as_dict()["seconds_per_token"] == {"median": 1.5, "lowest": 1.0, "highest": 2.0}
    assert found.rungs[1].as_dict()["bytes_read_per_token"] == 10
    assert found.rungs[1].as_dict()["expert_hits"] == 0.25
    assert found.verdict() is None
    assert calls[0][1:4] == ["-m", "lilliput", "generate"]


def test_other_ids_on_one_rung_are_an_error_that_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, lambda size, n: [8, 9 if size < 3 * MB else 7])
    code = run(["bench", "ladder", str(small_model), "--rungs", "1MB,2MB,3MB", "--repeats", "1", "--json", str(tmp_path / "l.json"), "-q"])
    assert code == 1
    assert "1MB, 2MB: 8,9; 3MB: 8,7" in capsys.readouterr().err
    report = json.loads((tmp_path / "l.json").read_bytes())
    assert report["ids_identical"] is False
    assert len(report["rungs"]) == 3


def test_a_killed_rung_is_an_error_and_not_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, lambda size, n: (137, "") if size == 1 else (4, "lilliput: bad piece\nof x") if size == 2 else [8, 9])
    found = faked([1, 2, 3])
    assert [rung.status for rung in found.rungs] == ["killed", "failed", "ran"]
    assert found.rungs[1].reason == "bad piece\nof x"
    verdict = found.verdict()
    assert type(verdict) is LilliputError
    assert "more than its ceiling" not in str(verdict) or "it took more memory" in str(verdict)


def test_if_no_rung_fits_that_is_the_exit_code(monkeypatch: pytest.MonkeyPatch, small_model: Path) -> None:
    fake(monkeypatch, lambda size, n: (3, "lilliput: too small"))
    assert run(["bench", "ladder", str(small_model), "--rungs", "1MB,2MB", "-q"]) == 3


def test_an_interrupt_keeps_the_rungs_that_are_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(size: int, n: int) -> list[int]:
        if n == 2:
            raise KeyboardInterrupt
        return [8, 9]

    fake(monkeypatch, answer)
    page = tmp_path / "l.md"
    assert run(["bench", "ladder", str(small_model), "--rungs", "1MB,2MB", "--markdown", str(page)]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert "| 1MB | ran | 1 |" in page.read_text()
    assert "Interrupted" in page.read_text()
    assert "| 2MB" not in page.read_text()


def test_another_engine_ends_the_ladder_and_is_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with engine_lock(), pytest.raises(DoesNotFitError) as held:
        engine_lock().acquire()
    calls = fake(monkeypatch, lambda size, n: (3, f"lilliput: {held.value}") if n == 2 else [8, 9])
    page, report = tmp_path / "l.md", tmp_path / "l.json"
    arguments = ["bench", "ladder", str(small_model), "--rungs", "1MB,2MB,3MB", "--markdown", str(page), "--json", str(report)]
    assert run(arguments) == 3
    assert len(calls) == 2
    assert f"lilliput: {held.value}\n" in capsys.readouterr().err
    assert [rung["status"] for rung in json.loads(report.read_bytes())["rungs"]] == ["ran", "waiting", "waiting"]
    assert json.loads(report.read_bytes())["another_engine"] == str(held.value)
    assert "| 1MB | ran | 1 |" in page.read_text()
    assert "Ended by another engine" in page.read_text()
    assert "refused" not in page.read_text()


def test_progress_says_what_is_done_and_what_is_left(
    monkeypatch: pytest.MonkeyPatch, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake(monkeypatch, lambda size, n: [8, 9])
    assert run(["bench", "ladder", str(small_model), "--rungs", "1MB,2MB", "--repeats", "1"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("1MB: 0.5 s per token; 1 of 2 runs, about ")
    assert said[0].endswith("left")
    assert said[1] == "2MB: 1 s per token; 2 of 2 runs"


def test_without_a_ceiling_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(nbytes: int) -> Ceiling:
        raise NoCeilingError("no memory ceiling can be made: because")

    monkeypatch.setattr(bench, "ceiling", none)
    assert run(["bench", "ladder", str(small_model), "--rungs", "1MB"]) == 2
    assert "no memory ceiling can be made" in capsys.readouterr().err


def test_slips_of_the_hand(monkeypatch: pytest.MonkeyPatch, small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake(monkeypatch, lambda size, n: (2, "lilliput: token id 9: needed 0 to 8"))
    with pytest.raises(UsageError, match="token id 9"):
        faked([1, 2])
    with pytest.raises(UsageError, match="-n: needed 2"):
        climb(Path("m"), [1], ids=IDS, tokens=1)
    with pytest.raises(UsageError, match="--repeats"):
        climb(Path("m"), [1], ids=IDS, tokens=2, repeats=0)
    assert run(["bench", "ladder", str(small_model), "--rungs", "1MB,soon"]) == 2
    calls = fake(monkeypatch, lambda size, n: [8, 9])
    for threads in ("0", "-1", "9999"):
        assert run(["bench", "ladder", str(small_model), "--rungs", "1MB", "--threads", threads]) == 2
        assert f"--threads: needed 1 to 1024, found {threads}" in capsys.readouterr().err
    assert not calls


def test_a_sparse_checkpoint_is_named_one(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").touch()
    with (tmp_path / "a.safetensors").open("r+b") as file:
        file.truncate(50 * MB)
    ladder = Ladder([Rung(MB)], IDS, 2, 1)
    assert as_json(ladder, tmp_path)["files"] == {"bytes": 50 * MB, "bytes_stored": 0, "sparse": True}
    assert "not a disk" in as_markdown(ladder, tmp_path)
    assert as_csv(ladder).splitlines()[1].startswith("1MB,waiting,0,")


def test_a_picture_without_matplotlib(monkeypatch: pytest.MonkeyPatch, small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    calls = fake(monkeypatch, lambda size, n: [8, 9])
    assert run(["bench", "ladder", str(small_model), "--rungs", "1MB", "--plot", "x.png"]) == 2
    assert "lilliput[plot]" in capsys.readouterr().err
    assert not calls
