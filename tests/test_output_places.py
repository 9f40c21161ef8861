"""Outputs that are no names of their own (an open descriptor, a shell's `>(command)`), and files that somebody else writes, too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lilliput
from lilliput.cli.main import run
from lilliput.engine.engine import Engine
from lilliput.engine.session import Session
from lilliput.errors import UsageError
from lilliput.machine.output import output_path, replacing
from lilliput.trace import read_trace

TINY_A = str(Path(__file__).parent / "oracle" / "tiny-a")
LILLIPUT = f"{sys.executable} -m lilliput"
GENERATE = f"{LILLIPUT} generate {TINY_A} --ids 1,2,3 -n 2 -q"


def shell(line: str, place: Path) -> str:
    return subprocess.run(["bash", "-c", line], cwd=place, capture_output=True, text=True, check=True).stdout


def test_what_stdout_leads_to_is_gone_on_with(tmp_path: Path) -> None:
    """A pipe cannot be replaced, and the file behind stdout belongs to the shell: what was written there before stays."""
    text, report = shell(f"{GENERATE} --json /dev/stdout | cat", tmp_path).split("\n", 1)
    ids = json.loads(report)["ids"]
    assert text == ",".join(map(str, ids))
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "link") if sys.platform == "linux" else ("/dev/stdout", "/dev/fd/1"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to("/dev/stdout")
        shell(f"(echo header; {GENERATE} --json {name}) > f", tmp_path)
        header, text, report = (tmp_path / "f").read_text().split("\n", 2)
        assert header == "header"
        assert text == ",".join(map(str, ids))
        assert json.loads(report)["ids"] == ids


def test_a_command_that_reads(tmp_path: Path) -> None:
    shell(f"{GENERATE} --json >(cat > j) --trace-experts >(cat > t) --logits >(cat > l); wait", tmp_path)
    shell(f"{LILLIPUT} logits {TINY_A} --ids 1,2,3 -q -o /dev/stdout | cat > o", tmp_path)
    assert len(json.loads((tmp_path / "j").read_bytes())["ids"]) == 2
    assert read_trace(tmp_path / "t").tokens == 4
    assert np.array_equal(np.load(tmp_path / "l")[:1], np.load(tmp_path / "o"))


@pytest.mark.parametrize(("mode", "message"), [("closed", "Bad file descriptor"), ("read", "for reading only|cannot be written")])
def test_a_descriptor_that_takes_nothing_is_refused_before_the_work(mode: str, message: str) -> None:
    handle = os.open(os.devnull, os.O_RDONLY)
    if mode == "closed":
        os.close(handle)
    try:
        with pytest.raises(UsageError, match=message):
            output_path(f"/dev/fd/{handle}", "-o")
    finally:
        if mode == "read":
            os.close(handle)


def test_a_session_is_no_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "p")
    for name in (str(tmp_path / "p"), "/dev/null"):
        assert run(["generate", TINY_A, "--ids", "1", "--session", name]) == 2
        assert "--session" in capsys.readouterr().err


def test_two_that_write_one_file_at_a_time_each_write_their_own(tmp_path: Path) -> None:
    with replacing(tmp_path / "f") as one:
        one.write(b"on")
        with replacing(tmp_path / "f") as other:
            other.write(b"other")
        assert (tmp_path / "f").read_bytes() == b"other"
        one.write(b"e")
    assert (tmp_path / "f").read_bytes() == b"one"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("there", [False, True])
def test_a_session_that_another_run_has_saved_meanwhile_is_kept(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    base = [1, 2]
    if there:
        assert run(["generate", TINY_A, "--ids", "1,2", "-n", "1", "--session", "s", "--json", "-"]) == 0
        base += json.loads(capsys.readouterr().out)["ids"]
    arguments = ["generate", TINY_A, "--session", "s", "-n", "2", "-q", "--ids"]
    honest = Engine.generate

    def generate(self: Engine, *given: Any, **options: Any) -> Any:
        """While this run is under way another begins and ends."""
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "generate", honest)
            assert run([*arguments, "7"]) == 0
        return honest(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "generate", generate)
        assert run([*arguments, "9", "--json", "j"]) == 1
    err = capsys.readouterr().err
    (beside,) = tmp_path.glob("s.*")
    assert f"this run's is {beside}" in err
    with lilliput.open(TINY_A) as engine:
        theirs, ours = (Session.load(engine, tmp_path / name).ids for name in ("s", beside.name))
    before = base if there else []
    assert theirs[:-2] == [*before, 7]
    assert ours == [*before, 9, *json.loads((tmp_path / "j").read_bytes())["ids"]]
    assert run([*arguments, "9"]) == 0, "who looks again may go on"


def everything(directory: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


OVERWRITTEN = {
    "logits": ["logits", "T", "--ids", "1", "-o", "T/model-00001-of-000003.safetensors"],
    "logits over its prompt": ["logits", "T", "-f", "p", "-o", "p"],
    "logits by a link": ["logits", "T", "--ids", "1", "-o", "link"],
    "logits in a hub's cache": ["logits", "snapshot", "--ids", "1", "-o", "blobs/config.json"],
    "generate": ["generate", "T", "--ids", "1", "-n", "1", "--json", "T/model.safetensors.index.json"],
    "generate beside the shards": ["generate", "T", "--ids", "1", "-n", "1", "--session", "T/new"],
    "generate over its packed tape": ["generate", "T", "--ids", "1", "-n", "1", "--json", "T.lilliput/manifest.json"],
    "generate over its prompt": ["generate", "demo", "-f", "p", "-n", "1", "--session", "p"],
    "tokenize": ["tokenize", "demo", "-f", "p", "--json", "./p"],
    "compare, first": ["compare", "a.npy", "b.npy", "--json", "a.npy"],
    "compare, second": ["compare", "a.npy", "b.npy", "--json", "b.npy"],
    "inspect": ["inspect", "T", "--json", "T/config.json"],
    "plan": ["plan", "T", "--json", "T/config.json"],
    "pack": ["pack", "T", "--json", "T/config.json"],
    "verify": ["verify", "T.lilliput", "--json", "T.lilliput/manifest.json"],
    "simulate": ["simulate", "p", "--json", "p"],
    "bench open": ["bench", "open", "T", "--json", "T/config.json"],
    "bench disk": ["bench", "disk", "p", "--json", "p"],
    "bench decode": ["bench", "decode", "T", "--json", "T/config.json"],
}


@pytest.mark.parametrize("case", OVERWRITTEN)
def test_no_output_takes_the_place_of_an_input(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(TINY_A, "T")
    Path("T.lilliput").mkdir()
    Path("T.lilliput/manifest.json").write_text("{}")
    Path("p").write_text("Once")
    Path("link").symlink_to("T/config.json")
    Path("blobs").mkdir()
    Path("snapshot").mkdir()
    for file in Path("T").iterdir():
        shutil.copy(file, "blobs")
        (Path("snapshot") / file.name).symlink_to(Path("../blobs") / file.name)
    for name in ("a.npy", "b.npy"):
        np.save(name, np.ones((2, 3), np.float32))
    before = everything(tmp_path)
    assert run(OVERWRITTEN[case]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "needed two files" in err or "needed a place outside of" in err
    assert everything(tmp_path) == before
