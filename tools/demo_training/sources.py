"""Real prose: a plain English Bible and six novels, both public domain, unpacked from two Debian packages.

A document is a chapter, its paragraphs joined by newlines, in ASCII quotation marks. Every twentieth chapter is held out.
"""

from __future__ import annotations

import hashlib
import html
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lilliput.errors import ContentError, InputError, LilliputError, Problem, UsageError

BIBLE = "sword-text-web"
NOVELS = "r-cran-janeaustenr"
BIBLE_FOLDER = "usr/share/sword/modules/texts/ztext/engWEB2015eb"
NOVELS_FILE = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
# Of the chapters joined, as `_digest` does it, from the versions 426.0-1 and 1.0.0-1.
DIGESTS = {
    BIBLE: "5ead9dc800c2b6bc186f3b5481baf850666a8c68a94ff11f8d5f09ef90f918cc",
    NOVELS: "c06e6fcd31b3efedf7fb0261da04017dee26fe2a6fcfde0d56f43932a99b1507",
}

HELD_OUT_EVERY = 20
HELD_OUT_FIRST = 9
RUN = 12  # words

# Second versions of two books: their chapters would stand on both sides of the line between training and held-out text.
SKIPPED_BOOKS = ("EsthGr", "DanGr")


class Prose(NamedTuple):
    """Chapters to train on, and chapters to measure with; no dozen words in a row of the latter occur among the former."""

    train: list[str]
    heldout: list[str]


def obtain(work: Path) -> Prose:
    """The chapters of both packages, downloaded into `work` unless they are there already.

    Raises UsageError without apt-get, LilliputError when it fails, InputError for files we cannot read, ContentError for another text
    than the one expected.
    """
    chapters: list[str] = []
    for package, read in ((BIBLE, _bible), (NOVELS, _novels)):
        text = read(_unpacked(package, work / "packages"))
        _check(package, text)
        chapters += text
    return split(chapters)


def split(chapters: list[str]) -> Prose:
    """Every twentieth chapter apart. Some passages occur twice in these books: paragraphs that share a dozen words in a row with
    held-out text leave the training side."""
    heldout = chapters[HELD_OUT_FIRST::HELD_OUT_EVERY]
    measured = {run for chapter in heldout for run in _runs(chapter)}
    train: list[str] = []
    for index, chapter in enumerate(chapters):
        if index % HELD_OUT_EVERY != HELD_OUT_FIRST:
            kept = "\n".join(paragraph for paragraph in chapter.split("\n") if measured.isdisjoint(_runs(paragraph)))
            if kept:
                train.append(kept)
    return Prose(train, heldout)


def _runs(text: str) -> Iterator[str]:
    words = re.findall(r"[a-z]+", text.lower())
    return (" ".join(words[start : start + RUN]) for start in range(len(words) - RUN + 1))


def _unpacked(package: str, folder: Path) -> Path:
    """The root of the package's files, after `apt-get download` and `dpkg-deb -x` where that is still to do."""
    root = folder / package
    if root.is_dir():
        return root
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(f"{package}_*.deb")):
        if shutil.which("apt-get") is None:
            raise UsageError(
                f"the text of the Debian package `{package}` is needed, and `apt-get` is not on this machine: "
                f"put {package}_*.deb into {folder} by hand"
            )
        _run(["apt-get", "download", package], folder, "`apt-get update` may help")
    packed = sorted(folder.glob(f"{package}_*.deb"))[-1]
    partial = folder / f"{package}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    _run(["dpkg-deb", "-x", packed.name, partial.name], folder, f"delete {packed} to fetch it again")
    partial.rename(root)
    return root


def _run(command: list[str], folder: Path, hint: str) -> None:
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UsageError(f"`{command[0]}` is needed and not on this machine") from None
    if result.returncode:
        said = result.stderr.strip().splitlines()[-1:] or ["nothing"]
        raise LilliputError(f"`{' '.join(command)}` failed with exit code {result.returncode} and said: {said[0]} ({hint})")


def _check(package: str, chapters: list[str]) -> None:
    found = _digest(chapters)
    if found != DIGESTS[package]:
        raise ContentError(
            f"the text of `{package}` is not the one this model is made from: needed sha256 {DIGESTS[package]} of "
            f"its chapters, found {found} of {len(chapters)}; another version of the package?"
        )


def _digest(chapters: list[str]) -> str:
    return hashlib.sha256("\f".join(chapters).encode()).hexdigest()


def _bible(root: Path) -> list[str]:
    folder = root / BIBLE_FOLDER
    return [chapter for testament in ("ot", "nt") for book in sword_blocks(folder, testament) for chapter in osis_chapters(book)]


def _novels(root: Path) -> list[str]:
    return [chapter for lines in r_string_vectors(root / NOVELS_FILE) for chapter in novel_chapters(lines)]


