"""Where every tensor of a layout is: headers of shards against what the configuration demands.

Names are the release's without `language_model.`, which may be there or not; the legacy spellings of `kimi-k3.md` section 3.2 are
understood. Half a million expert tensors become two arrays, a few thousand trunk tensors a dictionary. What a text model does not use
(vision, multi-token prediction) is passed over; any other tensor that the layout does not know is a difference, like a missing one or
another shape or dtype, because it means that the checkpoint is of another model than its config.json says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lilliput.errors import Problem
from lilliput.weights.layout import EMBEDDING, HEAD, ExpertSpec, Layout, TensorSpec
from lilliput.weights.safetensors import Header
from lilliput.weights.safetensors_faults import show

PREFIX = "language_model."
SKIPPED = ("vision_tower.", "vision_model.", "mm_projector.", "multi_modal_projector.", "model.mtp", "mtp")
MOST_LISTED = 200  # differences of one kind kept as problems; all are counted

Files = NDArray[np.int16]
Offsets = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TensorRef:
    """Where one trunk tensor lies. `file` is an index in `Checkpoint.files`, `offset` is from the start of that file, in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ExpertTable:
    """Where the experts lie: `file[i, e, p]` and `offset[i, e, p]` for layer `spec.layers[i]`, expert e, part `ExpertSpec.PARTS[p]`.

    Both arrays are [layers, experts, 6], C-contiguous and read-only; lengths follow from `spec.part_bytes`.
    """

    spec: ExpertSpec
    file: Files
    offset: Offsets


class Skipped(NamedTuple):
    """What the files hold beside the text model."""

    tensors: int = 0
    parameters: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Stock:
    """All that opening a checkpoint finds out: sizes of the shards, places of trunk and experts, tensors and values not used."""

    sizes: tuple[int, ...]
    tensors: dict[str, TensorRef]
    experts: ExpertTable | None
    skipped: Skipped
    padding: int


@dataclass(frozen=True, slots=True)
class Found:
    """A trunk tensor as its header has it: the shape is the file's."""

    spec: TensorSpec
    dtype: str
    shape: tuple[int, ...]
    file: int
    offset: int
    spelling: str  # the name in the file


