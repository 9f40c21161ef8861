"""The tape: every byte counted, nothing read twice in a pass, the reader ahead of the arithmetic, faults that leave no trace."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from models import all_logits, build_model

from lilliput._core import FaultPlan
from lilliput.errors import ContentError, LilliputError, UsageError
from lilliput.model.batch import Span
from lilliput.model.model import Model
from lilliput.model.state import State
from lilliput.weights.disk import Disk
from lilliput.weights.experts import Experts
from lilliput.weights.policy import Forecast
from lilliput.weights.ring import Ring
from lilliput.weights.tape import STRETCH_SHARE

TINY_A = Path(__file__).parent / "oracle" / "tiny-a"
IDS = json.loads((TINY_A / "expected.json").read_text())["prompt_ids"]
SMALL = 8192


@pytest.fixture(scope="module")
def want() -> bytes:
    return all_logits(build_model(TINY_A), IDS, chunk=4).tobytes()


def one_pass(model: Model, ids: list[int], *, head: bool = True, more: bool = False) -> Span:
    span = Span(State(model.config), ids, [len(ids) - 1] if head else [])
    model.forward([span], more=more)
    return span


@pytest.mark.parametrize("storage", ["from disk", "half", "in memory"])
def test_a_pass_reads_exactly_what_is_planned(storage: str) -> None:
    model = build_model(TINY_A, storage, piece_bytes=SMALL)
    tape, experts = model.weights.tape, model.weights.experts
    assert experts is not None
    before = model.weights.disk.stats()["bytes_read"]
    assert before == 0, "nothing is read when a model is opened"
    for n in range(3):
        one_pass(model, IDS[n : n + 2])
        if n:
            assert tape.stats.pass_bytes == tape.planned_bytes
    assert tape.stats.bytes_dropped == 0
    assert model.weights.disk.stats()["bytes_read"] == tape.stats.bytes_consumed + experts.stats.bytes_read
    assert tape.planned_bytes == (0 if storage == "in memory" else tape.planned_bytes)


def test_in_one_pass_every_piece_is_read_once_in_the_order_of_the_tape() -> None:
    plan = FaultPlan()
    model = build_model(TINY_A, "from disk", piece_bytes=SMALL, faults=plan, ring_bytes=1 << 20, reader_threads=1)
    one_pass(model, IDS[:1])
    tape = model.weights.tape
    wanted = [(tape._files[spec.file], *extent) for spec, extent in zip(tape._specs, tape._extents, strict=True)]
    calls = [(file, offset, nbytes) for file, offset, nbytes, _ in plan.calls()]
    assert [call for call in calls if call in set(wanted)] == wanted


def test_the_head_is_skipped_when_nobody_asks_for_logits() -> None:
    model = build_model(TINY_A, "from disk", piece_bytes=SMALL)
    one_pass(model, IDS[:2], head=False)
    without = model.weights.tape.stats.pass_bytes
    one_pass(model, IDS[:2])
    head = sum(model.weights.tape._delivered(i) for i in model.weights.tape._ranges["lm_head.weight"])
    assert model.weights.tape.stats.pass_bytes - without == head > 0


def test_the_next_pass_is_read_ahead_and_only_when_there_will_be_one() -> None:
    for more, ahead in ((False, False), (True, True)):
        model = build_model(TINY_A, "from disk", piece_bytes=SMALL, ring_bytes=1 << 20)
        one_pass(model, IDS[:2], more=more)
        assert bool(model.weights.tape._flights) == ahead
        before = model.weights.tape.stats.bytes_consumed
        one_pass(model, IDS[:2])
        assert model.weights.tape.stats.bytes_consumed == 2 * before
        assert model.weights.tape.stats.bytes_dropped == 0


def test_what_was_read_ahead_for_a_pass_that_never_came_is_counted_apart() -> None:
    model = build_model(TINY_A, "from disk", piece_bytes=SMALL, ring_bytes=1 << 20)
    one_pass(model, IDS[:2], more=True)
    consumed = model.weights.tape.stats.bytes_consumed
    model.weights.tape.close()
    assert model.weights.tape.stats.bytes_consumed == consumed
    assert model.weights.tape.stats.bytes_dropped > 0


def test_with_room_in_the_ring_the_next_piece_is_requested_before_the_current_one_is_done() -> None:
    model = build_model(TINY_A, "from disk", piece_bytes=SMALL, ring_bytes=4 << 20)
    one_pass(model, IDS[:2])
    stats = model.weights.tape.stats
    assert stats.requested_ahead == stats.pieces - 1  # all but the first


def test_a_reader_that_was_given_time_is_never_waited_for() -> None:
    """All of the pass fits the ring: once the reads are through, no piece is waited for."""
    model = build_model(TINY_A, "from disk", piece_bytes=SMALL, ring_bytes=64 << 20)
    tape = model.weights.tape
    tape.begin(head=True, more=False)
    for flight in tape._flights:
        while not model.weights.disk.reader.ready(flight.ticket):
            pass
    for name in tape._ranges:
        for _ in tape.stretches(name):
            pass
    assert (tape.stats.waits, tape.stats.pieces) == (0, len(tape._specs))


def test_pieces_that_are_there_come_together_but_never_more_than_a_share_of_the_ring() -> None:
    """All reads are through before the first piece is asked for. A pinned piece takes nothing of the ring."""
    for storage in ("from disk", "half", "in memory"):
        model = build_model(TINY_A, storage, piece_bytes=SMALL, ring_bytes=100_000)
        tape = model.weights.tape
        share = tape._ring.size // STRETCH_SHARE
        for _ in range(2):
            tape.begin(head=True, more=False)
            longest = 1
            for name, wanted in tape._ranges.items():
                for flight in tape._flights:
                    while not model.weights.disk.reader.ready(flight.ticket):
                        pass
                at = wanted.start
                for stretch in tape.stretches(name):
                    pieces = stretch.pieces
                    indices = range(at, at + len(pieces))
                    held = sum(tape._spaces[i] for i in indices if i not in tape._pin_at)
                    assert held <= share or len(pieces) == 1
                    assert [piece.row for piece in pieces] == [tape._specs[i].row for i in indices]
                    at, longest = at + len(pieces), max(longest, len(pieces))
                assert at == wanted.stop
            assert longest > 1
        if storage == "in memory":
            tape.begin(head=True, more=False)
            assert all([len(stretch.pieces) for stretch in tape.stretches(name)] == [len(wanted)] for name, wanted in tape._ranges.items())


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("ring_bytes", [0, 100_000, 1 << 20])
@pytest.mark.parametrize("slots", [0, 7])
def test_a_disk_that_misbehaves_changes_no_bit(want: bytes, threads: int, ring_bytes: int, slots: int) -> None:
    faults = FaultPlan(seed=threads, delay_us_max=200, short_reads=True, reorder=True)
    smallest = build_model(TINY_A, "from disk", piece_bytes=SMALL).weights.tape._ring.size
    model = build_model(
        TINY_A,
        "from disk",
        piece_bytes=SMALL,
        faults=faults,
        reader_threads=threads,
        ring_bytes=max(ring_bytes, smallest),
        expert_slots=slots,
        window=2,
    )
    assert all_logits(model, IDS, chunk=4).tobytes() == want


@pytest.mark.parametrize("storage", ["from disk", "half"])
@pytest.mark.parametrize("at", [1, 2, 50, 300, 700])
def test_a_failed_read_names_what_was_read_and_the_next_pass_is_whole(storage: str, at: int, want: bytes) -> None:
    faults = FaultPlan(fail_at=[(at, errno.EIO)])
    model = build_model(TINY_A, storage, piece_bytes=SMALL, faults=faults)
    state = State(model.config)
    with pytest.raises(LilliputError, match=r"model-0000\d-of-000003\.safetensors: reading (piece at byte|expert \d+ of layer).*failed"):
        all_logits(model, IDS, chunk=4, state=state)
    rest = all_logits(model, IDS[state.position :], chunk=4, state=state)
    assert rest.tobytes() == np.frombuffer(want, np.float32).reshape(len(IDS), -1)[-len(rest) :].tobytes()


@pytest.mark.parametrize("layer", [0, 3, 12])
def test_an_abandoned_pass_leaves_the_tape_fit_for_the_next(layer: int, want: bytes) -> None:
    model = build_model(TINY_A, "half", piece_bytes=SMALL)

    def stop(index: int, _sum: object) -> None:
        if index == layer:
            raise KeyboardInterrupt

    model.weights.watch.on_layer.append(stop)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            one_pass(model, IDS[:3], more=True)
    model.weights.watch.on_layer.remove(stop)
    assert all_logits(model, IDS, chunk=4).tobytes() == want


@pytest.mark.parametrize("what", ["piece", "expert"])
def test_an_interrupt_between_an_answer_and_the_note_of_it_leaves_all_fit_for_the_next_pass(
    what: str, want: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build_model(TINY_A, "from disk", piece_bytes=SMALL)
    wait = model.weights.disk.wait

    def interrupted(ticket: int, name: Callable[[], str]) -> float:
        seconds = wait(ticket, name)
        if name().startswith(what):
            raise KeyboardInterrupt
        return seconds

    with monkeypatch.context() as patch:
        patch.setattr(model.weights.disk, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one_pass(model, IDS[:3])
    assert all_logits(model, IDS, chunk=4).tobytes() == want
    with monkeypatch.context() as patch:
        patch.setattr(model.weights.disk, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            one_pass(model, IDS[:3])
    model.weights.close()


INTERRUPTED = [
    (Ring, "give_back"),  # a stretch's regions go back one by one
    (Ring, "take"),
    (Disk, "submit"),  # its ticket is lost
    (Experts, "admit"),
    (Experts, "keep"),
    (Experts, "give_window"),
    (Experts, "take_window"),
    (Forecast, "_displace"),
    (Forecast, "_admit"),
    (Forecast, "_set_queue"),
]


class Stopper:
    """Counts the calls of a method that did something; raises KeyboardInterrupt right after call number `last`."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: type, method: str, last: int = -1) -> None:
        self.calls, honest = 0, getattr(owner, method)

        def call(this: object, *arguments: object, **named: object) -> object:
            result = honest(this, *arguments, **named)
            if result is None and method.startswith("take"):
                return None
            self.calls += 1
            if self.calls == last:
                raise KeyboardInterrupt
            return result

        patch.setattr(owner, method, call)


