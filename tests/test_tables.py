"""What is printed for people stands there whole and as it is."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

from lilliput.cli.console import Terminal
from lilliput.cli.main import run
from lilliput.engine.planning import Prospect
from lilliput.machine.costs import ASSUMED

STRANGE = "m[/bold] [fp4] :smile:"


class Screen(io.StringIO):
    """A terminal that keeps what it was shown."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def strange(tiny_synth: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_synth, tmp_path / STRANGE)


@pytest.mark.parametrize("columns", ["0", "20", "80"])
@pytest.mark.parametrize("screen", [io.StringIO, Screen], ids=["pipe", "terminal"])
def test_no_width_hides_a_number(columns: str, screen: type[io.StringIO], monkeypatch: pytest.MonkeyPatch) -> None:
    def shown() -> str:
        monkeypatch.setattr(sys, "stdout", screen())
        assert run(["inspect", "demo"]) == 0
        assert run(["plan", "demo", "--memory", "1GB"]) == 0
        return sys.stdout.getvalue()  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(Prospect, "rates", lambda self: ASSUMED)
    monkeypatch.setattr("lilliput.cli.plan.own_memory", lambda: 60_000_000)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = shown()
    assert "2,359,296" in whole
    monkeypatch.setenv("COLUMNS", columns)
    assert shown() == whole


def test_names_stand_there_as_they_are(strange: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Prospect, "rates", lambda self: ASSUMED)
    assert run(["inspect", str(strange)]) == 0
    assert f"{strange}: 9 layers" in capsys.readouterr().out
    assert run(["pack", str(strange)]) == 0
    assert STRANGE in capsys.readouterr().err
    assert run(["plan", str(strange), "--memory", "1GB", "-v"]) == 0
    out, err = capsys.readouterr()
    assert f"packed, {strange}.lilliput" in out
    assert STRANGE in err


def test_notes_stand_there_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().note(f"{STRANGE}: saved")
    assert capsys.readouterr().err == f"{STRANGE}: saved\n"