class Catalogue:
    """Takes the headers one after the other (`add`); `differences` are all complaints once the last one was added."""

    def __init__(self, layout: Layout, files: Sequence[Path], source: Path) -> None:
        self.files, self.source = files, source
        self.trunk = {spec.name: spec for spec in layout.trunk}
        self.found: dict[str, Found] = {}
        self.spare_head: Found | None = None  # an lm_head beside tied embeddings
        self._aliases = dict(_aliases(layout.trunk))
        self._passed_over: dict[str, int] = {}
        self._skipped = Skipped()
        self._experts = _Experts(layout.experts) if layout.experts else None
        self._problems: list[Problem] = []
        self._more: dict[str, int] = {}
        self._kept: dict[str, int] = {}

    def add(self, header: Header, file: int) -> None:
        """All tensors of one file; `file` is its index in `files`."""
        others: Sequence[int] = range(len(header.names))
        if self._experts:
            others, index, slots = self._experts.sort_out(header)
            if len(index):
                self._add_experts(self._experts, header, file, index, slots)
        for i in others:
            self._add_other(header, file, i)

    def _add_other(self, header: Header, file: int, i: int) -> None:
        spelling = header.names[i]
        name = spelling.removeprefix(PREFIX)
        name = self._aliases.get(name, name)
        dtype, shape = header.kinds[header.kind[i]]
        spec = self.trunk.get(name)
        if spec is not None:
            if name in self.found:
                self._twice(spelling, file, self.found[name])
                return
            self.found[name] = Found(spec, dtype, shape, file, int(header.begin[i]), spelling)
            if dtype != spec.dtype or not _fits(shape, spec):
                self._complain("shape", self.files[file], spelling, _described(spec.dtype, spec.shape), _described(dtype, shape))
        elif name == HEAD:  # not in the layout, so embeddings are tied
            if self.spare_head is not None:
                self._twice(spelling, file, self.spare_head)
            spec = TensorSpec(HEAD, self.trunk[EMBEDDING].shape, "BF16", "embedding")
            self.spare_head = Found(spec, dtype, shape, file, int(header.begin[i]), spelling)
            if dtype != spec.dtype or shape != spec.shape:
                needed = f"with tie_word_embeddings true nothing, or the embedding again: {_described(spec.dtype, spec.shape)}"
                self._complain("shape", self.files[file], spelling, needed, _described(dtype, shape))
        elif name.startswith(SKIPPED):
            sofar = self._skipped
            nbytes = int(header.end[i] - header.begin[i])
            self._skipped = Skipped(sofar.tensors + 1, sofar.parameters + prod(shape), sofar.nbytes + nbytes)
            before = self._passed_over.setdefault(name, file)
            if before != file:
                self._complain("twice", self.files[file], spelling, "each tensor in one shard", f"it in {self.files[before].name} too")
        else:
            needed = "no such tensor in a checkpoint with this config.json"
            self._complain("unknown", self.files[file], spelling, needed, _described(dtype, shape))

    def _add_experts(self, experts: _Experts, header: Header, file: int, index: NDArray[np.intp], slots: NDArray[np.intp]) -> None:
        expected = np.array([experts.kind_of(header, part) for part in range(6)])
        wrong = np.flatnonzero(header.kind[index] != expected[slots % 6])
        for i in wrong[:MOST_LISTED].tolist():
            dtype, shape = header.kinds[header.kind[index[i]]]
            part = int(slots[i] % 6)
            needed = _described("U8", experts.spec.shapes[part])
            self._complain("shape", self.files[file], header.names[index[i]], needed, _described(dtype, shape))
        self._uncounted("shape", len(wrong) - MOST_LISTED)
        order = np.argsort(slots, kind="stable")
        again = np.zeros(len(slots), bool)
        again[order[1:]] = slots[order[1:]] == slots[order[:-1]]
        before = experts.file[slots]
        for i in np.flatnonzero(again | (before >= 0))[:MOST_LISTED].tolist():
            other = self.files[int(before[i]) if before[i] >= 0 else file]
            spelling = header.names[index[i]]
            self._complain("twice", self.files[file], spelling, "each tensor once", f"it in {other.name} too")
        experts.file[slots] = file
        experts.offset[slots] = header.begin[index]

    def _twice(self, spelling: str, file: int, before: Found) -> None:
        also = "" if before.spelling == spelling else f" as {show(before.spelling)}"
        self._complain("twice", self.files[file], spelling, "each tensor once", f"it in {self.files[before.file].name} too{also}")

    def differences(self) -> list[Problem]:
        """Every difference to the layout, ordered as found, then what is missing in the layout's order."""
        for name in self.trunk:
            if name not in self.found:
                spec = self.trunk[name]
                self._complain("missing", self.source, name, _described(spec.dtype, spec.shape), "no such tensor in any shard")
        if self._experts:
            for name, shape in self._experts.missing():
                self._complain("missing", self.source, name, _described("U8", shape), "no such tensor in any shard")
            self._uncounted("missing", self._experts.count_missing() - MOST_LISTED)
        words = {"shape": "of another shape or dtype", "twice": "there twice", "unknown": "unknown", "missing": "missing"}
        more = [(words[kind], n) for kind, n in self._more.items() if n > 0]
        return self._problems + [Problem(self.source, "", "the tensors of config.json", f"{n:,} more {what}") for what, n in more]

    def stock(self, sizes: tuple[int, ...]) -> Stock:
        """What was found, once there are no differences; a tensor that is longer than needed (`A_log`) is cut to what is needed."""
        found = [self.found[name] for name in self.trunk]
        tensors = {f.spec.name: TensorRef(f.spec.name, f.dtype, f.spec.shape, f.file, f.offset, f.spec.nbytes) for f in found}
        padding = sum(prod(f.shape) - f.spec.parameters for f in found)
        return Stock(sizes, tensors, self._experts.table() if self._experts else None, self._skipped, padding)

    def longer(self) -> Iterator[Found]:
        """Tensors with more rows than the layout has: their tail must be zero."""
        return (f for f in self.found.values() if f.shape != f.spec.shape)

    def _complain(self, kind: str, file: Path, what: str, needed: str, found: str) -> None:
        self._kept[kind] = self._kept.get(kind, 0) + 1
        if self._kept[kind] > MOST_LISTED:
            self._more[kind] = self._more.get(kind, 0) + 1
        else:
            self._problems.append(Problem(file, show(what), needed, found))

    def _uncounted(self, kind: str, count: int) -> None:
        self._more[kind] = self._more.get(kind, 0) + max(count, 0)


