"""Files that appear complete or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading_pipe import read_pipe

from lilliput.machine.output import replacing


def write(path: Path, content: bytes) -> None:
    with replacing(path) as out:
        out.write(content)


def test_a_file_is_replaced_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    for content in (b"first", b"second"):
        write(tmp_path / "f", content)
        assert (tmp_path / "f").read_bytes() == content
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_after_an_error_the_old_file_is_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "f", b"old")
    with pytest.raises(TypeError), replacing(tmp_path / "f") as out:
        out.writelines([b"half", None])  # type: ignore[list-item]
    assert (tmp_path / "f").read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_what_is_no_regular_file_is_written_to_and_stays(tmp_path: Path) -> None:
    """As root, a rename over `/dev/null` would replace the device."""
    with read_pipe(tmp_path / "pipe") as got:
        write(tmp_path / "pipe", b"through")
    assert got == [b"through"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    for content in (b"first", b"second"):
        write(tmp_path / "link", content)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"second"
