"""Opening a checkpoint: which files it is, that every tensor is the layout's, where the tensors lie, and the sidecar that remembers."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import missing
from helpers_checkpoint import (
    PREFIX,
    RELEASED_TEXT,
    Tensor,
    change_header,
    encoded,
    layout_of,
    nested,
    small_text,
    tensors_of,
    vision_tensors,
    write_checkpoint,
    write_file,
    write_index,
    write_release,
    write_tensors,
)
from safetensors import safe_open

from lilliput.bench.open import measure_open
from lilliput.errors import CheckpointError, LilliputError
from lilliput.model.config import config_from_json, read_config
from lilliput.model.layout import layout
from lilliput.weights import checkpoint as checkpoint_module
from lilliput.weights import shard_index
from lilliput.weights.checkpoint import Checkpoint
from lilliput.weights.index_cache import Sidecar, cache_directory
from lilliput.weights.layout import ExpertSpec, Layout
from lilliput.weights.shard_index import shard_names

SMALL = nested(small_text())
NAMES = ("model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors")
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
Change = Callable[[list[Tensor]], list[Tensor]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LILLIPUT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "model", SMALL)


def opened(directory: Path | str, config: dict[str, Any] = SMALL, **options: bool) -> Checkpoint:
    return Checkpoint.open(directory, layout_of(config), **options)


def refused(directory: Path, config: dict[str, Any] = SMALL) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        opened(directory, config, cache=False)
    assert caught.value.exit_code == 2
    assert all(p.needed and p.found for p in caught.value.problems)
    return caught.value


def swap(name: str, new: Tensor | None) -> Change:
    """Replaces one tensor (None: drops it); the name is without prefix."""

    def change(tensors: list[Tensor]) -> list[Tensor]:
        assert any(t[0] == PREFIX + name for t in tensors)
        pairs = ((t, t if t[0] != PREFIX + name else new) for t in tensors)
        return [kept for _, kept in pairs if kept is not None]

    return change


def rename(pairs: Callable[[str], str]) -> Change:
    return lambda tensors: [(pairs(name), dtype, shape) for name, dtype, shape in tensors]


def same(a: Checkpoint, b: Checkpoint) -> bool:
    if any(getattr(a, n) != getattr(b, n) for n in ("tensors", "identity", "sizes", "skipped", "padding")) or (a.experts is None) != (
        b.experts is None
    ):
        return False
    if a.experts is None or b.experts is None:
        return True
    return np.array_equal(a.experts.file, b.experts.file) and np.array_equal(a.experts.offset, b.experts.offset)


# --- where the tensors lie


@pytest.mark.parametrize("cached", [False, True])
def test_places_agree_with_the_library(oracle: Path, cached: bool) -> None:
    """The bytes at our offsets are the values that the safetensors library reads, for every tensor of the text model."""
    wanted = layout(read_config(oracle))
    found = Checkpoint.open(oracle, wanted)
    if cached:
        found = Checkpoint.open(oracle, wanted)
        assert found.from_sidecar
    raw = [p.read_bytes() for p in found.files]
    where: dict[str, tuple[int, int, int, str, tuple[int, ...]]] = {}
    for ref in found.tensors.values():
        assert ref.nbytes == prod(ref.shape) * {"F32": 4, "BF16": 2}[ref.dtype]
        where[PREFIX + ref.name] = (ref.file, ref.offset, ref.nbytes, ref.dtype, ref.shape)
    assert found.experts is not None
    spec = found.experts.spec
    for (row, expert, part), offset in np.ndenumerate(found.experts.offset):
        name = PREFIX + spec.name(spec.layers[row], expert, part)
        where[name] = (int(found.experts.file[row, expert, part]), int(offset), spec.part_bytes[part], "U8", spec.shapes[part])
    seen = 0
    for file, path in enumerate(found.files):
        with safe_open(path, "np") as library:
            for name in library.keys():  # noqa: SIM118  # not a dictionary
                if not name.startswith(PREFIX):
                    continue
                at, offset, nbytes, dtype, shape = where[name]
                piece = library.get_slice(name)
                assert (at, dtype) == (file, piece.get_dtype())
                if not name.endswith("A_log"):
                    assert tuple(piece.get_shape()) == shape
                if dtype != "BF16":
                    assert library.get_tensor(name).tobytes()[:nbytes] == raw[file][offset : offset + nbytes]
                seen += 1
    assert seen == len(where)


def test_attributes(model: Path) -> None:
    found = opened(model)
    assert found.path == model
    assert [p.name for p in found.files] == list(NAMES)
    assert found.sizes == tuple((model / n).stat().st_size for n in NAMES)
    assert list(found.tensors) == [t.name for t in layout_of(SMALL).trunk]
    assert found.experts is not None
    assert found.experts.offset.shape == found.experts.file.shape == (2, 3, 6)
    assert found.experts.offset.dtype == np.int64
    assert not found.experts.offset.flags.writeable
    assert found.experts.offset.flags.c_contiguous
    assert found.experts.spec.layers == (1, 2)


def test_padded_a_log_is_cut_to_the_heads(oracle: Path) -> None:
    config = read_config(oracle)
    refs = [r for r in Checkpoint.open(oracle, layout(config)).tensors.values() if r.name.endswith("A_log")]
    assert refs
    assert {(r.shape, r.nbytes) for r in refs} == {((config.kda.num_heads,), 4 * config.kda.num_heads)}


def test_dense_model(tmp_path: Path) -> None:
    config = nested(small_text(first_k_dense_replace=3))
    assert opened(write_checkpoint(tmp_path / "dense", config), config).experts is None
    assert opened(tmp_path / "dense", config).from_sidecar


@pytest.mark.parametrize("prefix", ["", PREFIX])
def test_with_and_without_prefix(tmp_path: Path, prefix: str) -> None:
    assert len(opened(write_checkpoint(tmp_path / "m", SMALL, prefix=prefix)).tensors) == len(layout_of(SMALL).trunk)


VARIANTS = {
    "low-rank gate": ({"use_full_rank_gate": False}, {}),
    "kernel 2": ({"short_conv_kernel_size": 2}, {}),
    "plain q": ({}, {"q_lora_rank": None}),
    "ordinary residual": ({}, {"attn_res_block_size": None}),
    "full width": ({}, {"routed_expert_hidden_size": None}),
    "no latent norm": ({}, {"latent_moe_use_norm": False}),
    "no shared": ({}, {"num_shared_experts": 0}),
    "first layer MLA": ({"full_attn_layers": [1, 3], "kda_layers": [2]}, {}),
    "every second": ({}, {"moe_layer_freq": 2}),
    "no output gate": ({}, {"mla_use_output_gate": False}),
}


@pytest.mark.parametrize(("linear", "changes"), VARIANTS.values(), ids=VARIANTS)
def test_variants(tmp_path: Path, linear: dict[str, Any], changes: dict[str, Any]) -> None:
    config = nested(small_text(linear, **changes))
    assert opened(write_checkpoint(tmp_path / "m", config), config)
    assert refused(write_checkpoint(tmp_path / "other", SMALL), config)


def test_legacy_spellings(tmp_path: Path) -> None:
    def legacy(name: str) -> str:
        for part in ("norm", "proj"):
            name = name.replace(f"_res_{part}.weight", f"_res.{part}_weight")
        return name.replace(".gate.e_score_correction_bias", ".e_score_correction_bias")

    written = write_checkpoint(tmp_path / "m", SMALL, change=rename(legacy))
    assert "self_attention_res.proj_weight" in (written / "model.safetensors.index.json").read_text()
    assert list(opened(written).tensors) == [t.name for t in layout_of(SMALL).trunk]


# --- which files


def test_the_index_decides(model: Path) -> None:
    """faults.md 8: a finished copy, another variant and a broken stray are not looked at."""
    shutil.copy(model / NAMES[0], model / "model-00001-of-000002 (1).safetensors")
    (model / "model.safetensors").write_bytes(b"garbage")
    assert [p.name for p in opened(model, cache=False).files] == list(NAMES)


def test_odd_names(tmp_path: Path) -> None:
    """faults.md 9: the index is followed, not a pattern; sub-folders, spaces and other scripts included."""
    model = write_checkpoint(tmp_path / "m", SMALL)
    odd = ["model.safetensors-00001-of-00002.safetensors", "sub folder/часть 2"]
    (model / "sub folder").mkdir()
    index = json.loads((model / "model.safetensors.index.json").read_text())["weight_map"]
    for name, new in zip(NAMES, odd, strict=True):
        (model / name).rename(model / new)
        index = {k: new if v == name else v for k, v in index.items()}
    write_index(model, index)
    assert [p.name for p in opened(model).files] == [odd[0], "часть 2"]


def test_headers_win_over_the_index(model: Path) -> None:
    path = model / "model.safetensors.index.json"
    index = json.loads(path.read_text())["weight_map"]
    expected = opened(model, cache=False)
    write_index(model, {k: NAMES[1] if v == NAMES[0] else NAMES[0] for k, v in index.items()})
    assert same(opened(model, cache=False), expected)
    write_index(model, {"a": NAMES[0], "b": NAMES[1]})
    assert same(opened(model, cache=False), expected)


def test_missing_shards_all_at_once(tmp_path: Path) -> None:
    """faults.md 7 and 10: exactly which, and the command that fetches them; in a directory that needs quoting."""
    model = write_checkpoint(tmp_path / "my models", SMALL, shards=5)
    for n in (2, 4):
        (model / f"model-0000{n}-of-000005.safetensors").unlink()
    error = refused(model)
    assert [p.what for p in error.problems] == ["model-00002-of-000005.safetensors", "model-00004-of-000005.safetensors"]
    assert error.hint == f"run `lilliput pull moonshotai/Kimi-K3 '{model}'` to fetch them"
    assert error.hint in str(error)


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_each_shard_is_missed(tmp_path: Path, gone: int) -> None:
    model = write_checkpoint(tmp_path / "m", SMALL, shards=3)
    name = f"model-0000{gone}-of-000003.safetensors"
    (model / name).unlink()
    error = refused(model)
    assert [p.what for p in error.problems] == [name]
    assert "to fetch it" in error.hint
    (model / "model.safetensors.index.json").unlink()
    assert [p.what for p in refused(model).problems] == [name]


def test_many_missing_shards_are_all_named(tmp_path: Path) -> None:
    names = [f"model-{n:05}-of-000096.safetensors" for n in range(1, 97)]
    write_index(tmp_path, {str(n): name for n, name in enumerate(names)})
    message = str(refused(tmp_path))
    assert all(name in message for name in names)
    assert "96 of them missing" in message


def test_single_file_without_index(tmp_path: Path) -> None:
    for name in ("model.safetensors", "whatever.safetensors"):
        directory = tmp_path / name
        directory.mkdir()
        write_tensors(directory / name, tensors_of(layout_of(SMALL)))
        (directory / "notes.txt").write_text("no shard")
        assert [p.name for p in opened(directory).files] == [name]


def test_numbered_set_without_index(model: Path) -> None:
    (model / "model.safetensors.index.json").unlink()
    assert [p.name for p in opened(model).files] == list(NAMES)
    assert opened(model).from_sidecar
    write_tensors(model / "stray.safetensors", [("x", "U8", (1,))])
    assert [p.name for p in opened(model).files] == list(NAMES)


@pytest.mark.parametrize("stray", ["model.safetensors", "model-00001-of-00003.safetensors", "other-00001-of-000002.safetensors"])
def test_ambiguous_without_index(model: Path, stray: str) -> None:
    (model / "model.safetensors.index.json").unlink()
    shutil.copy(model / NAMES[0], model / stray)
    error = refused(model)
    assert "model.safetensors.index.json" in error.needed
    assert "not one numbered set" in error.found


def test_no_checkpoint(tmp_path: Path) -> None:
    assert "no safetensors file at all" in str(refused(tmp_path))
    assert "lilliput pull" in refused(tmp_path).hint
    assert refused(tmp_path / "gone").found == "nothing"
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file").found == "a file"
    assert refused(Path("~no-such-user-at-all/x"))
    assert refused(Path("a\0b"))


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "Пользователь 用户 🙂"
    write_checkpoint(home / "a model", SMALL)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    found = [opened(place, cache=c) for place in ("~/a model", "a model", home / "a model") for c in (True, False)]
    assert len({f.files for f in found}) == 1
    raw = os.fsencode(tmp_path) + b"/\xff\xfe"
    shutil.copytree(home / "a model", os.fsdecode(raw))
    for _ in range(2):
        assert same(opened(Path(os.fsdecode(raw))), found[0])


def test_hugging_face_snapshot(tmp_path: Path, model: Path) -> None:
    """Relative links into a folder of blobs, as the hub's cache has them; a removed blob is a missing shard."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for n, path in enumerate(sorted(model.iterdir())):
        path.rename(blobs / f"{n:064x}")
        (snapshot / path.name).symlink_to(f"../../blobs/{n:064x}")
    for sidecar in (False, True):
        found = opened(snapshot)
        assert found.from_sidecar == sidecar
        assert all(p.parent == blobs for p in found.files)
    found.files[1].unlink()
    assert [p.what for p in refused(snapshot).problems] == [NAMES[1]]


