"""Files a run leaves: refused before the work, whole or not there, and never instead of something that is no file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lilliput.cli.main import run
from lilliput.errors import DoesNotFitError, LilliputError, UsageError
from lilliput.machine.output import output_path, replacing
from lilliput.machine.places import expand

TINY_A = str(Path(__file__).parent / "oracle" / "tiny-a")
NO_PLACES = {
    "no such directory": ("absent/x", "make it first"),
    "a directory": (".", "found a directory"),
    "no such user": ("~no-such-user-here/x", "home directory is not known"),
    "too long": ("x" * 300, "too long"),
    "a loop of links": ("loop", "loop|levels"),
    "below a file": ("file/x", "make it first|Not a directory"),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("before")
    return tmp_path


@pytest.mark.parametrize("case", NO_PLACES)
@pytest.mark.parametrize("option", ["--json", "--logits", "--session", "-o"])
def test_what_cannot_be_written_is_refused_before_the_work(case: str, option: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given, message = NO_PLACES[case]
    verb = ["logits"] if option == "-o" else ["generate", "-n", "1"]
    assert run([*verb, TINY_A, "--ids", "1", option, given]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert ("--output" if option == "-o" else option) in err
    assert any(part in err for part in message.split("|"))


@pytest.mark.parametrize("verb", ["inspect", "tokenize", "synth", "generate", "bench", "simulate", "compare", "logits"])
def test_a_home_that_is_not_known_is_a_usage_error_everywhere(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = "~no-such-user-here/x"
    rest = {
        "inspect": [bad],
        "tokenize": [bad, "x"],
        "synth": [bad, "--shape", "tiny"],
        "generate": [TINY_A, "-f", bad],
        "bench": ["open", bad],
        "simulate": [bad],
        "compare": [bad, bad],
        "logits": [bad, "--ids", "1", "-o", "x"],
    }
    assert run([verb, *rest[verb]]) == 2
    assert "home directory is not known" in capsys.readouterr().err


def test_an_empty_path_is_not_the_current_directory() -> None:
    with pytest.raises(UsageError, match="MODEL: needed a path, found nothing"):
        expand("", "MODEL")
    assert run(["generate", "", "--ids", "1"]) == 2


def test_what_is_no_regular_file_is_written_to_and_stays(place: Path) -> None:
    """As `--json /dev/null`: renaming a file over it would take the device away from everybody."""
    os.mkfifo(place / "pipe")
    reader = os.open(place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with replacing(place / "pipe") as out:
        out.write(b"text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert (place / "pipe").is_fifo()


def test_a_link_stays_a_link(place: Path) -> None:
    (place / "link").symlink_to("file")
    with replacing(output_path("link", "-o")) as out:
        out.write(b"after")
    assert (place / "link").is_symlink()
    assert (place / "file").read_text() == "after"


def fail(path: Path, error: BaseException) -> None:
    with replacing(path) as out:
        out.write(b"half")
        raise error


def test_a_failure_leaves_what_was_there_and_nothing_else(place: Path) -> None:
    with pytest.raises(DoesNotFitError, match="file: could not be written"):
        fail(place / "file", OSError(errno.ENOSPC, "full"))
    with pytest.raises(LilliputError, match="file: could not be written"):
        fail(place / "file", OSError(errno.EIO, "bad"))
    with pytest.raises(KeyboardInterrupt):
        fail(place / "file", KeyboardInterrupt())
    assert (place / "file").read_text() == "before"
    assert sorted(p.name for p in place.iterdir()) == ["file", "loop"]


def test_a_long_name_has_a_temporary_name_that_is_not_too_long(place: Path) -> None:
    with replacing(place / ("x" * 255)) as out:
        out.write(b"1")
    assert (place / ("x" * 255)).read_bytes() == b"1"
