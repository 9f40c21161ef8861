"""`lilliput plan` as scripts and people see it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lilliput.cli.main import run
from lilliput.engine.planning import Prospect
from lilliput.machine.costs import ASSUMED, Rates

GB = 10**9


@pytest.fixture(autouse=True)
def assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No measuring: other tests do."""
    monkeypatch.setattr(Prospect, "rates", lambda self: ASSUMED)


def plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["plan", *arguments, "--json", "-", "-q"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_the_table_has_every_item_and_adds_up(tiny_synth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(tiny_synth), "--memory", "2GB", "-c", "256"]) == 0
    shown = capsys.readouterr().out
    report = plan(capsys, str(tiny_synth), "--memory", "2GB", "-c", "256")
    for line in report["lines"]:
        assert line["name"] in shown
    assert report["total"] == sum(line["nbytes"] for line in report["lines"]) <= report["budget"] == 2 * GB
    assert "256 positions" in shown
    assert "bytes read per pass" in shown
    assert "s per token" in shown
    assert ASSUMED.source in shown


def test_the_full_size_at_two_gigabytes(k3_sparse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = plan(capsys, str(k3_sparse), "--memory", "2GB", "-c", "8", "--prompt", "5")
    assert report["total"] <= 2 * GB
    assert report["chunk"] == 5
    assert report["here"] is None
    # The tape is 111,107,440,640 bytes; pieces begin and end anywhere, so a few thousand bytes a piece come on top.
    read = report["trunk_bytes_per_pass"] + report["pin_bytes"]
    assert 0 <= read - 111_107_440_640 <= 2 * 4096 * report["pieces"]
    assert report["expert_bytes_per_token"] == pytest.approx(92 * 16 * 17_547_264, rel=0.01)
    assert {line["name"]: line["nbytes"] for line in report["lines"]}["recurrent states"] == 464_633_856


def test_options_reach_the_plan(tiny_synth: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(tiny_synth)
    assert plan(capsys, model, "--preset", "desktop")["budget"] == 32 * GB
    assert plan(capsys, model, "--preset", "desktop")["source"] == "--preset desktop"
    assert "free memory" in plan(capsys, model)["source"]
    one, four = plan(capsys, model, "--memory", "4GB"), plan(capsys, model, "--memory", "4GB", "--batch", "4")
    assert (one["batch"], four["batch"]) == (1, 4)
    assert four["lines"][1]["nbytes"] == 4 * one["lines"][1]["nbytes"]
    assert plan(capsys, model, "--memory", "4GB", "--layers", "3")["pieces"] < one["pieces"]
    split = plan(capsys, model, "--memory", "4GB", "--trunk-memory", "1MB", "--expert-memory", "500KB")
    assert 0 < split["pin_bytes"] + split["ring_bytes"] <= 1_000_000
    assert split["trunk_bytes_per_pass"] > 0
    assert (split["expert_slots"] + split["window_slots"]) * 10_000 < 500_000


def test_a_file_gets_the_report_and_the_terminal_the_table(tiny_synth: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(tiny_synth), "--memory", "1GB", "--json", str(tmp_path / "plan.json")]) == 0
    assert "expert cache" in capsys.readouterr().out
    assert json.loads((tmp_path / "plan.json").read_bytes())["command"] == "plan"


def test_a_budget_beyond_this_machine_is_planned_and_said_so(k3_sparse: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(k3_sparse), "--memory", "1500GB"]) == 0
    shown, said = capsys.readouterr()
    assert "this machine could not run it" in said
    assert "100.0 %" in shown
    assert "--memory" in plan(capsys, str(k3_sparse), "--memory", "1500GB")["here"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--memory", "1MB"], 3, "what would fit: --memory"),
        (["--memory", "1GB", "--preset", "laptop"], 2, "found both"),
        (["--preset", "huge"], 2, "laptop"),
        (["--memory", "much"], 2, "--memory"),
        (["--memory", "1GB", "--trunk-memory", "1"], 2, "--trunk-memory"),
        (["--memory", "1GB", "--expert-memory", "2GB"], 3, "--expert-memory 2GB with --memory 1GB: short by"),
        (["--batch", "0"], 2, "--batch"),
        (["--context", "0"], 2, "--context"),
        (["--check-every-read"], 2, "reads no pieces"),
        (["--threads", "0"], 2, "--threads"),
    ],
)
def test_refusals(tiny_synth: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str) -> None:
    assert run(["plan", str(tiny_synth), *arguments]) == code
    out, err = capsys.readouterr()
    assert said in err
    assert out == ""


@pytest.mark.parametrize("arguments", [["--measure"], []])  # told to, and where nothing is known yet
def test_measured_rates_are_used(
    tiny_synth: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    asked = []

    def measure(files: list[Path], kind: str, shards: list[Path]) -> Rates:
        asked.append((sorted(file.suffix for file in files)[0], kind, {file.parent for file in shards}))
        return Rates(1e6, 1e9, 1e9, source="a slow disk")

    if not arguments:
        monkeypatch.setattr(Prospect, "rates", lambda self: None)
    monkeypatch.setattr("lilliput.cli.plan.measure_rates", measure)
    given = ("--memory", "4GB", "--trunk-memory", "1MB")
    report = plan(capsys, str(tiny_synth), *given, *arguments)
    assert asked == [(".safetensors", "bf16", {tiny_synth})]
    assert report["rates"]["source"] == "a slow disk"
    assert report["seconds_per_token"] >= report["trunk_bytes_per_pass"] / 1e6


@pytest.mark.parametrize("arguments", [["--memory", "1B"], ["--context", "100000000"], ["--trunk-memory", "1B"], ["--expert-memory", "1B"]])
def test_what_cannot_be_planned_is_refused_before_anything_is_measured(
    tiny_synth: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    measured: list[str] = []

    def measure(*given: object) -> Rates:
        measured.append(str(given))
        return ASSUMED

    monkeypatch.setattr("lilliput.cli.plan.measure_rates", measure)
    budget = [] if "--memory" in arguments else ["--memory", "1GB"]
    assert run(["plan", str(tiny_synth), "--measure", *budget, *arguments]) == 3
    assert arguments[0].removeprefix("--") in capsys.readouterr().err
    assert not measured
