"""A pass is a transaction: what is committed, abandoned, copied, saved."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from models import all_logits, build_model

from lilliput.errors import InputError
from lilliput.model import state_file
from lilliput.model.batch import Span
from lilliput.model.model import Model
from lilliput.model.state import BLOCK, JOURNAL_TOKENS, KdaState, MlaState, State

IDS = [21, 173, 248, 284, 109, 70, 56, 110, 291, 12, 151, 105, 87, 180, 156, 129, 187, 272, 52, 45, 35, 211]


@pytest.fixture(scope="module")
def model() -> Model:
    return build_model(Path(__file__).parent / "oracle" / "tiny-a")


def snapshot(state: State) -> list[bytes]:
    """The bits of everything a state has committed."""
    parts = [np.array(state.ids).tobytes()]
    for layer in state.layers:
        if isinstance(layer, KdaState):
            parts += [layer.s.tobytes(), *(tail.tobytes() for tail in layer.tails)]
        else:
            parts.append(b"".join(rows.tobytes() for rows in layer.rows(state.position)))
    return parts


def after(model: Model, ids: list[int]) -> State:
    state = State(model.config)
    if ids:
        all_logits(model, ids, chunk=1, state=state)
    return state


@pytest.mark.parametrize("n", range(6))
def test_committing_the_first_n_tokens_is_the_same_as_having_run_only_those(model: Model, n: int) -> None:
    state = after(model, IDS[:3])
    span = Span(state, [*IDS[3 : 3 + n], *[9] * (5 - n)])
    model.forward([span])
    span.commit(n)
    assert snapshot(state) == snapshot(after(model, IDS[: 3 + n]))


def test_a_long_span_commits_whole_and_gives_the_same_bits(model: Model) -> None:
    state = State(model.config)
    span = Span(state, IDS)
    assert len(IDS) > JOURNAL_TOKENS
    model.forward([span])
    with pytest.raises(ValueError, match="whole or not at all"):
        span.commit(len(IDS) - 1)
    span.commit()
    assert snapshot(state) == snapshot(after(model, IDS))


@pytest.mark.parametrize("ids", [IDS[:4], IDS])
def test_a_pass_that_is_not_committed_leaves_no_trace(model: Model, ids: list[int]) -> None:
    state = after(model, IDS[:5])
    before = snapshot(state)
    model.forward([Span(state, ids)])
    assert snapshot(state) == before
    again = Span(state, ids)
    model.forward([again])
    again.commit(0)
    assert snapshot(state) == before
    assert np.array_equal(all_logits(model, IDS[5:], state=state), all_logits(model, IDS)[5:])


def test_one_pass_at_a_time(model: Model) -> None:
    state = State(model.config)
    first, second = Span(state, [1, 2]), Span(state, [3])
    model.forward([first])
    model.forward([second])
    with pytest.raises(ValueError, match="another pass"):
        first.commit()
    second.commit()
    assert state.ids == [3]
    with pytest.raises(ValueError, match="committed already"):
        second.commit()
    with pytest.raises(ValueError, match="share a state"):
        model.forward([Span(state, [1]), Span(state, [2])])


def test_a_copy_goes_its_own_way(model: Model) -> None:
    state = after(model, IDS[:4])
    other = state.copy()
    before = snapshot(state)
    all_logits(model, [7, 8, 9], state=other)
    assert snapshot(state) == before
    assert snapshot(other) == snapshot(after(model, [*IDS[:4], 7, 8, 9]))


@pytest.mark.parametrize("positions", [0, 1, 128, 129, 300])
def test_the_size_is_known_in_advance(model: Model, positions: int) -> None:
    state = State(model.config)
    for layer in state.layers:
        if isinstance(layer, MlaState):
            layer.write(0, np.zeros((positions, layer.width), np.float32))
    real = sum(
        layer.s.nbytes + sum(t.nbytes for t in layer.tails) if isinstance(layer, KdaState) else sum(b.nbytes for b in layer.blocks)
        for layer in state.layers
    )
    assert State.nbytes(model.config, positions) == real


class TestFile:
    def test_round_trip(self, model: Model, tmp_path: Path) -> None:
        state = after(model, IDS[:7])
        logits = np.arange(model.config.vocab_size, dtype=np.float32)
        state_file.save(tmp_path / "s", state, "me", pending=[4, 5], logits=logits)
        saved = state_file.load(tmp_path / "s", model.config, "me")
        assert snapshot(saved.state) == snapshot(state)
        assert saved.pending == [4, 5]
        assert saved.logits is not None
        assert np.array_equal(saved.logits, logits)
        assert [p.name for p in tmp_path.iterdir()] == ["s"]

    def test_an_empty_state(self, model: Model, tmp_path: Path) -> None:
        state_file.save(tmp_path / "s", State(model.config), "me")
        saved = state_file.load(tmp_path / "s", model.config, "me")
        assert (saved.state.ids, saved.pending, saved.logits) == ([], [], None)

    def test_another_checkpoint_is_refused(self, model: Model, tmp_path: Path) -> None:
        state_file.save(tmp_path / "s", State(model.config), "me")
        with pytest.raises(InputError, match="saved with another checkpoint"):
            state_file.load(tmp_path / "s", model.config, "you")

    def test_a_flipped_bit_is_found_wherever_it_is(self, model: Model, tmp_path: Path) -> None:
        state_file.save(tmp_path / "s", after(model, IDS[:3]), "me")
        raw = (tmp_path / "s").read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        for at in np.linspace(start, len(raw) - 1, 20).astype(int):
            (tmp_path / "t").write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
            with pytest.raises(InputError, match="checksum"):
                state_file.load(tmp_path / "t", model.config, "me")

    def test_a_cut_file_and_a_foreign_one_are_refused(self, model: Model, tmp_path: Path) -> None:
        state_file.save(tmp_path / "s", after(model, IDS[:3]), "me")
        (tmp_path / "t").write_bytes((tmp_path / "s").read_bytes()[:-1])
        with pytest.raises(InputError):
            state_file.load(tmp_path / "t", model.config, "me")
        shard = next((Path(__file__).parent / "oracle" / "tiny-a").glob("*.safetensors"))
        with pytest.raises(InputError, match="not a saved session"):
            state_file.load(shard, model.config, "me")

    def test_neither_saving_nor_loading_holds_it_twice(self, model: Model, tmp_path: Path) -> None:
        """It is as large as the budget allows, at the end of a run at least: a copy would be memory that nobody planned."""
        state = State(model.config)
        state.ids = [1] * 20 * BLOCK
        for layer in state.layers:
            if isinstance(layer, MlaState):
                layer.write(0, np.ones((state.position, layer.width), np.float32))
        size = State.nbytes(model.config, state.position)
        tracemalloc.start()
        try:
            state_file.save(tmp_path / "s", state, "me")
            saving = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            saved = state_file.load(tmp_path / "s", model.config, "me")
            loading = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        assert snapshot(saved.state) == snapshot(state)
        assert saving < size / 4
        assert loading < size * 5 / 4
