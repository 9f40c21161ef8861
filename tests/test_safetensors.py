"""Headers of safetensors files: sound ones agree with the safetensors library, broken ones are refused in words that help."""

from __future__ import annotations

import json
import os
import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers_checkpoint import write_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from lilliput.errors import CheckpointError
from lilliput.weights import safetensors, safetensors_faults
from lilliput.weights.safetensors import read_header

EIGHT = {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}


def entry(dtype: str = "U8", shape: object = (8,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def refused(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    error = caught.value
    assert error.exit_code == 2
    assert error.problems
    assert all(p.file == str(path) and p.needed and p.found for p in error.problems)
    return error


def test_agrees_with_the_library(oracle: Path) -> None:
    """The library shows shapes, dtypes and values; the values are what the bytes at our offsets say."""
    for path in sorted(oracle.glob("*.safetensors")):
        header = read_header(path)
        raw = path.read_bytes()
        assert header.size == len(raw)
        with safe_open(path, "np") as library:
            assert set(library.keys()) == set(header.names)
            for name, (dtype, shape, begin, end) in header.entries.items():
                part = library.get_slice(name)
                assert (part.get_dtype(), tuple(part.get_shape())) == (dtype, shape)
                if dtype != "BF16":
                    assert library.get_tensor(name).tobytes() == raw[begin:end]


def test_every_dtype_of_the_library(tmp_path: Path) -> None:
    """All that the library can write from numpy; and our table knows no dtype that the library would refuse."""
    kinds = [np.bool_, np.uint8, np.int8, np.int16, np.uint16, np.float16, np.int32, np.uint32, np.float32, np.float64, np.int64, np.uint64]
    tensors = {str(np.dtype(k)): np.ones((3, 2), k) for k in [*kinds, np.complex64]} | {"scalar": np.ones((), np.float32)}
    save_file(tensors, tmp_path / "all.safetensors", metadata={"format": "np"})
    entries = read_header(tmp_path / "all.safetensors").entries
    assert {n: (e.shape, e.end - e.begin) for n, e in entries.items()} == {n: (t.shape, t.nbytes) for n, t in tensors.items()}
    for dtype, bits in safetensors_faults.DTYPES.items():
        path = write_file(tmp_path / f"{dtype}.safetensors", {"x": entry(dtype, [4], [0, bits // 2])}, bits // 2)
        assert read_header(path).kinds == ((dtype, (4,)),)
        with safe_open(path, "np") as library:
            assert list(library.keys()) == ["x"]
        wrong = write_file(tmp_path / "wrong.safetensors", {"x": entry(dtype, [4], [0, bits // 2 + 1])}, bits // 2 + 1)
        refused(wrong)
        with pytest.raises(SafetensorError), safe_open(wrong, "np"):
            pass


SOUND: dict[str, tuple[object, int]] = {
    "no tensors": ({}, 0),
    "empty metadata": ({"__metadata__": {}, "x": EIGHT}, 8),
    "null metadata": ({"__metadata__": None, "x": EIGHT}, 8),
    "nested metadata": ({"__metadata__": {"a": {"b": [1, {"dtype": 5}]}, "shape": "x: y", "dtype": 7}, "x": EIGHT}, 8),
    "metadata of another type": ({"__metadata__": [1, ":", 2], "x": EIGHT}, 8),
    "text as metadata": ({"__metadata__": 'a "data_offsets": b', "x": EIGHT}, 8),
    "huge metadata": ({"__metadata__": {str(i): "x" * 100 for i in range(10_000)}, "x": EIGHT}, 8),
    "metadata last": ({"x": EIGHT, "__metadata__": {"format": "pt"}}, 8),
    "zero-sized": ({"x": EIGHT, "none": entry("F32", [0, 5], [8, 8]), "first": entry("F32", [0], [0, 0])}, 8),
    "zero-sized inside another": ({"x": EIGHT, "none": entry("F32", [3, 0], [4, 4])}, 8),
    "zero times huge": ({"x": EIGHT, "none": entry("F32", [2**62, 2**62, 0], [0, 0])}, 8),
    "scalar": ({"x": entry("F64", [], [0, 8])}, 8),
    "another order": ({"b": entry("U8", [3], [5, 8]), "a": entry("U8", [5], [0, 5])}, 8),
    "a field nobody knows": ({"x": EIGHT | {"note": "y"}}, 8),
    "names like fields": ({"dtype": entry("U8", [4], [0, 4]), "a:b": entry("U8", [4], [4, 8])}, 8),
    "an empty name": ({"": EIGHT}, 8),
    "trailing space": (json.dumps({"x": EIGHT}).encode() + b"     \n", 8),
    "leading space": (b"  " + json.dumps({"x": EIGHT}).encode(), 8),
    "escapes": (b'{"x\\u0061\\"":{"d\\u0074ype":"U8","shape":[8],"data_offsets":[0,8]}}', 8),
    "escaped metadata": (b'{"__metadata_\\u005f":{"a":1},"x":' + json.dumps(EIGHT).encode() + b"}", 8),
    "non-ASCII": ({"слой.漢字.🙂": EIGHT}, 8),
}


@pytest.mark.parametrize(("header", "data"), SOUND.values(), ids=SOUND)
def test_sound_headers(tmp_path: Path, header: object, data: int) -> None:
    found = read_header(write_file(tmp_path / "a.safetensors", header, data))
    expected = header if isinstance(header, dict) else json.loads(header)  # type: ignore[arg-type]
    expected = {n: e for n, e in expected.items() if n != "__metadata__"}
    assert {n: (e.dtype, list(e.shape), e.begin - found.data_start, e.end - found.data_start) for n, e in found.entries.items()} == {
        n: (e["dtype"], list(e["shape"]), *e["data_offsets"]) for n, e in expected.items()
    }


ONE = json.dumps(EIGHT)
BROKEN: dict[str, tuple[object, int, str]] = {
    # faults.md 1: a name twice, in every spelling
    "name twice": (f'{{"x":{ONE},"x":{ONE}}}', 8, "x: needed each name once, found a duplicate tensor name: 2 times"),
    "name twice, one escaped": (f'{{"x":{ONE},"\\u0078":{ONE}}}', 8, "x: needed each name once"),
    "name twice, first empty": (f'{{"x":{{}},"x":{ONE}}}', 8, "x: needed each name once"),
    "name twice, first null": (f'{{"x":null,"x":{ONE}}}', 8, "x: needed each name once"),
    "name twice, last null": (f'{{"x":{ONE},"x":null}}', 8, "x: needed each name once"),
    "name twice, hidden by metadata": (f'{{"__metadata__":{{}},"x":{{}},"x":{ONE}}}', 8, "x: needed each name once"),
    "field twice": ('{"x":{"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]}}', 8, "x: needed dtype once, found it 2 times"),
    "shape twice": ('{"x":{"dtype":"U8","shape":[9],"shape":[8],"data_offsets":[0,8]}}', 8, "x: needed shape once"),
    # 2: byte ranges
    "same range": ({"k": EIGHT, "v": EIGHT}, 8, "v: needed bytes of its own from 8 on, found an overlap with k: begins at 0"),
    "overlap": ({"k": EIGHT, "v": entry("U8", [8], [7, 15])}, 15, "v: needed bytes of its own from 8 on, found an overlap with k"),
    "one inside another": ({"k": entry("U8", [9], [0, 9]), "v": entry("U8", [2], [3, 5])}, 9, "found an overlap with k"),
    "gap": ({"k": EIGHT, "v": entry("U8", [4], [9, 13])}, 13, "v: needed no gap before it: begin at 8, found begin at 9"),
    "gap at the start": ({"k": entry("U8", [8], [1, 9])}, 9, "k: needed no gap before it: begin at 0, found begin at 1"),
    "rest": ({"k": EIGHT}, 20, "needed 8 bytes of data, found 20: 12 bytes after the last tensor"),
    "data without tensors": ({}, 4, "needed 0 bytes of data, found 4"),
    # 3: shapes
    "shape too large": ({"x": entry("U8", [1000, 1000])}, 8, "x: needed 1,000,000 bytes for U8 [1000, 1000], found 8 bytes"),
    "shape too small": ({"x": entry("U8", [7])}, 8, "x: needed 7 bytes for U8 [7], found 8 bytes at data_offsets [0, 8]"),
    "dtype too wide": ({"x": entry("F32", [8])}, 8, "x: needed 32 bytes for F32 [8], found 8"),
    "half a byte": ({"x": entry("F4", [3], [0, 1])}, 1, "x: needed a shape of whole bytes"),
    "half a byte, reversed by one": ({"x": entry("F4", [3], [1, 0])}, 0, "x: needed a shape of whole bytes"),
    "shape overflows": ({"x": entry("U8", [2**62, 2**62])}, 8, "x: needed a shape of whole bytes below 2^63"),
    "shape overflows to zero in 64 bits": ({"x": entry("F32", [2**32, 2**32], [0, 0])}, 0, "x: needed a shape of whole bytes below 2^63"),
    "a million dimensions": ({"x": entry("U8", [2**60] * 1_000_000)}, 8, "x: needed a shape of whole bytes"),
    "zero-sized with bytes": ({"x": entry("U8", [0, 8])}, 8, "x: needed 0 bytes for U8 [0, 8], found 8"),
    "negative dimension": ({"x": entry("U8", [-8])}, 8, "x: needed a shape of integers in 0..2^63-1, found [-8]"),
    "two negative dimensions": ({"x": entry("U8", [-2, -4])}, 8, "x: needed a shape of integers"),
    "float dimension": ({"x": entry("U8", [8.0])}, 8, "x: needed a shape of integers in 0..2^63-1, found [8.0]"),
    "true as dimension": ({"x": entry("U8", [True, 8])}, 8, "x: needed a shape of integers"),
    "dimension as text": ({"x": entry("U8", ["8"])}, 8, "x: needed a shape of integers"),
    "dimension of 2^64": ({"x": entry("U8", [2**64])}, 8, "x: needed a shape of integers"),
    "shape is a number": ({"x": entry("U8", 8)}, 8, "x: needed a shape of integers in 0..2^63-1, found 8"),
    "shape is an object": ({"x": entry("U8", {"a": 8})}, 8, "x: needed a shape of integers in 0..2^63-1, found an object"),
    "shape is null": ({"x": entry("U8", None)}, 8, "x: needed a shape of integers in 0..2^63-1, found null"),
    # 6: offsets and entries
    "reversed": ({"x": entry("U8", [8], [8, 0])}, 8, "x: needed data_offsets in ascending order, found [8, 0]"),
    "negative offset": ({"x": entry("U8", [8], [-8, 0])}, 8, "x: needed data_offsets of two integers"),
    "text offset": ({"x": entry("U8", [8], ["0", "8"])}, 8, "x: needed data_offsets of two integers"),
    "float offset": ({"x": entry("U8", [8], [0.0, 8.0])}, 8, "x: needed data_offsets of two integers"),
    "one offset": ({"x": entry("U8", [8], [8])}, 8, "x: needed data_offsets of two integers"),
    "three offsets": ({"x": entry("U8", [8], [0, 8, 8])}, 8, "x: needed data_offsets of two integers"),
    "null offsets": ({"x": entry("U8", [8], None)}, 8, "x: needed data_offsets of two integers in 0..2^63-1, found null"),
    "offset of 2^63": ({"x": entry("U8", [8], [2**63, 2**63 + 8])}, 8, "x: needed data_offsets of two integers"),
    "beyond the file": ({"x": EIGHT, "y": entry("U8", [8], [8, 16])}, 9, "y: needed 16 bytes of data, found 9: the file is cut short"),
    "zero-sized beyond the file": ({"x": EIGHT, "y": entry("U8", [0], [9, 9])}, 8, "y: needed 9 bytes of data, found 8"),
    "far beyond": ({"x": entry("U8", [2**62], [0, 2**62])}, 8, "x: needed 4,611,686,018,427,387,904 bytes of data, found 8"),
    "no dtype": ({"x": {"shape": [8], "data_offsets": [0, 8]}}, 8, "x: needed dtype, found nothing"),
    "no shape": ({"x": {"dtype": "U8", "data_offsets": [0, 8]}}, 8, "x: needed shape, found nothing"),
    "no offsets": ({"x": {"dtype": "U8", "shape": [8]}}, 8, "x: needed data_offsets, found nothing"),
    "unknown dtype": ({"x": entry("F17")}, 8, "x: needed a dtype out of F4, F6_E2M3, F6_E3M2, BOOL, U8, "),
    "dtype in lower case": ({"x": entry("u8")}, 8, 'found "u8"'),
    "dtype is a number": ({"x": {"dtype": 8, "shape": [8], "data_offsets": [0, 8]}}, 8, "x: needed a dtype out of"),
    "entry is null": ({"x": None}, 8, "x: needed an object with dtype, shape and data_offsets, found null"),
    "entry is a list": ({"x": [1]}, 8, "x: needed an object with dtype, shape and data_offsets, found [1]"),
    "entry is text": ({"x": "U8"}, 8, 'found "U8"'),
    "half a surrogate": (f'{{"x\\ud800":{ONE}}}', 8, "needed a name in Unicode"),
    "terminal codes in a name": ({"\x1b[2J": entry("F17")}, 8, "\\x1b[2J: needed"),
    # 5, 6: not a header at all
    "a list": ("[]", 0, "header: needed a JSON object"),
    "a number": ("123456", 0, "header: needed a JSON object"),
    "empty": ("", 0, "header: needed a JSON object, found nothing"),
    "spaces": ("        ", 0, "header: needed a JSON object"),
    "cut": ('{"x":{"dtype":"U8"', 0, "header: needed valid JSON"),
    "two objects": ("{}{}", 0, "header: needed valid JSON"),
    "zero bytes behind": ("{}\0\0\0\0\0\0", 0, "header: needed valid JSON"),
    "not UTF-8": (b'{"\xff\xfe":1}', 0, "header: needed JSON in UTF-8, found a bad byte at position 2"),
    "NaN": ('{"x":{"dtype":"U8","shape":[NaN],"data_offsets":[0,8]}}', 8, "NaN is not JSON"),
    "a number of 10,000 digits": ('{"x":' + "9" * 10_000 + "}", 0, "header: needed valid JSON"),
    "100,000 brackets": ('{"x":' + "[" * 100_000, 0, "header: needed valid JSON, found nesting too deep"),
    "closed brackets": ('{"x":' + "[" * 50_000 + "]" * 50_000 + "}", 0, "found nesting too deep"),
    "a comment": ('{/* */"x":1}', 0, "header: needed valid JSON"),
    "a comma too many": (f'{{"x":{ONE},}}', 8, "header: needed valid JSON"),
}


@pytest.mark.parametrize(("header", "data", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_headers(tmp_path: Path, header: object, data: int, message: str) -> None:
    raw = header.encode() if isinstance(header, str) else header
    error = refused(write_file(tmp_path / "a.safetensors", raw, data))
    assert message in str(error)
    assert len(str(error)) < 3000
    assert str(error).replace("\n", "").isprintable()


def test_more_than_thirty_kinds() -> None:
    assert len(BROKEN) > 60


def test_all_faults_of_a_file_at_once(tmp_path: Path) -> None:
    header = {"a": entry("F17"), "b": None, "c": entry("U8", [-1]), "fine": EIGHT}
    assert [p.what for p in refused(write_file(tmp_path / "a.safetensors", header, 8)).problems] == ["a", "b", "c"]
    many = {f"t{i}": entry("F17") for i in range(5000)}
    error = refused(write_file(tmp_path / "b.safetensors", many, 8))
    assert len(error.problems) == 51
    assert "4950 more faults" in error.problems[-1].found


LENGTHS = [
    (b"", "at least 8 bytes), found 0 bytes"),
    (b"1234567", "at least 8 bytes), found 7 bytes"),
    (b"\0" * 8, "header: needed a JSON object, found nothing"),
    (struct.pack("<Q", 1), "header length: needed at most 0 (the file has 8 bytes), found 1"),
    (struct.pack("<Q", 10**12) + b"{}", "header length: needed at most 2 (the file has 10 bytes), found 1,000,000,000,000"),
    (struct.pack("<Q", 2**63) + b"{}", "found 9,223,372,036,854,775,808"),
    (struct.pack("<Q", 2**64 - 1) + b"{}", "found 18,446,744,073,709,551,615"),
    (struct.pack(">Q", 2) + b"{}", "header length: needed at most 2"),
    (b"<!DOCTYPE html><html><head><title>403", "the file is text that begins with '<!DOCTYPE html><html><head>"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n", "the file is text that begins with 'version https://git-lfs"),
]


@pytest.mark.parametrize(("content", "message"), LENGTHS, ids=range(len(LENGTHS)))
def test_lengths_that_lie(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(content)
    assert message in str(refused(path))


@pytest.mark.parametrize("length", [10**12 - 8, 100_000_001, 10**11])
def test_a_huge_length_allocates_nothing(tmp_path: Path, length: int) -> None:
    """The file really is that long (of holes), so only the limit and the first bytes can tell."""
    path = write_file(tmp_path / "a.safetensors", b"{", 10**12 - 9, length)
    assert path.stat().st_size == 10**12
    tracemalloc.start()
    try:
        assert "header length: needed at most 100,000,000, found" in str(refused(path))
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_a_long_header_of_holes_is_not_read(tmp_path: Path) -> None:
    path = write_file(tmp_path / "a.safetensors", b"", 10**12, 99_000_000)
    tracemalloc.start()
    try:
        assert "header: needed a JSON object" in str(refused(path))
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_things_that_are_no_files(tmp_path: Path) -> None:
    assert "No such file" in str(refused(tmp_path / "gone"))
    assert "a regular file" in str(refused(tmp_path))
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    assert "a regular file" in str(refused(tmp_path / "pipe"))
    assert "a readable file" in str(refused(tmp_path / "a\0b"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A small sound file and its bytes; with metadata, several dtypes and a zero-sized tensor."""
    path = tmp_path_factory.mktemp("real") / "a.safetensors"
    tensors: dict[str, Any] = {"model.norm.weight": np.ones(4, np.float32), "model.a.weight_packed": np.ones((4, 2), np.uint8)}
    tensors |= {"model.none": np.ones((0, 3), np.float32), "model.x": np.ones((2, 3), np.float16)}
    save_file(tensors, path, metadata={"format": "pt"})
    return path, path.read_bytes()


def outcome(raw: bytes, path: Path) -> dict[str, Any] | None:
    """What reading these bytes gives; any exception but CheckpointError fails the test."""
    path.write_bytes(raw)
    try:
        return read_header(path).entries
    except CheckpointError as error:
        return None if error.problems and str(error) else pytest.fail("an error that says nothing")


def library_reads(path: Path) -> bool:
    try:
        with safe_open(path, "np"):
            return True
    except SafetensorError:
        return False


def damaged(raw: bytes, length: int, rng: random.Random) -> bytes:
    """The file with a few bytes of its header flipped, cut, repeated or dropped; mostly with a header length that fits again."""
    data = bytearray(raw)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(8, max(min(length, len(data)), 9))
        kind = rng.randrange(8)
        if kind < 3:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif kind < 5:
            data[at : at + 1] = bytes([rng.choice(b'"{}[]:,0123456789eE-.\\ nt')])
        elif kind == 5:
            del data[rng.randrange(len(data)) :]
        elif kind == 6:
            data[at:at] = data[at : at + rng.randrange(60)]
        else:
            del data[at : at + rng.randrange(1, 30)]
    if rng.random() < 0.8:
        data[:8] = struct.pack("<Q", max(length - 8 + len(data) - len(raw), 0))
    elif rng.random() < 0.5:
        data[rng.randrange(8) : 8] = b""
    return bytes(data)


def test_fuzz_bytes(real: tuple[Path, bytes], tmp_path: Path) -> None:
    """An error or a sound header, never anything else, and nothing that the library refuses."""
    _, raw = real
    length = 8 + int.from_bytes(raw[:8], "little")
    rng = random.Random(20240817)
    path = tmp_path / "fuzz.safetensors"
    accepted = []
    tracemalloc.start()
    try:
        for _ in range(1500):
            data = damaged(raw, length, rng)
            if outcome(data, path) is not None:
                accepted.append(data)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert len(accepted) > 20  # a flipped letter of a name is no fault: the fuzz does get through
    for data in accepted:
        path.write_bytes(data)
        assert library_reads(path) or b'"__metadata__":{"format":"pt"}' not in data  # we do not care what is in the metadata


def test_fuzz_bytes_of_a_checkpoint(oracle: Path, tmp_path: Path) -> None:
    """The same on the header of a whole shard, over holes in place of its data."""
    source = min(oracle.glob("*.safetensors"))
    raw, size = safetensors._read_raw(source)
    rng = random.Random(3)
    path = tmp_path / "fuzz.safetensors"
    head = struct.pack("<Q", len(raw)) + raw
    for _ in range(150):
        path.write_bytes(damaged(head, len(head), rng))
        os.truncate(path, size)
        try:
            assert read_header(path).size == size
        except CheckpointError as error:
            assert str(error)  # noqa: PT017


TEXT = st.text('ab"\\:', max_size=4) | st.sampled_from(["U8", "F32", "BF16"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**65), 2**65) | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets"]), inner, max_size=3),
    max_leaves=8,
)
NEAR = st.fixed_dictionaries(
    {"dtype": st.sampled_from(["U8", "F32", "F4", "no"]) | JSON, "shape": st.lists(st.integers(-1, 4), max_size=3) | JSON},
    optional={"data_offsets": st.lists(st.integers(-1, 9), min_size=2, max_size=2) | JSON},
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(header=st.dictionaries(st.sampled_from(["a", "b", "c", "__metadata__"]), NEAR | JSON, max_size=3), data=st.integers(0, 12))
def test_fuzz_structure(tmp_path: Path, header: dict[str, Any], data: int) -> None:
    """Entries that are nearly right, of any JSON: refused or the same as the library reads."""
    path = write_file(tmp_path / "a.safetensors", header, data)
    found = outcome(path.read_bytes(), path)
    metadata = header.get("__metadata__")
    if metadata is None or (isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())):
        inside = any(e.begin == e.end for e in (found or {}).values())  # zero-sized ones may lie anywhere for us
        if found is not None and not inside:
            assert library_reads(path)
        if library_reads(path):
            assert found is not None


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=6), move=st.integers(-2, 2), which=st.integers(0, 5), rest=st.integers(-2, 2))
def test_ranges_cover_the_data(tmp_path: Path, sizes: list[int], move: int, which: int, rest: int) -> None:
    """Tensors end to end are sound; any one moved, or a byte more or less of data, is not (unless nothing with bytes is touched)."""
    ranges, at = [], 0
    for size in sizes:
        ranges.append([at, at + size])
        at += size
    which %= len(sizes)
    begin, end = ranges[which]
    ranges[which] = [max(begin + move, 0), max(begin + move, 0) + end - begin]
    header = {f"t{i}": entry("U8", [e - b], [b, e]) for i, (b, e) in enumerate(ranges)}
    data = max(at + rest, 0)
    covered = sorted(byte for b, e in ranges for byte in range(b, e))
    sound = covered == list(range(data)) and all(e <= data for _, e in ranges)
    path = write_file(tmp_path / "a.safetensors", header, data)
    assert (outcome(path.read_bytes(), path) is not None) == sound


def test_both_ways_agree(real: tuple[Path, bytes], oracle: Path) -> None:
    """What the quick way reads, the slow one reads the same."""
    for path in [real[0], *oracle.glob("*.safetensors")]:
        raw, _ = safetensors._read_raw(path)
        quick = safetensors._decode(raw)
        assert quick is not None
        assert quick == safetensors._as_tensors(safetensors_faults.decode(raw, path))
