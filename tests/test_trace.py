"""Trace files: what is written comes back, the structure is found again, malformed files are refused with all that is wrong."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading_pipe import read_pipe

from lilliput import trace as module
from lilliput.errors import DoesNotFitError, InputError, UsageError
from lilliput.trace import HEADER, MAGIC, VERSION, Request, Trace, TraceWriter, read_trace

EXPERTS, TOP_K = 20, 4


def chosen(tokens: int) -> st.SearchStrategy[list[list[int]]]:
    token = st.lists(st.integers(0, EXPERTS - 1), min_size=TOP_K, max_size=TOP_K, unique=True)
    return st.lists(token, min_size=tokens, max_size=tokens)


passes = st.lists(st.integers(1, 3).flatmap(lambda tokens: st.lists(chosen(tokens), min_size=3, max_size=3)), min_size=1, max_size=6)


def pairs(path: Path, *values: tuple[int, int]) -> Path:
    path.write_bytes(np.array(values, "<i4").tobytes())
    return path


@settings(max_examples=50)
@given(recorded=passes)
def test_what_is_written_comes_back(recorded: list[list[list[list[int]]]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("trace") / "run.trace"
    with TraceWriter(path, top_k=TOP_K, expert_bytes=1000) as writer:
        for one in recorded:
            for layer, ids in zip((1, 2, 5), one, strict=True):
                writer.routed(layer, np.array(ids, np.int32), np.ones(1, np.float32))
    trace = read_trace(path)
    assert trace.expert_bytes == trace.unrolled().expert_bytes == 1000
    assert trace.layers == (1, 2, 5)
    assert trace.tokens == sum(len(one[0]) for one in recorded)
    assert trace.experts == 1 + max(expert for one in recorded for layer in one for token in layer for expert in token)
    assert len(trace.passes) == len(recorded)
    for one, was in zip(trace.passes, recorded, strict=True):
        for request, ids in zip(one, was, strict=True):
            flat = [expert for token in ids for expert in token]
            assert request.chosen.tolist() == [sorted(token) for token in ids]
            assert request.ids.tolist() == sorted(set(flat))
            assert request.uses.tolist() == [flat.count(expert) for expert in sorted(set(flat))]


def test_the_file_has_its_name_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.trace"
    writer = TraceWriter(path, top_k=2, expert_bytes=0x10203040506)
    writer.routed(1, np.array([[3, 1]], np.int32))
    assert not path.exists()
    writer.close()
    writer.close()
    header = b"LILTRACE" + bytes([1, 0, 0, 0, 2, 0, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0])
    assert path.read_bytes() == header + np.array([[1, 1], [1, 3]], "<i4").tobytes()
    assert [file.name for file in tmp_path.iterdir()] == ["a.trace"]


def test_an_interrupted_run_keeps_its_trace(tmp_path: Path) -> None:
    def run() -> None:
        with TraceWriter(tmp_path / "a.trace", top_k=2, expert_bytes=1) as writer:
            writer.routed(1, np.array([[1, 3]], np.int32))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert read_trace(tmp_path / "a.trace").tokens == 1


def test_an_abandoned_pass_is_a_pass(tmp_path: Path) -> None:
    trace = read_trace(pairs(tmp_path / "t", (1, 0), (2, 0), (1, 5), (1, 6), (2, 6), (2, 7), (1, 1)), top_k=1)
    assert [[(r.layer, r.tokens) for r in one] for one in trace.passes] == [[(1, 1), (2, 1)], [(1, 2), (2, 2)], [(1, 1)]]


def test_one_layer_alone_is_one_token_a_pass(tmp_path: Path) -> None:
    trace = read_trace(pairs(tmp_path / "t", (4, 0), (4, 1), (4, 1), (4, 2)), top_k=2)
    assert [one[0].chosen.tolist() for one in trace.passes] == [[[0, 1]], [[1, 2]]]


def test_keys_are_each_expert_once_per_request() -> None:
    trace = Trace([[Request(1, np.array([[2, 0], [0, 3]], np.int32)), Request(6, np.array([[0, 1], [0, 1]], np.int32))]])
    assert trace.experts == 4
    assert trace.keys.tolist() == [0, 2, 3, 4, 5]
    assert Trace([]).keys.tolist() == []


def token(*ids: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
    return np.array([ids], np.int32)


def test_unrolling_leaves_out_prefixes_that_are_computed_again() -> None:
    a, b, c = token(0, 1), token(2, 3), token(4, 5)
    x, y, z = token(7, 8), token(1, 9), token(0, 9)
    growing = Trace(
        [
            [Request(1, np.concatenate([a, b])), Request(2, np.concatenate([x, y]))],
            [Request(1, np.concatenate([a, b, c])), Request(2, np.concatenate([x, y, z]))],
        ]
    )
    assert [[r.chosen.tolist() for r in one] for one in growing.unrolled().passes] == [
        [[[0, 1]], [[7, 8]]],
        [[[2, 3]], [[1, 9]]],
        [[[4, 5]], [[0, 9]]],
    ]


def test_unrolling_keeps_tokens_that_only_look_alike() -> None:
    """A decoded token that asks for what the one before it asked for is a token; so is a prompt that differs in one layer."""
    same = [Request(1, token(0, 1)), Request(2, token(7, 8))]
    assert len(Trace([same, same]).unrolled().passes) == 2
    other = [Request(1, np.concatenate([token(0, 1)] * 2)), Request(2, np.concatenate([token(7, 9)] * 2))]
    assert len(Trace([same, other]).unrolled().passes) == 3


def test_a_trace_without_a_header_is_taken_for_k3s_unless_told_otherwise(tmp_path: Path) -> None:
    path = pairs(tmp_path / "t", *((1, expert) for expert in range(32)))
    assert (read_trace(path).tokens, read_trace(path).expert_bytes) == (2, None)
    assert read_trace(path, 8).tokens == 4


def headed(path: Path, *numbers: int, form: str = "<IIQ") -> Path:
    path.write_bytes(b"LILTRACE" + struct.pack(form, *numbers) + np.array([[1, 0], [1, 1]], "<i4").tobytes())
    return path


def test_the_number_of_experts_that_was_recorded_is_the_only_one(tmp_path: Path) -> None:
    path = headed(tmp_path / "t", 1, 2, 100)
    assert read_trace(path).tokens == read_trace(path, 2).tokens == 1
    with pytest.raises(UsageError, match=r"--top-k 1: .*/t was recorded with 2 experts per token: leave the option out"):
        read_trace(path, 1)


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ((2, 2, 100), "format: needed version 1, found 2\nmade by another Lilliput"),
        ((1, 0, 100), "top_k in the header: needed 1 to 65,536, found 0"),
        ((1, 2**32 - 1, 100), "top_k in the header: needed 1 to 65,536, found 4,294,967,295"),
        ((1, 2, 0), "bytes of an expert in the header: needed 1 to 1,099,511,627,775, found 0"),
        ((1, 2, 2**63), "bytes of an expert in the header: needed 1 to"),
        ((1, 4, 100), "layer 1 from pair 0: needed a multiple of top_k = 4 pairs, found 2"),
    ],
)
def test_malformed_headers(tmp_path: Path, numbers: tuple[int, ...], found: str) -> None:
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / 't'}: {found}")) as caught:
        read_trace(headed(tmp_path / "t", *numbers))
    assert "--top-k" not in str(caught.value)


@pytest.mark.parametrize(("length", "found"), [(8, "header: needed 24 bytes, found 8"), (23, "24 bytes, found 23"), (24, "found 0 bytes")])
def test_a_header_alone(tmp_path: Path, length: int, found: str) -> None:
    path = headed(tmp_path / "t", 1, 2, 100)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InputError, match=found):
        read_trace(path)


def test_the_released_trace(shared_data: Path) -> None:
    trace = read_trace(shared_data / "k3-expert-trace.bin")
    assert [one[0].tokens for one in trace.passes] == [5, 6, 7, 8, 9, 10, 11, 12]
    assert trace.layers == tuple(range(1, 93))
    assert trace.unrolled().tokens == 12


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([(1, 0), (1, 1), (1, 2)], r"layer 1 from pair 0: needed a multiple of top_k = 2 pairs, found 3"),
        ([(1, 0), (1, 1), (2, 4), (2, 4)], r"layer 2, token at pair 2: needed 2 different experts, found an expert twice"),
        ([(1, 0), (1, -1)], r"pair 1: needed a layer from 0 and an expert from 0 to 65535, found \(1, -1\)"),
        ([(-1, 0), (1, 1)], r"pair 0: needed a layer from 0 .*, found \(-1, 0\)"),
        ([(1, 0), (1, 70000)], r"found \(1, 70000\)"),
        ([(1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3)], r"pass 0: needed the same number of tokens in every layer, found 1 and 2"),
    ],
)
def test_malformed_pairs(tmp_path: Path, values: list[tuple[int, int]], found: str) -> None:
    with pytest.raises(InputError, match=found) as caught:
        read_trace(pairs(tmp_path / "t", *values), top_k=2)
    assert str(tmp_path / "t") in str(caught.value)


def test_all_complaints_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_trace(pairs(tmp_path / "t", (1, 0), (2, 1), (2, 1), (3, 0)), top_k=2)
    assert len(caught.value.problems) == 3
    assert "--top-k" in str(caught.value)


@pytest.mark.parametrize("raw", [b"", b"\x01\x00\x00\x00\x05\x00\x00\x00\x01\x00\x00"])
def test_a_file_of_the_wrong_length(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "t").write_bytes(raw)
    with pytest.raises(InputError, match=rf"length: needed a positive multiple of 8 bytes: .*found {len(raw)} bytes"):
        read_trace(tmp_path / "t")


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 3 << 30)


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda path: None, "needed a trace file (`lilliput generate ... --trace-experts FILE` writes one), found nothing"),
    "a directory": (Path.mkdir, "needed a regular file, found a directory"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "needed a regular file, found something that is not a file"),
    "a pipe": (os.mkfifo, "needed a regular file, found something that is not a file"),
    "too large": (large, "needed at most 1,000,000,000 bytes, found 3,221,225,472 bytes"),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_trace_file_is_not_read(tmp_path: Path, kind: str) -> None:
    make, found = ODD[kind]
    make(tmp_path / "t")
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / 't'}: {found}")):
        read_trace(tmp_path / "t")


def written(path: Path, layers: int, experts: int, tokens: int = 1, top_k: int = 1) -> Path:
    """A trace of so many layers in which every token asks for the highest experts."""
    one = np.empty((layers, top_k, 2), "<i4")
    one[:, :, 0] = np.arange(layers)[:, None]
    one[:, :, 1] = np.arange(experts - top_k, experts)
    path.write_bytes(HEADER.pack(MAGIC, VERSION, top_k, 100) + one.tobytes() * tokens)
    return path


def test_tables_that_no_memory_holds_are_refused_with_the_numbers(tmp_path: Path) -> None:
    found = "experts: needed at most 8,000,000 in all layers, found 4,000 layers with experts up to 65,535, 262,144,000 in all"
    with pytest.raises(InputError, match=re.escape(found)):
        read_trace(written(tmp_path / "t", 4000, 65536))
    for layers, experts, top_k in ((92, 896, 16), (1000, 8000, 64), (122, 65536, 1)):
        trace = read_trace(written(tmp_path / "t", layers, experts, top_k=top_k))
        assert (len(trace.layers), trace.experts, trace.tokens) == (layers, experts, 1)


def test_more_requests_than_can_be_replayed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small ones cost more than the file shows, the more of them the fewer experts a token chooses."""
    whole = written(tmp_path / "t", 2, 8, tokens=50, top_k=4)
    alternating = pairs(tmp_path / "u", *([(1, 0), (2, 0)] * 100))  # of which none is a whole token
    monkeypatch.setattr(module, "MOST_CHOICES", 100)
    assert read_trace(whole).tokens == 50
    with pytest.raises(InputError, match=r"requests: needed at most 100 of a token in a layer, found 200"):
        read_trace(alternating)
    monkeypatch.setattr(module, "MOST_CHOICES", 99)
    with pytest.raises(InputError, match=r"requests: needed at most 99 of a token in a layer, found 100\n.*record fewer tokens"):
        read_trace(whole)


