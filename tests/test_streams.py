"""Standard streams that are closed, full, or of another encoding; arguments that are no text."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lilliput.text.bytelevel import byte_level_files

TINY_A = str(Path(__file__).parent / "oracle" / "tiny-a")
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """A line of bash, in which `lilliput` is the program and $A the oracle tiny-a."""
    lilliput = f'lilliput() {{ "{sys.executable}" -m lilliput "$@"; }}; '
    return subprocess.run(["bash", "-c", lilliput + line], capture_output=True, check=False, env=os.environ | {"A": TINY_A} | environment)


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = shutil.copytree(TINY_A, tmp_path_factory.mktemp("streams") / "tiny")
    for name, raw in byte_level_files(320).items():
        (directory / name).write_bytes(raw)
    return str(directory)


LINES = {
    "stdout closed": ("lilliput generate $A --ids 1,2 -n 3 -q >&-", 1, b"", b"to stdout: Bad file descriptor"),
    "stdout closed, json": ("lilliput inspect $A --json - >&-", 1, b"", b"to stdout: Bad file descriptor"),
    "stdout closed, help": ("lilliput --help >&-", 1, b"", b"to stdout: Bad file descriptor"),
    "stdout full": ("lilliput generate $A --ids 1,2 -n 3 -q >/dev/full", 3, b"", b"to stdout: No space left"),
    "stderr closed": ("lilliput generate $A --ids 1,2,999 -n 3 2>&-", 2, b"", b""),  # the message must not go to stdout instead
    "stderr closed, usage": ("lilliput generate $A --warp 2>&-", 2, b"", b""),
    "stderr full": ("lilliput generate $A --ids 1,2,3 -n 1 2>/dev/full", 0, b"304\n", b""),
    "stderr full, error": ("lilliput generate $A --ids 999 2>/dev/full", 2, b"", b""),
    "stdin closed": ("lilliput generate $A -f - <&-", 2, b"", b"stdin: cannot be read: it is closed"),
    "all closed": ("lilliput generate $A --ids 1 <&- >&- 2>&-", 1, b"", b""),
    "no current directory": ("mkdir d; cd d; rmdir ../d; lilliput synth x --shape tiny", 2, b"", b"the current directory does not exist"),
}


@pytest.mark.parametrize("case", LINES)
def test_one_message_and_the_right_code(case: str, tmp_path: Path) -> None:
    line, code, out, err = LINES[case]
    done = shell(f'cd "{tmp_path}"; {line}')
    assert (done.returncode, done.stdout) == (code, out)
    assert err in done.stderr
    assert done.stderr.count(b"\n") == (1 if err else 0)


def test_a_session_is_saved_when_the_reader_leaves(tmp_path: Path) -> None:
    done = shell(
        f'cd "{tmp_path}"; lilliput generate $A --ids 1,2,3 -n 100000 --session s | head -c 3; lilliput generate $A --session s -n 1'
    )
    assert done.returncode == 0, done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_text_is_utf8_in_every_locale(speaker: str) -> None:
    ids = "195,169,230,188,162"
    assert shell(f'lilliput tokenize "{speaker}" é漢', **C_LOCALE).stdout.decode().strip() == ids
    assert shell(f'lilliput tokenize "{speaker}" --decode {ids}', **C_LOCALE).stdout.decode() == "é漢\n"


def test_a_path_of_bytes_that_are_no_text(speaker: str, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/m\xff"
    shutil.copytree(os.fsencode(speaker), odd)
    argv = [os.fsencode(sys.executable), b"-m", b"lilliput", b"inspect", odd, b"--json", b"-"]
    done = subprocess.run(argv, capture_output=True, check=True)
    assert json.loads(done.stdout)["directory"].endswith("m\\udcff")
    assert odd in subprocess.run(argv[:-2], capture_output=True, check=True).stdout


def test_a_stop_that_is_no_text_is_refused(speaker: str) -> None:
    done = shell(f"lilliput generate \"{speaker}\" a -n 1 --stop $'a\\xff'")
    assert done.returncode == 2
    assert b"--stop: needed valid Unicode" in done.stderr


@pytest.mark.parametrize("cache", ["a file", "~no-such-user-here/x"])
def test_a_cache_that_cannot_be(cache: str, speaker: str, tmp_path: Path) -> None:
    (tmp_path / "a file").touch()
    named = str(tmp_path / cache) if cache == "a file" else cache
    assert shell(f'lilliput generate "{speaker}" a -n 1', LILLIPUT_CACHE=named).returncode == 0
