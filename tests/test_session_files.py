"""Session files with a right checksum and wrong contents: whoever can write one must not make us trust it. And interrupts in between."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lilliput
from lilliput.engine.engine import Engine
from lilliput.engine.session import Session
from lilliput.errors import InputError, LilliputError
from lilliput.machine import interrupts
from lilliput.model import state, state_file
from lilliput.model.state import State

TINY_A = Path(__file__).parent / "oracle" / "tiny-a"
Arrays = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return lilliput.open(TINY_A)


@pytest.fixture
def saved(engine: Engine, tmp_path: Path) -> Path:
    session = engine.session()
    session.append([1, 2, 3])
    list(engine.generate(session, max_tokens=2))
    session.save(tmp_path / "s")
    return tmp_path / "s"


def split(path: Path) -> tuple[dict[str, Any], Arrays]:
    """What the header says, and the arrays, by plain reading."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    about = header.pop("__metadata__")
    types = {"F32": "<f4", "I64": "<i8"}
    return about, {
        name: np.frombuffer(raw[start + e["data_offsets"][0] : start + e["data_offsets"][1]], types[e["dtype"]]).reshape(e["shape"]).copy()
        for name, e in header.items()
    }


def forge(path: Path, about: dict[str, Any], arrays: Arrays) -> None:
    """Write it back with a checksum that is right."""
    header: dict[str, Any] = {
        "__metadata__": about | {"checksum": state_file.checksum({name: state_file.Tensor.of(a) for name, a in arrays.items()})}
    }
    at = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": "F32" if array.dtype == np.float32 else "I64",
            "shape": array.shape,
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"".join(a.tobytes() for a in arrays.values()))


def change(name: str, how: Callable[[Any], Any]) -> Callable[[dict[str, Any], Arrays], None]:
    return lambda about, arrays: arrays.update({name: how(arrays.get(name))})


FORGED: dict[str, tuple[Callable[[dict[str, Any], Arrays], object], str]] = {
    "ids of floats": (change("ids", lambda a: a.astype("<f4")), "ids: needed I64"),
    "ids of two axes": (change("ids", lambda a: a[None]), "ids: needed I64"),
    "ids without an axis": (change("ids", lambda a: a[0].reshape(())), "ids: needed I64"),
    "ids out of range": (change("ids", lambda a: a + 320), "ids: needed ids from 0 to 319"),
    "negative ids": (change("ids", lambda a: -a), "ids: needed ids from 0"),
    "no ids": (lambda about, arrays: arrays.pop("ids"), "ids: needed"),
    "pending out of range": (change("pending", lambda a: a + 10**12), "pending: needed ids from 0 to 319"),
    "pending image": (change("pending", lambda a: a * 0 + 317), "pending: needed ids of this model"),
    "pending of floats": (change("pending", lambda a: a.astype("<f4") + 0.5), "pending: needed I64"),
    "a state of integers": (change("layer.0.s", lambda a: a.astype("<i8")), "layer.0.s: needed F32"),
    "logits of integers": (change("logits", lambda a: np.zeros(320, "<i8")), "logits: needed F32"),
    "fewer logits": (change("logits", lambda a: np.zeros(319, "<f4")), "logits: needed F32"),
    "an unknown tensor": (change("spare", lambda a: np.zeros(3, "<f4")), "spare: needed no such tensor"),
    "another position": (lambda about, arrays: about.update(position="77"), "position: needed 4"),
    "nothing to go on from": (change("pending", lambda a: a[:0]), "logits: needed"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_file_is_refused(case: str, engine: Engine, saved: Path) -> None:
    about, arrays = split(saved)
    assert 317 in engine.config.media_ids
    forge(saved, about, arrays)
    Session.load(engine, saved)  # the forger is good
    how, message = FORGED[case]
    how(about, arrays)
    forge(saved, about, arrays)
    with pytest.raises(InputError, match=message):
        Session.load(engine, saved)


def test_many_ids_without_their_latents_take_no_memory(engine: Engine, saved: Path) -> None:
    """A forged file of a megabyte must not make room for a state of thirty."""
    about, arrays = split(saved)
    arrays["ids"] = np.ones(100_000, "<i8")
    forge(saved, about, arrays)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="latents: needed"):
            Session.load(engine, saved)
        assert tracemalloc.get_traced_memory()[1] < State.nbytes(engine.config, 100_000) / 4
    finally:
        tracemalloc.stop()


def test_tensors_that_change_places_are_found(engine: Engine, saved: Path) -> None:
    """The data stay the same; only two names of one shape are exchanged."""
    raw = saved.read_bytes()
    for one, other in ((b"tail.q", b"tail.X"), (b"tail.k", b"tail.q"), (b"tail.X", b"tail.k")):
        raw = raw.replace(one, other)
    saved.write_bytes(raw)
    with pytest.raises(InputError, match="checksum"):
        Session.load(engine, saved)


def interrupt_in_commit(monkeypatch: pytest.MonkeyPatch, interrupt: Callable[[], None], at: int) -> None:
    """As a signal that arrives while layer number `at` takes in its tokens."""
    calls = []
    real = state.tails_after

    def tails_after(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == at:
            interrupt()
        return real(*arguments)

    monkeypatch.setattr(state, "tails_after", tails_after)


@pytest.mark.parametrize("at", [1, 3, 12, 25])
def test_a_signal_never_tears_a_state(at: int, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = [token.id for token in engine.generate([1, 2, 3], max_tokens=9)]
    session = engine.session()
    session.append([1, 2, 3])
    interrupt_in_commit(monkeypatch, lambda: interrupts.deliver(KeyboardInterrupt()), at)
    with pytest.raises(KeyboardInterrupt):
        list(engine.generate(session, max_tokens=9))
    session.save(tmp_path / "s")
    resumed = Session.load(engine, tmp_path / "s")
    done = resumed.ids[3:]
    assert done + [token.id for token in engine.generate(resumed, max_tokens=9 - len(done))] == straight


def test_a_torn_state_is_never_used_or_saved(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_now() -> None:
        raise KeyboardInterrupt  # Python's own handler knows nothing of what must be held together

    session = engine.session()
    session.append([1, 2, 3])
    interrupt_in_commit(monkeypatch, raise_now, 3)
    with pytest.raises(KeyboardInterrupt):
        session.logits()
    for use in (session.logits, session.copy, lambda: session.save(tmp_path / "s")):
        with pytest.raises(LilliputError, match="start the sequence anew"):
            use()
    assert not list(tmp_path.iterdir())
