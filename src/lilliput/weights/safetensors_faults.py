"""What is wrong with a safetensors header: the slow, talkative half of `safetensors.py`.

`decode` reads the entries one by one and keeps every complaint; `explain` does the same for sizes and byte ranges. Both say which tensor,
what was needed and what was found, and stop listing (not counting) after fifty complaints of a file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lilliput.errors import CheckpointError, Problem

# Bits of one element. All dtypes of the format; which of them a text model may use is the layout's matter.
DTYPES = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
LARGEST = 2**63 - 1
MOST_LISTED = 50
FIELDS = ("dtype", "shape", "data_offsets")

Raw = tuple[str, tuple[int, ...], tuple[int, int]]  # dtype, shape, data_offsets


def byte_size(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a tensor; -1 if the dtype is unknown, the bytes are not whole or do not fit in 63 bits."""
    bits = DTYPES.get(dtype)
    if bits is None:
        return -1
    if 0 in shape:
        return 0
    for n in shape:
        bits *= n
        if bits > 8 * LARGEST:  # here, not at the end: a shape of a million dimensions must not become a huge product
            return -1
    return bits // 8 if bits % 8 == 0 else -1


def show(text: str) -> str:
    """A name from a file, fit for a message: no control characters, not longer than a line."""
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= 160 else text[:100] + "..." + text[-57:]


class Complaints:
    """Problems of one file, the first fifty kept."""

    def __init__(self, file: Path) -> None:
        self.file, self.listed, self.count = file, list[Problem](), 0

    def add(self, what: str, needed: str, found: str) -> None:
        self.count += 1
        if len(self.listed) < MOST_LISTED:
            self.listed.append(Problem(self.file, show(what), needed, found))

    def all(self) -> list[Problem]:
        if self.count > len(self.listed):
            self.listed.append(Problem(self.file, "", "a sound header", f"{self.count - len(self.listed)} more faults of this kind"))
        return self.listed


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as its list of pairs, so that what stands there twice can be seen."""


def decode(raw: bytes, file: Path) -> dict[str, Raw]:
    """Entries by name, without `__metadata__`; CheckpointError with everything that keeps them from being read."""

    def constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_Pairs, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise CheckpointError([Problem(file, "header", "JSON in UTF-8", f"a bad byte at position {error.start}")]) from None
    except RecursionError:
        raise CheckpointError([Problem(file, "header", "valid JSON", "nesting too deep")]) from None
    except ValueError as error:
        raise CheckpointError([Problem(file, "header", "valid JSON", str(error))]) from None
    if not isinstance(header, _Pairs):
        raise CheckpointError([Problem(file, "header", "a JSON object", type(header).__name__)])
    complaints = Complaints(file)
    for name, times in Counter(name for name, _ in header).items():
        if times > 1:
            complaints.add(name, "each name once", f"a duplicate tensor name: {times} times in one header")
    tensors = {}
    for name, value in header:
        if name != "__metadata__" and (entry := _entry(name, value, complaints)):
            tensors[name] = entry
    if complaints.count:
        raise CheckpointError(complaints.all())
    return tensors


def _entry(name: str, value: object, complaints: Complaints) -> Raw | None:
    before = complaints.count
    try:
        name.encode()
    except UnicodeEncodeError:
        complaints.add(name, "a name in Unicode", "half of a surrogate pair")
    if not isinstance(value, _Pairs):
        complaints.add(name, "an object with dtype, shape and data_offsets", _brief(value))
        return None
    for field, times in Counter(field for field, _ in value).items():
        if times > 1:
            complaints.add(name, f"{show(field)} once", f"it {times} times")
    fields = dict(value)
    for field in FIELDS:
        if field not in fields:
            complaints.add(name, field, "nothing")
    dtype, shape, offsets = (fields.get(f) for f in FIELDS)
    if "dtype" in fields and not (isinstance(dtype, str) and dtype in DTYPES):
        complaints.add(name, f"a dtype out of {', '.join(DTYPES)}", _brief(dtype))
    if "shape" in fields and not _sizes(shape):
        complaints.add(name, "a shape of integers in 0..2^63-1", _brief(shape))
    if "data_offsets" in fields and not (_sizes(offsets) and len(offsets or ()) == 2):
        complaints.add(name, "data_offsets of two integers in 0..2^63-1", _brief(offsets))
    if complaints.count > before:
        return None
    return str(dtype), tuple(shape or ()), (offsets[0], offsets[1])  # type: ignore[index]


def _sizes(value: object) -> bool:
    return isinstance(value, list) and not isinstance(value, _Pairs) and all(type(n) is int and 0 <= n <= LARGEST for n in value)


def _brief(value: object) -> str:
    if isinstance(value, _Pairs):
        return "an object"
    text = json.dumps(value) if not isinstance(value, list) or len(value) < 20 else f"a list of {len(value)}"
    return text if len(text) <= 80 else text[:77] + "..."


def explain(file: Path, tensors: Iterable[tuple[str, tuple[str, tuple[int, ...]], tuple[int, int]]], data: int) -> list[Problem]:
    """Every fault of sizes and ranges in `data` bytes of data; not empty, as it is called where the quick check failed."""
    complaints = Complaints(file)
    ranges: list[tuple[int, int, str]] = []
    for name, (dtype, shape), (begin, end) in tensors:
        size = byte_size(dtype, shape)
        what = f"{dtype} {_brief(list(shape))}"
        if size < 0:
            complaints.add(name, "a shape of whole bytes below 2^63", what)
        elif begin > end:
            complaints.add(name, "data_offsets in ascending order", f"[{begin}, {end}]")
        elif end - begin != size:
            complaints.add(name, f"{size:,} bytes for {what}", f"{end - begin:,} bytes at data_offsets [{begin}, {end}]")
        elif size or end > data:
            ranges.append((begin, end, name))
    if complaints.count:
        return complaints.all()  # ranges derived from broken entries would only add noise
    ranges.sort()
    last, before = 0, ""
    for begin, end, name in ranges:
        if begin < last:
            complaints.add(name, f"bytes of its own from {last:,} on", f"an overlap with {show(before)}: begins at {begin:,}")
        elif begin > last and begin < end:
            complaints.add(name, f"no gap before it: begin at {last:,}", f"begin at {begin:,}")
        if end > last:
            last, before = end, name
    if last > data:
        beyond = [name for _, end, name in ranges if end > data]
        found = f"{data:,}: the file is cut short, {len(beyond)} tensors reach beyond its end"
        complaints.add(beyond[0], f"{last:,} bytes of data", found)
    elif last < data:
        complaints.add("", f"{last:,} bytes of data", f"{data:,}: {data - last:,} bytes after the last tensor")
    return complaints.all()
