"""config.json, tokenizer files, synth.json and their like, as something else than a small regular file: one message, no wait, no memory."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import lilliput
from lilliput.cli.main import run
from lilliput.errors import CheckpointError, InputError, TokenizerError
from lilliput.machine.small_files import read_small
from lilliput.text.bytelevel import byte_level_files
from lilliput.text.vocabulary import read_vocabulary

TINY_A = Path(__file__).parent / "oracle" / "tiny-a"
FILES = ["config.json", "generation_config.json", "synth.json", "tiktoken.model", "tokenizer_config.json"]


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 << 30)


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "a directory": (Path.mkdir, "needed a regular file, found a directory"),
    "a pipe": (lambda path: os.mkfifo(path), "needed a regular file, found something that is not a file"),
    "a loop": (lambda path: path.symlink_to(path.name), "needed a readable file, found Too many levels"),
    "a link to nothing": (lambda path: path.symlink_to("gone"), "found a link to gone, which does not exist"),
    "a huge file": (huge, "bytes, found 3,221,225,472 bytes"),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = shutil.copytree(TINY_A, tmp_path / "m")
    for name, raw in byte_level_files(320).items():
        (directory / name).write_bytes(raw)
    return directory


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_small_file_is_named(name: str, kind: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make, message = ODD[kind]
    (model / name).unlink(missing_ok=True)
    make(model / name)
    assert run(["generate", str(model), "--ids", "1", "-n", "1"]) == 2
    err = capsys.readouterr().err
    assert f"{name}: " in err
    assert message in err


def test_nothing_is_none_and_the_limit_holds(tmp_path: Path) -> None:
    assert read_small(tmp_path / "absent") is None
    (tmp_path / "f").write_bytes(b"12345")
    assert read_small(tmp_path / "f", 5) == b"12345"
    with pytest.raises(InputError, match="needed at most 4 bytes, found 5 bytes"):
        read_small(tmp_path / "f", 4)


@pytest.mark.parametrize("usable", ["-5", "0", "321", "99999999999999999999999", "true", "1e3", "null", '"8"'])
def test_usable_ids_are_rows_that_there_are(usable: str, model: Path) -> None:
    (model / "synth.json").write_text(f'{{"usable_ids": {usable}}}')
    with pytest.raises(CheckpointError, match="usable_ids: needed a number of ids from 1 to vocab_size, 320"):
        lilliput.open(model)


@pytest.mark.parametrize(("lines", "vocab_size"), [(2_000_000, 320), (256, 2**31 - 1)])
def test_absurd_numbers_of_tokens_cost_nothing(lines: int, vocab_size: int, model: Path) -> None:
    if lines != 256:
        (model / "tiktoken.model").write_bytes(b"\n" * lines)
    tracemalloc.start()
    try:
        with pytest.raises(TokenizerError, match="number of tokens"):
            read_vocabulary(model, vocab_size)
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()


def test_tokenize_with_an_absurd_vocabulary_in_the_config(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = json.loads((model / "config.json").read_text())
    config.get("text_config", config)["vocab_size"] = 2**31 - 1
    (model / "config.json").write_text(json.dumps(config))
    assert run(["tokenize", str(model), "a"]) == 2
    assert "number of tokens" in capsys.readouterr().err


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(tmp_path / "\x1b[31mred")]) == 2
    assert "\\x1b[31mred: needed a checkpoint directory" in capsys.readouterr().err
