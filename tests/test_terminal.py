"""What a person sees: text that streams and lines about it, on one terminal."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lilliput.cli import console
from lilliput.cli.console import LayerBar, Terminal
from lilliput.cli.main import run
from lilliput.engine.engine import Engine, Token
from lilliput.errors import NumericError

TINY_A = str(Path(__file__).parent / "oracle" / "tiny-a")
HEIGHT, WIDTH = 5, 80
CODE = re.compile(r"\x1b(?:\[([?0-9;]*)([A-Za-z])|([78D]))")


def screen(written: str) -> list[str]:
    """What is on a small terminal, and above it, after all that was written; only the codes that we and rich use."""
    lines, row, column, kept = [" " * WIDTH], 0, 0, (0, 0)

    def down() -> None:
        nonlocal row
        row += 1
        if row == len(lines):
            lines.append(" " * WIDTH)

    at = 0
    while at < len(written):
        code = CODE.match(written, at)
        if code:
            at = code.end()
            amount = int(code[1]) if code[1] and code[1].isdigit() else 1
            match code[2] or code[3]:
                case "A":
                    row = max(row - amount, len(lines) - HEIGHT, 0)
                case "K":
                    assert code[1] == "2"
                    lines[row] = " " * WIDTH
                case "D":
                    down()
                case "7":  # a place on the screen, not in the text: it does not move when the text does
                    kept = (row - max(len(lines) - HEIGHT, 0), column)
                case "8":
                    row, column = kept[0] + max(len(lines) - HEIGHT, 0), kept[1]
                case other:
                    assert other in "mlh", code[0]  # colours; the cursor's visibility
            continue
        character, at = written[at], at + 1
        if character == "\n":
            down()
        elif character == "\r":
            column = 0
        else:
            assert character.isprintable(), repr(character)
            lines[row] = lines[row][:column] + character + lines[row][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


class Watched:
    """A terminal of its own, and all that was written to it."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self._read: list[bytes] = []
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        try:
            while part := os.read(self.master, 65536):
                self._read.append(part)
        except OSError:  # Linux: the last writer has gone
            pass

    def close(self) -> str:
        os.close(self.slave)
        self._thread.join()
        os.close(self.master)
        return b"".join(self._read).decode()


@contextmanager
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """This process's stdout and stderr on one terminal; the list then holds what was written there."""
    watched, written = Watched(), list[str]()
    with monkeypatch.context() as patch:
        patch.setenv("TERM", "xterm")
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, os.fdopen(os.dup(watched.slave), "w"))
        try:
            yield written
        finally:
            sys.stdout.close()
            sys.stderr.close()
            written.append(watched.close())


def generate(*options: str, stderr_to_file: bool = False) -> tuple[list[str], str]:
    """The real program on a terminal: its screen, and what it wrote elsewhere."""
    watched = Watched()
    arguments = [sys.executable, "-m", "lilliput", "generate", TINY_A, "--ids", "1,2,3", "-n", "3", *options]
    stderr = subprocess.PIPE if stderr_to_file else watched.slave
    done = subprocess.run(arguments, stdout=watched.slave, stderr=stderr, text=True, check=True, env=os.environ | {"TERM": "xterm"})
    return screen(watched.close()), done.stderr or ""


def test_verbose_lines_begin_on_lines_of_their_own() -> None:
    lines, _ = generate("-v")
    about = [n for n, line in enumerate(lines) if re.search(r"\d s, .* read", line)]
    assert [lines[n].split()[0] for n in about] == ["1:", "2:", "3:"]
    assert all(re.fullmatch(r",?\d+", lines[n - 1]) for n in about)
    closing = about[-1] + 1
    assert lines[closing].startswith("3 tokens in "), "and no empty line before it"


def test_closing_lines_begin_on_lines_of_their_own() -> None:
    lines, _ = generate()
    assert re.fullmatch(r"\d+,\d+,\d+", lines[0])
    assert lines[1].startswith("3 tokens in ")


def test_text_on_a_terminal_alone_stays_on_its_line() -> None:
    lines, err = generate("-v", stderr_to_file=True)
    assert re.fullmatch(r"\d+,\d+,\d+", lines[0])
    assert lines[1:] == [""]
    assert "\n3: " in err


def test_a_bar_stands_below_the_text_and_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also at the bottom of the screen, where there is no line below."""
    monkeypatch.setattr(console, "SLOW_PASS", -1.0)
    words = ["Once", " upon", " a", " time\n", "there", " was", "\n\n\n", "an", " end"]
    with watching(monkeypatch) as written:
        terminal = Terminal()
        bar = LayerBar(terminal, 3)
        for word in words:
            for layer in range(3):
                bar.see(layer, None)
            terminal.text(word)
        terminal.end_text()
        terminal.note("9 tokens")
    assert screen(written[0]) == [*"".join(words).split("\n"), "9 tokens", ""]
    drawn = [match.end() for match in re.finditer("layer", written[0])]
    assert len(drawn) >= len(words)
    for at in drawn:
        assert "layer" in screen(written[0][:at]), "on a line of its own"


def test_what_ends_a_run_in_the_middle_of_a_line_is_said_on_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Iterator[Token]:
        yield Token(5, "Once", None)
        raise NumericError("layer 3: a NaN")

    monkeypatch.setattr(Engine, "generate", lambda *_, **__: fail())
    with watching(monkeypatch) as written:
        assert run(["generate", "demo", "x"]) == 1
    assert screen(written[0]) == ["Once", "lilliput: layer 3: a NaN", ""]