@pytest.mark.parametrize(
    ("values", "top_k", "found"),
    [
        ([(-1, 5)], 1, "in all 200,000 of its 200,000 pairs"),
        ([(1, 0), (2, 0)], 2, "layer 1 from pair 0"),
        ([(1, 0), (1, 0)], 2, "pair 0"),
        ([(1, 0), (2, 0), (2, 0)], 1, "pass 0: needed the same number"),
    ],
    ids=["pairs", "requests", "experts twice", "passes"],
)
def test_a_file_that_is_wrong_everywhere_costs_no_more_than_its_complaints(
    tmp_path: Path, values: list[tuple[int, int]], top_k: int, found: str
) -> None:
    path = pairs(tmp_path / "t", *(values * (200_000 // len(values))))
    with pytest.raises(InputError, match=found) as caught:
        read_trace(path, top_k=top_k)
    assert len(caught.value.problems) <= 1000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    with read_pipe(tmp_path / "p") as got, TraceWriter(tmp_path / "p", top_k=2, expert_bytes=100) as trace:
        trace.routed(3, np.array([[1, 2]], np.int32))
    assert got == [HEADER.pack(MAGIC, VERSION, 2, 100) + np.array([3, 1, 3, 2], "<i4").tobytes()]


def test_nobody_elses_unfinished_file_is_touched(tmp_path: Path) -> None:
    theirs = tmp_path / "t.partial"
    theirs.write_bytes(b"theirs")
    with TraceWriter(tmp_path / "t", top_k=2, expert_bytes=100):
        pass
    assert theirs.read_bytes() == b"theirs"
    with TraceWriter(tmp_path / ("n" * 250), top_k=2, expert_bytes=100):  # its temporary name must not be too long
        pass
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
def test_a_full_disk_is_the_traces_fault_and_says_so() -> None:
    trace = TraceWriter(Path("/dev/full"), top_k=2, expert_bytes=100)
    with pytest.raises(DoesNotFitError, match=r"/dev/full: could not be written: No space left on device"):
        trace.close()
    trace.close()
    assert Path("/dev/full").is_char_device()