@pytest.mark.parametrize("where", [0, 7, 40, -30, -3, -2, -1])
@pytest.mark.parametrize(("owner", "method"), INTERRUPTED, ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_an_interrupt_anywhere_leaves_all_fit_for_the_next_pass(
    owner: type, method: str, where: int, want: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes right after one of the calls of two passes, counted from the first or from the last."""

    def two_passes(model: Model) -> None:
        for n in range(2):
            one_pass(model, IDS[n : n + 3], more=True)

    def made() -> Model:
        model = build_model(TINY_A, "half", piece_bytes=SMALL, ring_bytes=100_000, expert_slots=7, window=3)
        two_passes(model)
        return model

    model, other = made(), made()
    tape, experts = model.weights.tape, model.weights.experts
    assert experts is not None
    with monkeypatch.context() as patch:
        counted = Stopper(patch, owner, method)
        two_passes(other)
    with monkeypatch.context() as patch:
        Stopper(patch, owner, method, where % counted.calls + 1)
        with pytest.raises(KeyboardInterrupt):
            two_passes(model)
    model.weights.begin_pass(head=False, more=False)
    reader = model.weights.disk.reader
    assert (set(reader.tickets(False)), reader.tickets(True)) == ({flight.ticket for flight in tape._flights}, [])
    assert len(tape._ring._taken) == sum(not flight.pinned for flight in tape._flights)
    slots = [*experts._window, *experts._free, *(slot for slot, _ in experts._resident.values())]
    assert sorted(slots) == list(range(10))
    assert len(experts._policy or ()) == len(experts._resident)
    assert all_logits(model, IDS, chunk=4).tobytes() == want


def test_a_shard_that_shrinks_during_the_run_ends_it(tmp_path: Path) -> None:
    directory = shutil.copytree(TINY_A, tmp_path / "m")
    model = build_model(directory, "from disk", piece_bytes=SMALL)
    one_pass(model, IDS[:1])
    shard = sorted(directory.glob("*.safetensors"))[1]
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size // 3)
    with pytest.raises(LilliputError, match=r"model-00002-of-000003\.safetensors: reading .* failed"):
        one_pass(model, IDS[:1])


def test_direct_reads_that_are_refused_are_done_through_the_page_cache(want: bytes) -> None:
    for at in (1, 100):
        model = build_model(TINY_A, "from disk", piece_bytes=SMALL, faults=FaultPlan(fail_at=[(at, errno.EINVAL)]))
        assert all_logits(model, IDS, chunk=4).tobytes() == want
        assert len(model.weights.disk.reader.buffered()) == 1


def test_ctrl_c_during_a_read_leaves_the_state_and_the_tape_whole(want: bytes) -> None:
    faults = FaultPlan()
    model = build_model(TINY_A, "half", piece_bytes=SMALL, faults=faults)
    state = State(model.config)
    first = all_logits(model, IDS[:4], chunk=4, state=state)
    reads = len(faults.calls())
    faults.hold()

    def interrupt() -> None:
        faults.await_calls(reads + 1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        all_logits(model, IDS[4:], chunk=4, state=state)
    thread.join()
    faults.release()
    assert state.position == 4
    rest = all_logits(model, IDS[4:], chunk=4, state=state)
    assert first.tobytes() + rest.tobytes() == want


def test_checking_every_read_finds_what_went_bad_after_the_first(tmp_path: Path) -> None:
    """A packed piece that changes on disk between two passes."""
    for verify, noticed in (("first", False), ("every", True)):
        directory = shutil.copytree(TINY_A, tmp_path / verify)
        model = build_model(directory, "from disk", verify=verify, checksums=True)
        one_pass(model, IDS[:1])
        spec = model.weights.tape._specs[3]
        shard = sorted(directory.glob("*.safetensors"))[spec.file]
        raw = bytearray(shard.read_bytes())
        raw[spec.offset] ^= 1
        with shard.open("r+b") as file:
            file.write(raw)
        if noticed:
            with pytest.raises(ContentError, match=rf"{shard.name}: piece at byte {spec.offset} .*{spec.name}"):
                one_pass(model, IDS[:1])
        else:
            one_pass(model, IDS[:1])


@pytest.mark.parametrize("verify", ["first", "every"])
def test_a_damaged_piece_stays_damaged(verify: str, tmp_path: Path) -> None:
    """Whoever goes on after the error meets it again: a piece counts as checked only where it was found sound."""
    directory = shutil.copytree(TINY_A, tmp_path / "model")
    model = build_model(directory, "from disk", verify=verify, checksums=True)
    spec = model.weights.tape._specs[3]
    with sorted(directory.glob("*.safetensors"))[spec.file].open("r+b") as file:
        file.seek(spec.offset)
        byte = file.read(1)[0]
        file.seek(spec.offset)
        file.write(bytes([byte ^ 1]))
    for _ in range(3):
        with pytest.raises(ContentError, match=rf"piece at byte {spec.offset} .* does not match its checksum"):
            one_pass(model, IDS[:1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_of_the_process_is_told_that_it_has_no_weights() -> None:
    """Everything is in memory, so nothing would be read; but the child's copy of that memory is empty."""
    model = build_model(TINY_A, "in memory", piece_bytes=SMALL)
    all_logits(model, IDS, chunk=4)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                all_logits(model, IDS, chunk=4)
                answer = "it ran"
            except UsageError as error:
                answer = str(error)
            model.weights.close()
            os.write(write, answer.encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answered:
        assert re.search(r"opened by process \d+, and a child .* has neither its weights nor its threads", answered.read())
    os.waitpid(child, 0)


def test_a_closed_model_says_so() -> None:
    model = build_model(TINY_A, "half", piece_bytes=SMALL)
    one_pass(model, IDS[:2])
    model.weights.close()
    with pytest.raises(UsageError, match="closed: open the checkpoint again"):
        one_pass(model, IDS[:2])
