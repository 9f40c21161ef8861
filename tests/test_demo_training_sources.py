"""Readers of the two packages on small files made here, and what happens when something is missing."""

from __future__ import annotations

import random
import re
import struct
import zlib
from pathlib import Path

import pytest
from demo_training import sources
from demo_training.sources import novel_chapters, osis_chapters, plain, r_string_vectors, split, sword_blocks

from lilliput.errors import ContentError, InputError, LilliputError, UsageError

BOOK = (
    '<div osisID="Gen" sID="a" type="book"/><title type="main">Genesis</title>Not of a chapter.'
    '<chapter n="1" osisID="Gen.1" sID="Gen.1"/><div sID="p1" type="x-p"/>'
    '<w lemma="strong:H1">In the beginning</w>, God<note placement="foot">After “God,” a <b>word</b>.</note>'
    '<w>created</w> the  heavens&amp;earth<note>again</note>. “It’s good—very,” he said.<chapter eID="Gen.1"/>'
    '<div eID="p1" type="x-p"/><chapter n="2" osisID="Gen.2" sID="Gen.2"/><div sID="p2" type="x-p"/>Second.'
    '<lg sID="g1"/><l level="1" sID="l1"/>A line,<l eID="l1" level="1"/><l level="2" sID="l2"/>and another.<l eID="l2" level="2"/>'
    '<chapter eID="Gen.2"/>A glossary.'
)


def write_sword(folder: Path, blocks: list[str]) -> None:
    index, packed = b"", b""
    for block in blocks:
        raw = zlib.compress(block.encode())
        index += struct.pack("<III", len(packed), len(raw), len(block.encode()))
        packed += raw
    (folder / "ot.bzs").write_bytes(index)
    (folder / "ot.bzz").write_bytes(packed)


def r_record(strings: list[str | None], kind: int = 16) -> bytes:
    body = b"X\n" + struct.pack(">III", 3, 0x40201, 0x30500) + struct.pack(">I", 5) + b"UTF-8" + struct.pack(">II", kind, len(strings))
    for text in strings:
        raw = b"" if text is None else text.encode()
        body += struct.pack(">Ii", 0x40009, -1 if text is None else len(raw)) + raw
    return struct.pack(">I", len(body)) + zlib.compress(body)


def test_osis_without_notes_headings_and_markup() -> None:
    assert list(osis_chapters(BOOK)) == [
        'In the beginning, God created the heavens&earth. "It\'s good--very," he said.',
        "Second.\nA line, and another.",
    ]


def test_second_versions_of_books_are_left_out() -> None:
    assert list(osis_chapters(BOOK.replace('osisID="Gen.', 'osisID="EsthGr.'))) == []


def test_sword_blocks_come_in_order(tmp_path: Path) -> None:
    write_sword(tmp_path, ["first “block”", "second"])
    assert list(sword_blocks(tmp_path, "ot")) == ["first “block”", "second"]


def test_broken_sword_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ot\.bzs: needed a file of the package"):
        list(sword_blocks(tmp_path, "ot"))
    write_sword(tmp_path, ["first", "second"])
    index, packed = (tmp_path / "ot.bzs").read_bytes(), (tmp_path / "ot.bzz").read_bytes()
    (tmp_path / "ot.bzs").write_bytes(index[:-1])
    with pytest.raises(InputError, match=r"ot\.bzs: size: needed a multiple of 12 bytes, found 23"):
        list(sword_blocks(tmp_path, "ot"))
    (tmp_path / "ot.bzs").write_bytes(index[:-4] + struct.pack("<I", 7))
    with pytest.raises(InputError, match="block 1: needed 7 bytes after unpacking, found 6"):
        list(sword_blocks(tmp_path, "ot"))
    (tmp_path / "ot.bzs").write_bytes(index)
    (tmp_path / "ot.bzz").write_bytes(packed[:-2])
    with pytest.raises(InputError, match="block 1: needed zlib data"):
        list(sword_blocks(tmp_path, "ot"))


def test_r_records_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "Rdata.rdb"
    path.write_bytes(r_record(["one", "", "zwölf"]) + r_record([None, "two"]))
    assert list(r_string_vectors(path)) == [["one", "", "zwölf"], ["", "two"]]


def test_broken_r_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "Rdata.rdb"
    good = r_record(["one"])
    body = zlib.decompress(good[4:])
    for raw, said in (
        (r_record(["one"], kind=19), "found type 19"),
        (good + b"\0\0\0\7nonsense", "record 1: needed a character vector"),
        (good[:4] + zlib.compress(b"Y" + body[1:]), "found b'Y"),
        (good[:4] + zlib.compress(body[:-1]), "length 3 where a string was due"),
        (good[:4] + zlib.compress(body[:20]), "record 0"),
    ):
        path.write_bytes(raw)
        with pytest.raises(InputError, match=re.escape(said)):
            list(r_string_vectors(path))


def test_novels_in_chapters_and_paragraphs() -> None:
    lines = [
        "EMMA",
        "",
        "VOLUME I",
        "CHAPTER I",
        "",
        "She was",
        "_very_ happy.",
        "",
        "“Oh!”",
        "* * *",
        "VOLUME II",
        "",
        "Chapter 2.",
        "End",
        "",
        "FINIS",
    ]
    assert list(novel_chapters(lines)) == ['She was very happy.\n"Oh!"', "End"]


def test_plain_text_is_ascii_with_single_spaces() -> None:
    assert plain([" ‘A’  “b”… ", "", "[Remark]", "c – d\N{NO-BREAK SPACE}— e ?"]) == "'A' \"b\"...\nc - d -- e?"


def test_held_out_text_is_nowhere_in_the_training_text() -> None:
    rng = random.Random(0)
    words = [f"{chr(97 + at % 26)}{chr(97 + at // 26)}" for at in range(200)]
    chapters = ["\n".join(" ".join(rng.choices(words, k=20)) for _ in range(5)) for _ in range(60)]
    repeated = " ".join(rng.choices(words, k=13))
    chapters[9] += f"\n{repeated}"
    chapters[30] += f"\nbefore {repeated.upper()} after"
    train, heldout = split(chapters)
    assert heldout == [chapters[9], chapters[29], chapters[49]]
    assert len(train) == 57
    assert "before" not in "".join(train)
    assert train[28] == chapters[30].rsplit("\n", 1)[0]

    def runs(text: str) -> set[tuple[str, ...]]:
        found = re.findall("[a-z]+", text.lower())
        return {tuple(found[at : at + 12]) for at in range(len(found) - 11)}

    assert not set().union(*map(runs, heldout)) & set().union(*(runs(line) for chapter in train for line in chapter.split("\n")))


def test_without_apt_get_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"`apt-get` is not on this machine: put sword-text-web_\*\.deb into .*packages by hand"):
        sources.obtain(tmp_path)


def test_a_failing_download_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "apt-get"
    fake.write_text("#!/bin/sh\necho 'E: Unable to locate package' >&2\nexit 100\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        LilliputError, match=r"`apt-get download sword-text-web` failed with exit code 100 .*Unable to locate.*apt-get update"
    ):
        sources.obtain(tmp_path)


def test_another_text_is_refused_and_nothing_is_downloaded_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "packages" / sources.BIBLE / sources.BIBLE_FOLDER
    folder.mkdir(parents=True)
    write_sword(folder, [BOOK])
    for suffix in ("bzs", "bzz"):
        (folder / f"nt.{suffix}").write_bytes((folder / f"ot.{suffix}").read_bytes())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ContentError, match=r"`sword-text-web` is not the one .* of 4; another version"):
        sources.obtain(tmp_path)