class _Experts:
    """The expert tensors as one flat row of slots: (layer row x experts + expert) x 6 + part."""

    def __init__(self, spec: ExpertSpec) -> None:
        self.spec = spec
        self.count = 6 * spec.count
        self.file: Files = np.full(self.count, -1, np.int16)
        self.offset: Offsets = np.zeros(self.count, np.int64)
        heads = [f"model.layers.{n}.block_sparse_moe" for n in spec.layers]
        first = {head: row * spec.num_experts * 6 for row, head in enumerate(heads)}
        self._first = first | {PREFIX + head: slot for head, slot in first.items()}
        self._slot = {f"{e}.{part}": 6 * e + p for e in range(spec.num_experts) for p, part in enumerate(spec.PARTS)}

    def sort_out(self, header: Header) -> tuple[list[int], NDArray[np.intp], NDArray[np.intp]]:
        """(indices of all other tensors, indices of expert tensors, their slots). The only loop over half a million names."""
        others: list[int] = []
        index: list[int] = []
        slots: list[int] = []
        start, length, first, slot = "?", 1, 0, self._slot.get  # `start`: what the last expert's name began with; mostly the next one's too
        for i, name in enumerate(header.names):
            if not name.startswith(start):
                head, found, _ = name.partition(".experts.")
                if not found or head not in self._first:
                    others.append(i)
                    continue
                start, length, first = head + found, len(head + found), self._first[head]
            if (rest := slot(name[length:])) is None:
                others.append(i)
            else:
                index.append(i)
                slots.append(first + rest)
        return others, np.array(index, np.intp), np.array(slots, np.intp)

    def kind_of(self, header: Header, part: int) -> int:
        kind = ("U8", self.spec.shapes[part])
        return header.kinds.index(kind) if kind in header.kinds else -1

    def count_missing(self) -> int:
        return int(np.count_nonzero(self.file < 0))

    def missing(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """(name, shape) of the first missing ones."""
        for slot in np.flatnonzero(self.file < 0)[:MOST_LISTED].tolist():
            rest, part = divmod(slot, 6)
            row, expert = divmod(rest, self.spec.num_experts)
            yield self.spec.name(self.spec.layers[row], expert, part), self.spec.shapes[part]

    def table(self) -> ExpertTable:
        shape = (len(self.spec.layers), self.spec.num_experts, 6)
        file, offset = self.file.reshape(shape), self.offset.reshape(shape)
        file.flags.writeable = offset.flags.writeable = False
        return ExpertTable(self.spec, file, offset)


def _fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    if spec.at_least:
        return len(shape) == len(spec.shape) and shape[0] >= spec.shape[0] and shape[1:] == spec.shape[1:]
    return shape == spec.shape


def _described(dtype: str, shape: tuple[int, ...]) -> str:
    listed = ", ".join(map(str, shape[:8])) + (", ..." if len(shape) > 8 else "")
    return f"{show(dtype)} [{listed}]"


def _aliases(trunk: Sequence[TensorSpec]) -> Iterator[tuple[str, str]]:
    """Other spellings of a name that converters use → the release's."""
    for spec in trunk:
        name = spec.name
        for part in ("norm", "proj"):
            if name.endswith(f"_res_{part}.weight"):
                yield name.removesuffix(f"_{part}.weight") + f".{part}_weight", name
        if name.endswith(".gate.e_score_correction_bias"):
            yield name.replace(".gate.e_score_correction_bias", ".e_score_correction_bias"), name