def test_things_in_the_place_of_shards(model: Path) -> None:
    (model / NAMES[0]).unlink()
    (model / NAMES[0]).symlink_to(NAMES[0])
    assert [p.what for p in refused(model).problems] == [NAMES[0]]
    (model / NAMES[0]).unlink()
    os.mkfifo(model / NAMES[0])
    assert "a regular file" in str(refused(model))
    (model / NAMES[0]).unlink()
    (model / NAMES[0]).mkdir()
    assert "a regular file" in str(refused(model))


def test_malformed_shards_are_all_named(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "m", SMALL, shards=4)
    with (model / "model-00002-of-000004.safetensors").open("r+b") as file:
        file.truncate(5000)
    (model / "model-00003-of-000004.safetensors").write_bytes(b"<html>Forbidden</html>")
    error = refused(model)
    assert [Path(p.file).name for p in error.problems] == ["model-00002-of-000004.safetensors", "model-00003-of-000004.safetensors"]
    assert "cut short" in str(error)
    assert "<html>Forbidden" in str(error)
    assert f"lilliput repair {model}" in error.hint


def test_a_checkpoint_is_never_written_to(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {p: p.stat().st_mtime_ns for p in [model, *model.iterdir()]}
    for place in (model, model / "cache"):
        monkeypatch.setenv("LILLIPUT_CACHE", str(place))
        opened(model)
        opened(model)
    assert {p: p.stat().st_mtime_ns for p in [model, *model.iterdir()]} == before


# --- the index file


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


# --- against the layout


A_LOG = "model.layers.1.self_attn.A_log"
DIFFERENCES: dict[str, tuple[Change, str, str, str]] = {
    "missing": (swap("model.norm.weight", None), "model.norm.weight", "BF16 [32]", "no such tensor in any shard"),
    "shape": (swap("model.norm.weight", (PREFIX + "model.norm.weight", "BF16", (33,))), "", "BF16 [32]", "BF16 [33]"),
    "rank": (swap("model.norm.weight", (PREFIX + "model.norm.weight", "BF16", (1, 32))), "", "BF16 [32]", "BF16 [1, 32]"),
    "dtype": (swap("model.norm.weight", (PREFIX + "model.norm.weight", "F32", (32,))), "", "BF16 [32]", "F32 [32]"),
    "A_log too short": (swap(A_LOG, (PREFIX + A_LOG, "F32", (2,))), PREFIX + A_LOG, "F32 [3]", "F32 [2]"),
    "A_log of another dtype": (swap(A_LOG, (PREFIX + A_LOG, "BF16", (3,))), PREFIX + A_LOG, "F32 [3]", "BF16 [3]"),
    "bias": (lambda t: [*t, (PREFIX + "model.layers.0.self_attn.q_proj.bias", "BF16", (12,))], "", "no such tensor", "BF16 [12]"),
    "weight_shape": (
        lambda t: [*t, (PREFIX + "model.layers.1.block_sparse_moe.experts.0.w1.weight_shape", "I64", (2,))],
        *("", "no such tensor", "I64 [2]"),
    ),
    "another layer": (lambda t: [*t, (PREFIX + "model.layers.3.input_layernorm.weight", "BF16", (32,))], "", "no such tensor", "BF16 [32]"),
    "expert missing": (
        swap("model.layers.2.block_sparse_moe.experts.1.w2.weight_scale", None),
        *("model.layers.2.block_sparse_moe.experts.1.w2.weight_scale", "U8 [64, 1]", "no such tensor"),
    ),
    "expert too many": (
        lambda t: [*t, (PREFIX + "model.layers.2.block_sparse_moe.experts.3.w1.weight_packed", "U8", (32, 32))],
        *("", "no such tensor", "U8 [32, 32]"),
    ),
    "scale as F8_E8M0": (
        swap(
            "model.layers.2.block_sparse_moe.experts.1.w2.weight_scale",
            (PREFIX + "model.layers.2.block_sparse_moe.experts.1.w2.weight_scale", "F8_E8M0", (64, 1)),
        ),
        *("", "U8 [64, 1]", "F8_E8M0 [64, 1]"),
    ),
    "group of 16": (
        swap(
            "model.layers.1.block_sparse_moe.experts.2.w1.weight_scale",
            (PREFIX + "model.layers.1.block_sparse_moe.experts.2.w1.weight_scale", "U8", (32, 4)),
        ),
        *("", "U8 [32, 2]", "U8 [32, 4]"),
    ),
}


@pytest.mark.parametrize(("change", "what", "needed", "found"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_differences(tmp_path: Path, change: Change, what: str, needed: str, found: str) -> None:
    error = refused(write_checkpoint(tmp_path / "m", SMALL, change=change))
    assert len(error.problems) == 1
    assert what in error.what
    assert needed in error.needed
    assert found in error.found


def test_plain_weights_in_place_of_packed_ones(tmp_path: Path) -> None:
    """faults.md 18: the unknown tensor and the missing pair are named."""
    name = "model.layers.1.block_sparse_moe.experts.0.w1.weight"
    drop = {PREFIX + name + "_packed", PREFIX + name + "_scale"}

    def change(tensors: list[Tensor]) -> list[Tensor]:
        return [t for t in tensors if t[0] not in drop] + [(PREFIX + name, "BF16", (32, 64))]

    error = refused(write_checkpoint(tmp_path / "m", SMALL, change=change))
    assert {p.what.removeprefix(PREFIX) for p in error.problems} == {name, name + "_packed", name + "_scale"}


def test_all_differences_at_once(tmp_path: Path) -> None:
    def change(tensors: list[Tensor]) -> list[Tensor]:
        tensors = swap("model.norm.weight", None)(tensors)
        tensors = swap("model.layers.1.block_sparse_moe.experts.0.w1.weight_packed", None)(tensors)
        tensors = swap(A_LOG, (PREFIX + A_LOG, "F32", (2,)))(tensors)
        return [*tensors, ("model.extra", "BF16", (1,)), ("vision_tower.x", "F16", (1,))]

    error = refused(write_checkpoint(tmp_path / "m", SMALL, change=change))
    packed = "model.layers.1.block_sparse_moe.experts.0.w1.weight_packed"
    assert {p.what for p in error.problems} == {"model.norm.weight", packed, PREFIX + A_LOG, "model.extra"}
    assert "config.json and the shards must be of one model" in str(error)


def test_another_model_altogether(tmp_path: Path) -> None:
    """Thousands of differences are counted, and a few hundred kept."""
    config = nested(small_text(num_experts=200))
    written = write_checkpoint(tmp_path / "m", config, change=rename(lambda n: n.replace("block_sparse_moe", "mlp")))
    error = refused(written, config)
    assert len(error.problems) < 1000
    moe = sum("block_sparse_moe" in name for name, _, _ in tensors_of(layout_of(config)))
    kept = sum("no such tensor in a checkpoint" in p.needed for p in error.problems)
    assert f"{moe - kept:,} more unknown" in str(error.problems[-2]) + str(error.problems[-1])


def test_skipped_tensors(tmp_path: Path) -> None:
    extra: list[Tensor] = [*vision_tensors()[:5], ("vision_model.a", "F16", (3,)), ("multi_modal_projector.a", "I8", (3,))]
    extra += [("model.mtp.layers.0.x", "BF16", (3,)), ("mtp.x", "F64", (3,)), (PREFIX + "model.mtp_norm.weight", "BF16", (3,))]
    found = opened(write_checkpoint(tmp_path / "m", SMALL, change=lambda t: [*extra[::2], *t, *extra[1::2]]))
    assert len(found.tensors) == len(layout_of(SMALL).trunk)
    assert found.skipped == opened(tmp_path / "m").skipped == len(extra)


TWICE: dict[str, tuple[str, str, str]] = {
    "trunk": (PREFIX + "model.norm.weight", PREFIX + "model.norm.weight", "it in model-00001-of-000002.safetensors too"),
    "prefix": (PREFIX + "model.norm.weight", "model.norm.weight", "as language_model.model.norm.weight"),
    "legacy": (PREFIX + "model.output_attn_res_norm.weight", PREFIX + "model.output_attn_res.norm_weight", "as language_model."),
    "vision": ("vision_tower.x", "vision_tower.x", "it in model-00001-of-000002.safetensors too"),
}
EXPERT = "model.layers.1.block_sparse_moe.experts.1.w3.weight_packed"
TWICE |= {"expert": (PREFIX + EXPERT, PREFIX + EXPERT, "it in model-00001"), "expert without prefix": (PREFIX + EXPERT, EXPERT, "it in")}


@pytest.mark.parametrize(("first", "second", "found"), TWICE.values(), ids=TWICE)
def test_a_tensor_in_two_shards(tmp_path: Path, first: str, second: str, found: str) -> None:
    tensors = {name: (name, dtype, shape) for name, dtype, shape in tensors_of(layout_of(SMALL))}
    copy = tensors.get(first, (first, "BF16", (3,)))
    rest = [t for name, t in tensors.items() if name != first]
    write_tensors(tmp_path / NAMES[0], [copy, *rest[:9]])
    write_tensors(tmp_path / NAMES[1], [*rest[9:], (second, *copy[1:])])
    error = refused(tmp_path)
    assert [p.what for p in error.problems] == [second]
    assert Path(error.file).name == NAMES[1]
    assert found in error.found


def test_a_tensor_twice_in_one_shard_by_its_prefix(tmp_path: Path) -> None:
    for extra in (EXPERT, "model.norm.weight"):
        shape = (32, 32) if extra == EXPERT else (32,)
        dtype = "U8" if extra == EXPERT else "BF16"
        model = write_checkpoint(tmp_path / extra, SMALL, shards=1, change=lambda t, e=(extra, dtype, shape): [*t, e])  # type: ignore[misc]
        assert [p.what for p in refused(model).problems] == [extra]


# --- A_log and tied embeddings: the two places where bytes are looked at


def a_log_model(directory: Path, values: list[float]) -> Path:
    """The small model with A_log of layer 1 as given (three heads and a tail)."""
    new = (PREFIX + A_LOG, "F32", (len(values),))
    model = write_checkpoint(directory, SMALL, shards=1, change=swap(A_LOG, new))
    path = model / "model-00001-of-000001.safetensors"
    offset = opened(model, cache=False).tensors[A_LOG].offset
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(np.array(values, "<f4").tobytes())
    return model


def test_a_log_tail_must_be_zero(tmp_path: Path) -> None:
    """faults.md 16: exact length, zero tail (either zero), anything else."""
    for n, values in enumerate([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 0.0], [1.0, 2.0, 3.0, 0.0, -0.0, 0.0, 0.0, 0.0]]):
        ref = opened(a_log_model(tmp_path / f"good{n}", values)).tensors[A_LOG]
        assert (ref.shape, ref.nbytes) == ((3,), 12)
        assert opened(tmp_path / f"good{n}").padding == len(values) - 3
    for n, tail in enumerate([[1e-45], [0.0, 0.0, 2.0], [float("nan")], [0.0] * 300_000 + [1.0]]):
        error = refused(a_log_model(tmp_path / f"bad{n}", [1.0, 2.0, 3.0, *tail]))
        assert error.what == PREFIX + A_LOG
        assert error.needed == "zeros behind the 3 heads"
        assert error.found == f"1 of the {len(tail)} padding values not zero"


TIED = nested(small_text(tie_word_embeddings=True), tie_word_embeddings=True)


def test_tied_embeddings_need_no_head(tmp_path: Path) -> None:
    assert HEAD not in opened(write_checkpoint(tmp_path / "m", TIED), TIED).tensors
    assert refused(tmp_path / "m", SMALL).what == HEAD


def test_tied_embeddings_with_a_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head beside tied embeddings is the embedding again, byte for byte, or it is refused."""
    monkeypatch.setattr(checkpoint_module, "BLOCK", 100)
    model = write_checkpoint(tmp_path / "m", TIED, change=lambda t: [(PREFIX + HEAD, "BF16", (40, 32)), *t])
    assert HEAD not in opened(model, TIED, cache=False).tensors
    path = model / NAMES[0]
    embedding = opened(model, TIED, cache=False).tensors[EMBEDDING].offset
    with path.open("r+b") as file:
        file.seek(embedding + 2 * 32 * 33 + 5)
        file.write(b"\1")
    error = refused(model, TIED)
    assert error.what == PREFIX + HEAD
    assert "tie_word_embeddings" in error.needed
    assert error.found == "other values in row 33"


def test_tied_embeddings_with_a_head_of_another_shape(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "m", TIED, change=lambda t: [*t, (PREFIX + HEAD, "BF16", (41, 32))])
    assert "tie_word_embeddings" in refused(model, TIED).needed
    twice = write_checkpoint(tmp_path / "n", TIED, change=lambda t: [*t, (PREFIX + HEAD, "BF16", (40, 32)), (HEAD, "BF16", (40, 32))])
    assert "each tensor once" in str(refused(twice, TIED))


# --- the sidecar


def sidecar_of(model: Path, config: dict[str, Any] = SMALL) -> Path:
    path = Sidecar(model, layout_of(config)).path
    assert path is not None
    return path


def test_sidecar_says_the_same(model: Path, cache: Path) -> None:
    first = opened(model)
    assert not first.from_sidecar
    second = opened(model)
    assert second.from_sidecar
    assert same(first, second)
    assert (first.files, first.path) == (second.files, second.path)
    assert second.experts is not None
    assert second.experts.offset.flags.aligned
    assert not second.experts.offset.flags.writeable
    assert [p.parent for p in [sidecar_of(model)]] == [cache]
    assert not opened(model, cache=False).from_sidecar


def test_sidecar_spares_the_headers(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(model)

    def never(*_: object) -> None:
        raise AssertionError("a header or the index was read")

    monkeypatch.setattr(checkpoint_module, "read_header", never)
    monkeypatch.setattr(shard_index, "_scan", never)
    assert opened(model).from_sidecar


def touch(path: Path) -> None:
    os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))


def grow_index(model: Path) -> None:
    path = model / "model.safetensors.index.json"
    path.write_text(path.read_text() + "\n")


def replace_with_same_times(model: Path) -> None:
    """Same size, same mtime, other content: only ctime and inode tell."""
    path = model / NAMES[0]
    status = path.stat()
    shutil.copy(path, model / "new")
    (model / "new").replace(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


STALE: dict[str, Callable[[Path], object]] = {
    "mtime of a shard": lambda m: touch(m / NAMES[1]),
    "mtime of the index": lambda m: touch(m / "model.safetensors.index.json"),
    "size of the index": grow_index,
    "a shard replaced with its times": replace_with_same_times,
    "flipped byte": lambda m: flip(sidecar_of(m), 60),
    "flipped last byte": lambda m: flip(sidecar_of(m), -1),
    "other magic": lambda m: flip(sidecar_of(m), 15),
    "cut": lambda m: os.truncate(sidecar_of(m), 400),
    "empty": lambda m: os.truncate(sidecar_of(m), 0),
    "garbage": lambda m: sidecar_of(m).write_bytes(os.urandom(3000)),
    "removed": lambda m: sidecar_of(m).unlink(),
    "index removed": lambda m: (m / "model.safetensors.index.json").unlink(),
}


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("change", STALE.values(), ids=STALE)
def test_stale_or_corrupt_sidecars_are_ignored_and_rewritten(model: Path, change: Callable[[Path], object]) -> None:
    first = opened(model)
    change(model)
    again = opened(model)
    assert not again.from_sidecar
    assert same(first, again)
    assert opened(model).from_sidecar


def test_sidecar_of_another_layout(model: Path) -> None:
    opened(model)
    with pytest.raises(CheckpointError):
        opened(model, nested(small_text(num_experts=2)))
    assert opened(model).from_sidecar


def test_sidecar_of_a_directory_moved_over(model: Path, tmp_path: Path) -> None:
    """Another checkpoint under the same path, with other shards, is read anew; a lost shard is missed in spite of the sidecar."""
    opened(model)
    other = write_checkpoint(tmp_path / "other", SMALL, shards=3)
    shutil.rmtree(model)
    other.rename(model)
    found = opened(model)
    assert not found.from_sidecar
    assert len(found.files) == 3
    found.files[2].unlink()
    with pytest.raises(CheckpointError, match="model-00003-of-000003"):
        opened(model)


def test_new_shards_without_index_are_seen(model: Path) -> None:
    (model / "model.safetensors.index.json").unlink()
    opened(model)
    shutil.copy(model / NAMES[0], model / "model-00001-of-000003.safetensors")
    with pytest.raises(CheckpointError, match="not one numbered set"):
        opened(model)


def test_cache_that_cannot_be_written(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing"), Path("~no-such-user-at-all/x")):
        monkeypatch.setenv("LILLIPUT_CACHE", str(place))
        for _ in range(2):
            assert not opened(model).from_sidecar
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    monkeypatch.setenv("LILLIPUT_CACHE", str(loop))
    assert not opened(model).from_sidecar


def test_nothing_half_written_is_left(model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fail)
        assert not opened(model).from_sidecar
    assert list(cache.iterdir()) == []
    opened(model)
    assert [p.name for p in cache.iterdir()] == [sidecar_of(model).name]
    assert stat.S_IMODE(sidecar_of(model).stat().st_mode) == 0o600


def test_cache_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LILLIPUT_CACHE", "~/c")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "c"
    monkeypatch.delenv("LILLIPUT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_directory() == Path("/x/lilliput")
    for unset in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_directory() == tmp_path / ".cache" / "lilliput"


def test_identity(model: Path, tmp_path: Path) -> None:
    first = opened(model).identity
    shutil.copytree(model, tmp_path / "copy")
    assert opened(tmp_path / "copy").identity == first
    other = write_checkpoint(tmp_path / "other", SMALL, shards=3)
    assert opened(other).identity != first


# --- hostile sizes and the full release


def test_absurd_numbers_of_experts_allocate_nothing(model: Path) -> None:
    wanted = layout_of(SMALL)
    assert wanted.experts is not None
    absurd = Layout(wanted.trunk, ExpertSpec(tuple(range(1000)), 65536, 32, 64))
    with pytest.raises(CheckpointError, match="bytes for 1000 layers of 65,536 experts"):
        Checkpoint.open(model, absurd)


def test_truncation_anywhere_is_an_error(model: Path) -> None:
    path = model / NAMES[0]
    raw = path.read_bytes()
    length = 8 + int.from_bytes(raw[:8], "little")
    for size in [*range(0, length, 97), length, length + 1, len(raw) - 1]:
        path.write_bytes(raw[:size])
        assert refused(model)


def test_edited_headers_are_errors(model: Path) -> None:
    name = PREFIX + "model.layers.0.self_attn.k_proj.weight"

    def share(header: dict[str, Any]) -> None:
        header[name]["data_offsets"] = header[name.replace("k_proj", "v_proj")]["data_offsets"]

    change_header(model / NAMES[0], share)
    assert "overlap" in str(refused(model))


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, int]]]:
    directory = tmp_path_factory.mktemp("release")
    if shutil.disk_usage(directory).free < 400_000_000:
        missing("the release's headers need 400 MB of disk")
    yield directory, write_release(directory)
    shutil.rmtree(directory)


def test_layout_of_the_release_is_the_released_one(release: tuple[Path, dict[str, int]], shared_data: Path) -> None:
    """The layout, dealt out to shards as the release does it, has the published size of every shard to the byte."""
    lines = (shared_data / "k3-shard-sizes.txt").read_text().split()
    assert release[1] == dict(zip(lines[::2], map(int, lines[1::2]), strict=True))


def test_census() -> None:
    """kimi-k3.md 3.1 and design.md 1."""
    wanted = layout_of(nested(RELEASED_TEXT))
    assert wanted.experts is not None
    padding = sum(128 - t.shape[0] for t in wanted.trunk if t.at_least)  # A_log is stored with 128 values; the published number counts them
    assert sum(t.parameters for t in wanted.trunk) + padding == 56_743_648_000
    assert wanted.experts.nbytes == 17_547_264
    experts = len(wanted.experts.layers) * wanted.experts.num_experts
    assert (experts * 6, experts * wanted.experts.parameters) == (494_592, 2_722_740_830_208)
    assert len(wanted.trunk) + experts * 6 + len(vision_tensors()) == 497_220
    tape = sum(t.nbytes for t in wanted.tape())
    assert round(tape / 1e9, 1) == 111.1
    resident = [t for t in wanted.trunk if not t.is_matrix and t.name != EMBEDDING]
    assert round(sum(4 * t.parameters for t in resident) / 1e6) == 62
    kinds = [t.dtype for t in wanted.trunk] + ["BF16"] * 168
    assert (kinds.count("BF16"), kinds.count("F32")) == (2122, 506)
    assert sum(128 if t.at_least else t.parameters for t in wanted.trunk if t.dtype == "F32") == 11_122_432


def test_the_whole_release(release: tuple[Path, dict[str, int]]) -> None:
    """faults.md 47: half a million tensors cost little memory, with and without sidecar. (Seconds are reported, not asserted.)"""
    directory, sizes = release
    found = opened(directory, nested(RELEASED_TEXT), cache=False)
    assert len(found.files) == 96
    assert sum(found.sizes) == sum(sizes.values()) == 1_560_936_091_448
    assert found.experts is not None
    spec = found.experts.spec
    assert found.experts.file.shape == (92, 896, 6)
    assert len(found.tensors) + found.experts.file.size + found.skipped == 497_220
    assert (found.skipped, found.padding) == (168, 69 * 32)
    assert sum(prod(t.shape) for t in found.tensors.values()) + found.padding == 56_743_648_000
    assert np.array_equal(found.experts.file[:, 0, 0], np.arange(1, 93))  # layer i is in shard i + 1
    # The six tensors of an expert lie together (w1, w2, w3, each packed before its scales), and experts do not overlap.
    assert np.array_equal(np.diff(found.experts.offset, axis=2)[0, 0], spec.part_bytes[:-1])
    result = measure_open(directory)
    assert (result["files"], result["tensors"], result["sidecar"]["used"]) == (96, 497_052, True)
    for way in ("headers", "sidecar"):
        assert 0 < result[way]["peak_rss_growth"] < 60_000_000
        assert len(result[way]["all_seconds"]) == 3


def test_measuring_reports_what_is_wrong(model: Path) -> None:
    result = measure_open(model)
    assert result["tensors"] == len(layout_of(SMALL).trunk) + 2 * 3 * 6
    (model / NAMES[0]).unlink()
    with pytest.raises(LilliputError, match=NAMES[0]) as caught:
        measure_open(model)
    assert caught.value.exit_code == 2


def test_config_and_shards_of_the_helpers_agree(tmp_path: Path) -> None:
    """The helper writes what `config_from_json` reads back; a file of raw bytes is written as given."""
    model = write_checkpoint(tmp_path / "m", SMALL)
    assert read_config(model) == config_from_json(encoded(SMALL), "config.json")
    assert write_file(tmp_path / "raw", b"{}", b"xyz").read_bytes() == b"\2\0\0\0\0\0\0\0{}xyz"
