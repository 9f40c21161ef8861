"""Expert traces: which experts every layer asked for, in order. Written by `--trace-experts FILE`, replayed by `lilliput simulate`.

A header, then int32 little-endian pairs (layer, expert). The header is the eight characters LILTRACE, the version of the format and
top_k (uint32 each), and the memory that one expert took (uint64, in bytes). The public trace of the released model is pairs only, and
is read as well: no pair can be taken for the beginning of a header. The structure is told by the order of the pairs:

    pass      a pass visits its layers in ascending order: a layer that is lower than the one before begins the next pass
    request   the consecutive pairs of one layer: for each token of the pass in turn, the `top_k` experts it chose
    token     `top_k` pairs of a request. Our writer puts them in ascending order, other writers need not

With a single layer of experts no layer is ever lower, so there each token is taken for a pass of its own.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt

from lilliput.errors import InputError, Problem, UsageError
from lilliput.machine.output import discard, is_direct, not_written, open_direct, temporary_name
from lilliput.machine.small_files import read_small

Ids = npt.NDArray[np.int32]

TOP_K = 16  # of the released model: for traces that do not say
PAIR = 8  # bytes
MAGIC, VERSION = b"LILTRACE", 1
HEADER = struct.Struct("<8sIIQ")  # as long as three pairs
LARGEST_SIZE = 1 << 40  # bytes of an expert
LARGEST_EXPERT = 65535  # beyond it a file is taken for something else than a trace
LARGEST_FILE = 10**9  # bytes: 85,000 tokens of the released model, whose replay takes hours
MOST_CHOICES = 8_000_000  # of a token in a layer: as many as such a file has of the released model; each costs 300 bytes here
MOST_EXPERTS = 8_000_000  # in all layers: a policy keeps tables of 32 bytes for each; the released model has 82,432
MOST_PROBLEMS = 1000  # that are named


class TraceWriter:
    """Streams a trace to `path`, under a temporary name until it is closed; what is no regular file (a pipe) is written to directly.

    A killed run leaves `FILE.*.partial`, which is as readable; a trace that could not be written to the end is removed at once. Of
    the model it records `top_k` and `expert_bytes`, the memory that one expert takes in its cache. Raises DoesNotFitError where the disk is
    full, LilliputError for any other failure; both name the file.
    """

    def __init__(self, path: Path, *, top_k: int, expert_bytes: int) -> None:
        self.path = path if is_direct(path) else path.resolve()
        self._partial = None if is_direct(path) else temporary_name(self.path)
        try:
            self._file = self._partial.open("xb", buffering=1 << 20) if self._partial is not None else open_direct(path)
        except OSError as error:
            raise not_written(self.path, error) from error
        self._write(HEADER.pack(MAGIC, VERSION, top_k, expert_bytes))

    def routed(self, layer: int, ids: npt.NDArray[np.integer], weights: object = None) -> None:
        """The experts `ids` [N, k] that the tokens of this pass chose in `layer`. An observer of routing; weights are not recorded."""
        pairs = np.empty((ids.size, 2), "<i4")
        pairs[:, 0] = layer
        pairs[:, 1] = np.sort(ids, axis=-1).reshape(-1)
        self._write(pairs.tobytes())

    def _write(self, data: bytes) -> None:
        with self._failures():
            self._file.write(data)

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """A full disk needs the room for the other files of the run; a pipe at which an interrupt has found us takes no more."""
        try:
            yield
        except OSError as error:
            self._give_up()
            raise not_written(self.path, error) from error
        except BaseException:
            if self._partial is None:
                self._give_up()
            raise

    def _give_up(self) -> None:
        discard(self._file)
        if self._partial is not None:
            with suppress(OSError):
                self._partial.unlink(missing_ok=True)

    def close(self) -> None:
        """Give the file its name. Safe to call twice."""
        if self._file.closed:
            return
        with self._failures():
            self._file.flush()
            if self._partial is not None:
                os.fsync(self._file.fileno())
            self._file.close()
            if self._partial is not None:
                self._partial.replace(self.path)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class Request:
    """What one layer asked for in one pass: `chosen` [N, k], the experts of each token."""

    layer: int
    chosen: Ids

    @property
    def tokens(self) -> int:
        return len(self.chosen)

    @cached_property
    def ids(self) -> npt.NDArray[np.int32]:
        """The experts needed, ascending, each once."""
        return self._union[0]

    @cached_property
    def uses(self) -> npt.NDArray[np.intp]:
        """How many tokens chose each of `ids`."""
        return self._union[1]

    @cached_property
    def _union(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.intp]]:
        return np.unique(self.chosen, return_counts=True)


@dataclass(frozen=True)
class Trace:
    """Passes in order, each a list of requests by ascending layer. `expert_bytes`: the memory of one expert, if the file says it."""

    passes: list[list[Request]]
    expert_bytes: int | None = None

    def __iter__(self) -> Iterator[Request]:
        for one in self.passes:
            yield from one

    @cached_property
    def layers(self) -> tuple[int, ...]:
        return tuple(sorted({request.layer for request in self}))

    @cached_property
    def experts(self) -> int:
        """One more than the highest expert id."""
        return 1 + max((int(request.chosen.max()) for request in self), default=-1)

    @cached_property
    def keys(self) -> npt.NDArray[np.int64]:
        """Every expert asked for, in order, as one number: row of the layer x experts + expert. Each once per request."""
        rows = {layer: row * self.experts for row, layer in enumerate(self.layers)}
        return np.concatenate([np.int64(rows[request.layer]) + request.ids for request in self] or [np.empty(0, np.int64)])

    @property
    def tokens(self) -> int:
        return sum(one[0].tokens for one in self.passes)

    def unrolled(self) -> Trace:
        """Every token as a pass of its own, each position once: where a pass begins by repeating the whole pass before it
        (a prefix that is computed again for every new token), the repetition is left out."""
        passes: list[list[Request]] = []
        before: list[Request] | None = None
        for one in self.passes:
            skip = before[0].tokens if before is not None and _continues(before, one) else 0
            for token in range(skip, one[0].tokens):
                passes.append([Request(request.layer, request.chosen[token : token + 1]) for request in one])
            before = one
        return replace(self, passes=passes)


def _continues(before: list[Request], one: list[Request]) -> bool:
    n = before[0].tokens
    if len(before) != len(one) or one[0].tokens <= n:
        return False
    return all(a.layer == b.layer and np.array_equal(a.chosen, b.chosen[:n]) for a, b in zip(before, one, strict=True))


def read_trace(path: Path, top_k: int | None = None) -> Trace:
    """Read a trace file; `top_k` is needed for one without a header whose model is not K3.

    Raises InputError with every complaint about it: its header, its length, numbers that cannot be layers or experts, requests that are
    no whole number of tokens, an expert twice for one token, a pass with differing numbers of tokens; and one that is too large to be
    replayed. UsageError where `top_k` is not the header's: the model that was recorded had one value, and with any other the pairs fall
    into the wrong tokens.
    """
    raw = read_small(path, LARGEST_FILE)
    if raw is None:
        raise InputError([Problem(path, "", "a trace file (`lilliput generate ... --trace-experts FILE` writes one)", "nothing")])
    header = raw.startswith(MAGIC)
    recorded, expert_bytes = _read_header(path, raw) if header else (None, None)
    if recorded is not None and top_k not in (None, recorded):
        raise UsageError(f"--top-k {top_k}: {path} was recorded with {recorded} experts per token: leave the option out")
    top_k = recorded or top_k or TOP_K
    begin = HEADER.size if header else 0
    nbytes = len(raw) - begin
    if not nbytes or nbytes % PAIR:
        needed = f"a positive multiple of 8 bytes{' behind the header' * header}: int32 pairs (layer, expert)"
        raise InputError([Problem(path, "length", needed, f"{nbytes:,} bytes")])
    pairs = np.frombuffer(raw, "<i4", offset=begin).reshape(-1, 2)
    wrong = np.flatnonzero((pairs < 0).any(axis=1) | (pairs[:, 1] > LARGEST_EXPERT))
    problems = [
        Problem(path, f"pair {i}", f"a layer from 0 and an expert from 0 to {LARGEST_EXPERT}", f"({pairs[i, 0]}, {pairs[i, 1]})")
        for i in wrong[:MOST_PROBLEMS].tolist()
    ]
    if problems:
        raise InputError(problems, f"in all {len(wrong):,} of its {len(pairs):,} pairs" if len(wrong) > MOST_PROBLEMS else "")
    borders = np.flatnonzero(np.diff(pairs[:, 0])) + 1
    _refuse_too_large(path, pairs, max(len(pairs) // top_k, len(borders) + 1))
    starts = [0, *borders.tolist()]
    passes: list[list[Request]] = []
    last = -1
    for start, end in zip(starts, [*starts[1:], len(pairs)], strict=True):
        layer, ids = int(pairs[start, 0]), pairs[start:end, 1]
        if layer < last or not passes:
            passes.append([])
        last = layer
        if len(problems) >= MOST_PROBLEMS:
            break
        if len(ids) % top_k:
            problems.append(Problem(path, f"layer {layer} from pair {start}", f"a multiple of top_k = {top_k} pairs", f"{len(ids)}"))
            continue
        chosen = ids.reshape(-1, top_k)
        ordered = np.sort(chosen, axis=1)
        twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
        if len(twice):
            at = start + int(twice[0]) * top_k
            problems.append(Problem(path, f"layer {layer}, token at pair {at}", f"{top_k} different experts", "an expert twice"))
        passes[-1].append(Request(layer, chosen))
    problems += _uneven(path, passes)
    if problems:
        hint = "" if header else "`--top-k` is the number of experts each token chooses in a layer (16 for K3)"
        raise InputError(problems, hint)
    trace = Trace(passes, expert_bytes)
    if len(trace.layers) == 1:
        trace = replace(trace, passes=[[Request(request.layer, token[None])] for request in trace for token in request.chosen])
    return trace


def _read_header(path: Path, raw: bytes) -> tuple[int, int]:
    """top_k and the bytes of an expert."""
    if len(raw) < HEADER.size:
        raise InputError([Problem(path, "header", f"{HEADER.size} bytes", f"{len(raw)}")])
    _, version, top_k, expert_bytes = HEADER.unpack_from(raw)
    if version != VERSION:
        raise InputError([Problem(path, "format", f"version {VERSION}", f"{version}")], "made by another Lilliput: record it again")
    problems = []
    if not 0 < top_k <= LARGEST_EXPERT + 1:
        problems.append(Problem(path, "top_k in the header", f"1 to {LARGEST_EXPERT + 1:,}", f"{top_k:,}"))
    if not 0 < expert_bytes < LARGEST_SIZE:
        problems.append(Problem(path, "bytes of an expert in the header", f"1 to {LARGEST_SIZE - 1:,}", f"{expert_bytes:,}"))
    if problems:
        raise InputError(problems)
    return top_k, expert_bytes


def _refuse_too_large(path: Path, pairs: Ids, choices: int) -> None:
    """What a trace takes to be replayed grows with its choices, and with a table of all experts in all layers, used or not."""
    layers, experts = len(np.unique(pairs[:, 0])), int(pairs[:, 1].max()) + 1
    problems: list[Problem] = []
    if layers * experts > MOST_EXPERTS:
        found = f"{layers:,} layers with experts up to {experts - 1:,}, {layers * experts:,} in all"
        problems.append(Problem(path, "experts", f"at most {MOST_EXPERTS:,} in all layers", found))
    if choices > MOST_CHOICES:
        problems.append(Problem(path, "requests", f"at most {MOST_CHOICES:,} of a token in a layer", f"{choices:,}"))
    if problems:
        raise InputError(problems, "it is too large to be replayed, or no trace: record fewer tokens" if choices > MOST_CHOICES else "")


def _uneven(path: Path, passes: list[list[Request]]) -> list[Problem]:
    """A pass takes the same tokens through all its layers. (The last pass of a trace may have been abandoned after any layer.)"""
    problems: list[Problem] = []
    for number, one in enumerate(passes):
        if len(problems) >= MOST_PROBLEMS:
            break
        counts = sorted({request.tokens for request in one})
        if len(counts) > 1:
            found = f"{' and '.join(map(str, counts[:3]))} in different layers"
            problems.append(Problem(path, f"pass {number}", "the same number of tokens in every layer", found))
    return problems
