"""The index file: its set of shard names, whatever its spelling, and nothing from a broken one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from helpers_checkpoint import (
    refused,
)

from lilliput.errors import CheckpointError
from lilliput.weights import shard_index
from lilliput.weights.shard_index import shard_names


def test_scanned_index(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    spellings = [
        ('{"metadata": {"total_size": 1}, "weight_map": {"a": "x", "b": "y", "c": "x"}}', ["x", "y"]),
        ('{"weight_map":{"a":"x"},"metadata":{"a":[{"b":"}"}],"c":"\\"}"}}', ["x"]),
        ('{"format": 1.5e3, "note": null, "weight_map" : { "a" : "x" } , "t": true}', ["x"]),
        ('{"weight_map": {"a\\"b": "\\u0078", "c": "x y\\u00e9", "d\\\\": "x"}}', ["x", "x yé"]),
        ('\n\t{"weight_map":\r\n{"a":\n"x"\n,\n"weight_map":"y"}\n}\n', ["x", "y"]),
        ('{"nested": {"weight_map": {"a": "no"}}, "weight_map": {"a": "x"}}', ["x"]),
        ('{"metadata": {"note": "\\"weight_map\\": {\\"a\\": \\"no\\"}"}, "weight_map": {"a": "漢字"}}', ["漢字"]),
    ]
    for text, names in spellings:
        path.write_text(text)
        assert shard_names(path) == names
        assert sorted(set(json.loads(text)["weight_map"].values())) == names


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 7, 16, 61])
def test_names_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(shard_index, "CHUNK", chunk)
    weight_map = {f't{i}\\"é{i}': f'shard {i % 3} "\\ é漢.safetensors'.replace("\\", "") for i in range(12)}
    path = tmp_path / "index.json"
    for indent in (None, 0, 3):
        for ascii_only in (True, False):
            path.write_text(
                json.dumps({"metadata": {"x": "y"}, "weight_map": weight_map, "z": [1]}, indent=indent, ensure_ascii=ascii_only)
            )
            assert shard_names(path) == sorted(set(weight_map.values()))


BAD_INDEX = {
    "empty": ("", "the end of the file"),
    "a list": ("[]", "needed {"),
    "no map": ('{"metadata": {}}', "weight_map: needed tensors and their shards, found nothing"),
    "empty map": ('{"weight_map": {}}', "found nothing"),
    "map is a list": ('{"weight_map": []}', "needed {"),
    "map is null": ('{"weight_map": null}', "needed {"),
    "map twice": ('{"weight_map": {"a": "x"}, "weight_map": {"a": "y"}}', "found it twice"),
    "cut in a name": ('{"weight_map": {"a": "x", "b', "needed a tensor name and its shard"),
    "cut after a pair": ('{"weight_map": {"a": "x",', "the end of the file"),
    "cut after the map": ('{"weight_map": {"a": "x"}', "the end of the file (is it cut short?)"),
    "comma too many": ('{"weight_map": {"a": "x",}}', "needed a tensor name and its shard"),
    "comma too many at the top": ('{"weight_map": {"a": "x"},}', "needed a JSON object"),
    "no comma": ('{"weight_map": {"a": "x" "b": "y"}}', "needed a tensor name and its shard"),
    "number": ('{"weight_map": {"a": 1}}', "needed a tensor name and its shard"),
    "null": ('{"weight_map": {"a": null}}', "needed a tensor name and its shard"),
    "nested": ('{"weight_map": {"a": {"b": "x"}}}', "needed a tensor name and its shard"),
    "text behind": ('{"weight_map": {"a": "x"}} x', "nothing after the JSON object"),
    "bad metadata": ('{"metadata": {"a": 01}, "weight_map": {"a": "x"}}', "valid JSON"),
    "open metadata": ('{"metadata": {"a": [, "weight_map": {"a": "x"}}', "a value"),
    "brackets": ('{"metadata": ' + "[" * 100_000, "a value"),
    "absolute path": ('{"weight_map": {"a": "/etc/passwd"}}', "names of files in this directory"),
    "path upwards": ('{"weight_map": {"a": "../x"}}', "names of files in this directory"),
    "path upwards inside": ('{"weight_map": {"a": "x/../../y"}}', "names of files in this directory"),
    "backslash": ('{"weight_map": {"a": "x\\\\y"}}', "names of files in this directory"),
    "empty name": ('{"weight_map": {"a": ""}}', "names of files in this directory"),
    "zero byte": ('{"weight_map": {"a": "x\\u0000"}}', "names of files in this directory"),
    "terminal codes": ('{"weight_map": {"a": "\\u001b[2J"}}', "names of files in this directory"),
    "raw control character": ('{"weight_map": {"a": "x\ny"}}', "needed a tensor name and its shard"),
    "bad escape": ('{"weight_map": {"a": "\\q"}}', "valid JSON text"),
    "half a surrogate": ('{"weight_map": {"a": "\\ud800"}}', ""),
}


@pytest.mark.parametrize(("text", "message"), BAD_INDEX.values(), ids=BAD_INDEX)
def test_malformed_index(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(text)
    error = refused(tmp_path)
    assert message in str(error)
    assert error.file.endswith("model.safetensors.index.json")
    assert str(error).replace("\n", "").isprintable()


def test_index_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_bytes(b'{"weight_map": {"a": "\xff"}}')
    assert refused(tmp_path)


def test_endless_index_entries_do_not_fill_memory(tmp_path: Path) -> None:
    """Ten gigabytes of holes after a quote: refused after the first few megabytes."""
    for start in ('{"weight_map": {"', '{"weight_map": {"a": "x", "b": "', '{"metadata": "', '{"'):
        with (tmp_path / "model.safetensors.index.json").open("wb") as file:
            file.write(start.encode())
            file.truncate(10**10)
        assert "of at most 1,048,576 bytes" in str(refused(tmp_path)) or "needed" in str(refused(tmp_path))


def test_every_cut_of_an_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    text = '{"metadata": {"total_size": 10}, "weight_map": {"a": "x", "b": "x", "c": "y"}, "z": {}}'
    for length in range(len(text)):
        path.write_text(text[:length])
        with pytest.raises(CheckpointError):
            shard_names(path)


def test_fuzzed_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flipped, dropped and doubled bytes: what is accepted is what a JSON library reads, the rest is refused."""
    monkeypatch.setattr(shard_index, "CHUNK", 40)
    names = {f"model.layers.{i}.x": f"model-{i % 4}.safetensors" for i in range(9)}
    raw = json.dumps({"metadata": {"a": [1, {}]}, "weight_map": names, "z": -1.5}, indent=1).encode()
    rng = random.Random(99)
    path = tmp_path / "index.json"
    accepted = 0
    for _ in range(1500):
        data = bytearray(raw)
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 2)] = bytes([rng.choice((rng.randrange(256), *b'"{}[]:,01-.eE'))]) * rng.randint(0, 2)
        path.write_bytes(data)
        try:
            found = shard_names(path)
        except CheckpointError as error:
            assert str(error)  # noqa: PT017
            continue
        accepted += 1
        # Names of tensors are not looked at, so they may hold bytes that are not UTF-8.
        assert found == sorted(set(json.loads(data.decode("utf-8", "replace"))["weight_map"].values()))
    assert accepted > 100
