"""What the reader cannot do it says, with the file, the place and the numbers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from reading_files import big, opened, place, read, start, write_random

from lilliput._core import Arena, FaultPlan, Reader

__all__ = ["big", "place"]  # fixtures


def test_an_error_names_file_offset_and_errno(big: tuple[Path, bytes]) -> None:
    path, raw = big
    reader, file = opened(path, threads=1, request_bytes=65536, faults=FaultPlan(fail_at=[(3, 5)]))
    ticket, _landing = start(reader, file, 0, len(raw))
    with pytest.raises(OSError, match="EIO") as caught:
        reader.wait(ticket)
    assert caught.value.errno == 5
    assert caught.value.filename == str(path)
    assert f"at offset {2 * 65536} of {len(raw)}" in str(caught.value)
    assert read(reader, file, 100, 1000) == raw[100:1100]  # one bad request ends one ticket
    with pytest.raises(ValueError, match="not waited for"):
        reader.wait(ticket)


def test_after_an_error_the_rest_of_the_ticket_is_not_read(big: tuple[Path, bytes]) -> None:
    plan = FaultPlan(fail_at=[(1, 5)])
    reader, file = opened(big[0], threads=1, request_bytes=65536, faults=plan)
    ticket, _landing = start(reader, file, 0, 1_000_000)
    with pytest.raises(OSError, match="EIO"):
        reader.wait(ticket)
    assert len(plan.calls()) == 1


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("left", [0, 100_000, 131_072, 999_999])
def test_truncated_while_in_use(place: Path, direct: bool, left: int) -> None:
    path = place / "shrinks"
    raw = write_random(path, 1_000_000)
    reader, file = opened(path, direct=direct)
    assert read(reader, file, 999_000, 1000) == raw[-1000:]
    os.truncate(path, left)
    with pytest.raises(OSError, match=rf"truncated while in use: needed 1000000 bytes, found {left}") as caught:
        read(reader, file, left // 2, 1_000_000 - left // 2)
    assert caught.value.filename == str(path)


def test_a_replaced_or_deleted_file_is_still_the_one_that_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "x"
    raw = write_random(path, 100_000)
    reader, file = opened(path)
    write_random(tmp_path / "y", 100_000, seed=9)
    (tmp_path / "y").rename(path)
    assert read(reader, file, 0, 100_000) == raw
    path.unlink()
    assert read(reader, file, 5, 5000) == raw[5:5005]


def test_files_that_cannot_be_added(tmp_path: Path) -> None:
    reader = Reader(threads=1)
    with pytest.raises(FileNotFoundError, match="ENOENT") as caught:
        reader.add(tmp_path / "nowhere", 10)
    assert caught.value.filename == str(tmp_path / "nowhere")
    write_random(tmp_path / "x", 10)
    with pytest.raises(ValueError, match=r"x: needed 11 bytes, found 10"):
        reader.add(tmp_path / "x", 11)
    with pytest.raises(ValueError, match="regular file"):
        reader.add(tmp_path, 0)
    assert reader.add(tmp_path / "x", 10) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has only UTF-8 names")
def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\xfe.bin")
    raw = write_random(path, 100)
    reader, file = opened(path, direct=False, faults=FaultPlan(fail_at=[(2, 5)]), threads=1)
    assert read(reader, file, 0, 100) == raw
    assert reader.buffered() == [(str(path), "asked for")]
    with pytest.raises(OSError, match="EIO") as caught:
        read(reader, file, 0, 100)
    assert caught.value.filename == str(path)


def test_arguments_that_make_no_sense(big: tuple[Path, bytes]) -> None:
    path, raw = big
    reader, file = opened(path, threads=1)
    arena = Arena(1 << 20)
    for offset, nbytes in [(0, len(raw) + 1), (len(raw), 1), (len(raw) + 1, 1), (2**63, 2**63), (1, 2**64 - 1)]:
        with pytest.raises(ValueError, match=str(path)):
            reader.submit(file, offset, nbytes, arena.address, False)
    with pytest.raises(ValueError, match="nbytes"):
        reader.extent(file, 0, 0)
    for number in (-1, 1):
        with pytest.raises(ValueError, match="file: needed a number below 1"):
            reader.extent(number, 0, 1)
    with pytest.raises(ValueError, match="address: needed a multiple"):
        reader.submit(file, 0, 100, arena.address + 8, False)
    with pytest.raises(ValueError, match="inside one arena"):
        reader.submit(file, 0, (1 << 20) + 1, arena.address, False)
    with pytest.raises(ValueError, match="inside one arena"):
        reader.submit(file, 0, 100, arena.address + (1 << 20), False)
    with pytest.raises(ValueError, match="inside one arena"):
        reader.submit(file, 0, 100, np.zeros(1 << 16, np.uint8).ctypes.data, False)
    with pytest.raises(ValueError, match="ticket"):
        reader.cancel(77)
    for threads in (0, 257):
        with pytest.raises(ValueError, match="threads"):
            Reader(threads=threads)
    assert reader.stats()["bytes_asked"] == 0