def sword_blocks(folder: Path, testament: str) -> Iterator[str]:
    """The blocks of a SWORD zText module, decompressed: books of OSIS markup.

    `.bzs` lists (offset, packed size, size) of every block in `.bzz`, three little-endian 32-bit numbers; `.bzv`, where each verse lies,
    is not needed to read everything in order. Raises InputError for a file that is missing or does not fit the others.
    """
    index, packed = (_read(folder / f"{testament}.{suffix}") for suffix in ("bzs", "bzz"))
    if len(index) % 12:
        raise InputError([Problem(folder / f"{testament}.bzs", "size", "a multiple of 12 bytes", str(len(index)))])
    for number, (offset, packed_size, size) in enumerate(struct.iter_unpack("<III", index)):
        where = folder / f"{testament}.bzz", f"block {number}"
        try:
            block = zlib.decompress(packed[offset : offset + packed_size])
        except zlib.error as error:
            raise InputError([Problem(*where, "zlib data", str(error))]) from None
        if len(block) != size:
            raise InputError([Problem(*where, f"{size} bytes after unpacking", str(len(block)))])
        yield block.decode()


def r_string_vectors(path: Path) -> Iterator[list[str]]:
    """The character vectors of an R lazy-load database, in file order.

    A record is its unpacked size (big-endian, 32 bits) and zlib data, which hold an R serialization of version 3: "X\\n", three numbers,
    the name of the encoding, then here always a vector (type 16) of strings (type 9), each with its length; -1 means not available.
    Raises InputError for anything else.
    """
    rest = _read(path)
    number = 0
    while rest:
        unpacker = zlib.decompressobj()
        try:
            record = unpacker.decompress(rest[4:])
            yield list(_r_strings(record))
        except (zlib.error, struct.error, ValueError) as error:
            needed = "a character vector in R's serialization, packed by zlib"
            raise InputError([Problem(path, f"record {number}", needed, str(error))]) from None
        rest = unpacker.unused_data
        number += 1


def _r_strings(record: bytes) -> Iterator[str]:
    if record[:2] != b"X\n":
        raise ValueError(f"found {record[:2]!r} at its start")
    (encoding_size,) = struct.unpack_from(">I", record, 14)
    at = 18 + encoding_size
    kind, count = struct.unpack_from(">II", record, at)
    at += 8
    if kind & 0xFF != 16:
        raise ValueError(f"found type {kind & 0xFF}")
    for _ in range(count):
        kind, size = struct.unpack_from(">Ii", record, at)
        at += 8
        if kind & 0xFF != 9 or at + size > len(record):
            raise ValueError(f"found type {kind & 0xFF} and length {size} where a string was due")
        yield record[at : at + max(size, 0)].decode()
        at += max(size, 0)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError([Problem(path, "", "a file of the package", error.strerror or str(error))]) from None


# What is no running text: footnotes, headings with all inside, and what an importer left.
_ASIDE = re.compile(r"<(note|title)\b[^>]*?(?<!/)>.*?</\1>", re.DOTALL)
_PARAGRAPH = re.compile(r'<(?:div|lg)\b[^>]*\bsID="[^"]*"[^>]*/>')
_CHAPTER = re.compile(r'<chapter\b[^>]*\bosisID="([^".]*)[^>]*\bsID="[^>]*/>')
_CHAPTER_END = re.compile(r'<chapter\b[^>]*\beID="[^>]*/>')  # a glossary follows the last one
_TAG = re.compile(r"<[^>]*>")
# A footnote may be all that stands between two words.
GAP = "\0"
_BETWEEN_WORDS = re.compile(rf"(?<=[\w,.;:!?]){GAP}+(?=[\w“‘])")


def osis_chapters(book: str) -> Iterator[str]:
    """The chapters of a book in OSIS markup, without headings and footnotes. A line of verse is followed by a space, not a new line."""
    book = _ASIDE.sub(GAP, book)
    # What stands before the first chapter belongs to no chapter; split gives the book's name and the text of each in turn.
    parts = _CHAPTER.split(book)[1:]
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        if name in SKIPPED_BOOKS:
            continue
        text = _PARAGRAPH.sub("\n", _CHAPTER_END.split(text)[0])
        text = html.unescape(_TAG.sub("", text.replace("<l ", " <l ")))
        chapter = plain(_BETWEEN_WORDS.sub(" ", text).replace(GAP, "").split("\n"))
        if chapter:
            yield chapter


_HEADING = re.compile(r"\s*chapter\s+([ivxlc]+|\d+)\.?\s*", re.IGNORECASE)
_BETWEEN = re.compile(r"\s*(volume\s+[ivx]+|the end|finis|[* ]+)\.?\s*", re.IGNORECASE)


def novel_chapters(lines: list[str]) -> Iterator[str]:
    """The chapters of a novel given in lines, empty ones between paragraphs. The title page before the first chapter is left out."""
    paragraphs: list[str] | None = None
    for line in [*lines, "CHAPTER I"]:
        if _HEADING.fullmatch(line):
            if paragraphs is not None:
                yield plain(paragraphs)
            paragraphs = [""]
        elif paragraphs is not None:
            if not line.strip() or _BETWEEN.fullmatch(line):
                paragraphs.append("")
            else:
                paragraphs[-1] += f" {line}"


_ASCII = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "—": "--", "–": "-", "…": "...", "\N{NO-BREAK SPACE}": " ", "_": None})


def plain(paragraphs: list[str]) -> str:
    """The paragraphs, one a line, in ASCII punctuation, without doubled spaces and underscores for emphasis, and without remarks of
    the editor in brackets."""
    spaced = (re.sub(r"\s+(?=[,;:?!])|\s+(?=\s)", "", paragraph.translate(_ASCII)).strip() for paragraph in paragraphs)
    return "\n".join(paragraph for paragraph in spaced if paragraph and paragraph[0] != "[")
