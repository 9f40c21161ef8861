"""`Engine`, `Session` and the Python interface, on the oracles (no tokenizer) and on a synthetic model (with one)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from models import build_model, greedy
from random_checkpoint import write_tokenizer

import lilliput
from lilliput.cli.main import run
from lilliput.engine import scheduler
from lilliput.engine.engine import Engine
from lilliput.engine.sampling import Sampling
from lilliput.engine.session import Session
from lilliput.engine.source import Source
from lilliput.errors import ContentError, InputError, LilliputError, NumericError, UsageError
from lilliput.machine.plan import Budget
from lilliput.model.state import State

TINY_A = Path(__file__).parent / "oracle" / "tiny-a"
PROMPT = [21, 173, 248, 284]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return lilliput.open(TINY_A, threads=2)


@pytest.fixture(scope="module")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """tiny-a with a byte-level tokenizer."""
    directory = tmp_path_factory.mktemp("speaker") / "tiny a ü"
    shutil.copytree(TINY_A, directory)
    write_tokenizer(directory, 320)
    return lilliput.open(directory)


def ids_of(engine: Engine, prompt: str | list[int] | Session, **options: object) -> list[int]:
    return [token.id for token in engine.generate(prompt, **options)]  # type: ignore[arg-type]


def test_greedy_generation_is_argmax_of_the_model(engine: Engine) -> None:
    assert ids_of(engine, PROMPT, max_tokens=6) == greedy(build_model(TINY_A), PROMPT, 6)


def test_public_names() -> None:
    assert sorted(lilliput.__all__) == ["Engine", "Sampling", "Session", "Token", "__version__", "errors", "open"]
    assert all(hasattr(lilliput, name) for name in lilliput.__all__)


def test_text_in_text_out(speaker: Engine) -> None:
    tokens = list(speaker.generate("Once", max_tokens=12))
    assert speaker.tokenizer is not None
    assert "".join(token.text for token in tokens) == speaker.tokenizer.decode([t.id for t in tokens if t.id not in speaker.eos_ids])
    assert [token.finish for token in tokens[:-1]] == [None] * (len(tokens) - 1)
    assert tokens[-1].finish in ("stop", "length")


def test_a_stop_string_ends_the_text_exactly_before_it_at_any_token_border(speaker: Engine) -> None:
    plain = "".join(token.text for token in speaker.generate("Once", max_tokens=16))
    for at in range(1, len(plain) - 3):
        stop = plain[at : at + 3]
        tokens = list(speaker.generate("Once", max_tokens=16, stop=[stop, "never there"]))
        assert "".join(token.text for token in tokens) == plain[: plain.index(stop)]
        assert tokens[-1].finish == "stop"


def test_generation_stops_at_every_eos_of_both_configs(tmp_path: Path) -> None:
    directory = shutil.copytree(TINY_A, tmp_path / "m")
    new = greedy(build_model(TINY_A), PROMPT, 6)
    (directory / "generation_config.json").write_text(json.dumps({"max_length": 1, "eos_token_id": [new[3], 5]}))
    with lilliput.open(directory) as engine:
        tokens = list(engine.generate(PROMPT, max_tokens=20))
        assert [token.id for token in tokens] == new[: new.index(new[3]) + 1]
        assert tokens[-1].finish == "stop"
        assert {318, new[3], 5} <= engine.eos_ids


SAMPLED = [{"temp": 0.9, "seed": 11}, {"temp": 1.3, "top_k": 40, "top_p": 0.9, "min_p": 0.01, "seed": 2**64 - 1}]


@pytest.mark.parametrize("sampling", SAMPLED)
def test_sampled_text_does_not_depend_on_threads_isa_or_restart(sampling: dict[str, float], tmp_path: Path) -> None:
    runs = []
    for isa, threads in (("scalar", 1), (None, 1), (None, 3)):
        with lilliput.open(TINY_A, isa=isa, threads=threads) as engine:
            runs.append(ids_of(engine, PROMPT, max_tokens=10, sampling=Sampling(**sampling)))
    with lilliput.open(TINY_A) as engine:
        session = engine.session()
        session.append(PROMPT)
        first = ids_of(engine, session, max_tokens=4, sampling=Sampling(**sampling))
        session.save(tmp_path / "s")
        rest = ids_of(engine, Session.load(engine, tmp_path / "s"), max_tokens=6, sampling=Sampling(**sampling))
    runs.append(first + rest)
    assert all(run == runs[0] for run in runs)


def test_a_session_continues_where_it_was_saved_even_before_its_first_token(engine: Engine, tmp_path: Path) -> None:
    session = engine.session()
    session.append(PROMPT)
    session.logits()
    session.save(tmp_path / "s")
    assert ids_of(engine, Session.load(engine, tmp_path / "s"), max_tokens=5) == ids_of(engine, PROMPT, max_tokens=5)


def test_a_session_of_fewer_layers_is_another_model(tmp_path: Path) -> None:
    with lilliput.open(TINY_A, layers=5) as engine:
        session = engine.session()
        session.append(PROMPT)
        session.save(tmp_path / "s")
        assert ids_of(engine, PROMPT, max_tokens=4)
    with lilliput.open(TINY_A) as engine, pytest.raises(InputError, match="number of layers"):
        Session.load(engine, tmp_path / "s")


def test_logits_of_every_position(engine: Engine) -> None:
    rows = np.concatenate(list(engine.logits(PROMPT)))
    assert rows.shape == (4, 320)
    session = engine.session()
    session.append(PROMPT[:2])
    assert session.logits().tobytes() == rows[1].tobytes()
    assert session.copy().logits().tobytes() == rows[1].tobytes()


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([320], {}, "token id 320: needed 0 to 319"),
        ([-1], {}, "token id -1"),
        ([317], {}, "stands for an image"),
        ("text", {}, "no tiktoken.model"),
        (PROMPT, {"max_tokens": 0}, "--max-tokens: needed 1 to 1000000000, found 0"),
        (PROMPT, {"stop": ["x"]}, "--stop needs tiktoken.model"),
    ],
)
def test_bad_requests_are_refused_with_the_reason(engine: Engine, prompt: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        list(engine.generate(prompt, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threads": 0}, "--threads: needed 1 to 1024, found 0"),
        ({"isa": "mmx"}, "--isa: needed one of .*scalar.*, found mmx"),
        ({"layers": 14}, "--layers: needed 1 to 13, found 14"),
        ({"layers": 0}, "--layers"),
    ],
)
def test_bad_machine_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lilliput.open(TINY_A, **options)  # type: ignore[arg-type]


def test_the_environment_chooses_the_isa(monkeypatch: pytest.MonkeyPatch) -> None:
    from lilliput import _core

    monkeypatch.setenv("LILLIPUT_ISA", "scalar")
    lilliput.open(TINY_A).close()
    assert _core.isa() == "scalar"
    monkeypatch.setenv("LILLIPUT_ISA", "neon9")
    with pytest.raises(UsageError, match="LILLIPUT_ISA: needed one of"):
        lilliput.open(TINY_A)
    monkeypatch.delenv("LILLIPUT_ISA")
    lilliput.open(TINY_A).close()
    assert _core.isa() == _core.isas()[-1]


def patched(tmp_path: Path, name: str, change: bytes, at: int = 0) -> Path:
    """tiny-a with bytes of one tensor overwritten."""
    directory = shutil.copytree(TINY_A, tmp_path / "patched")
    for shard in sorted(directory.glob("*.safetensors")):
        raw = shard.read_bytes()
        start = 8 + int.from_bytes(raw[:8], "little")
        entry = json.loads(raw[8:start]).get(f"language_model.{name}")
        if entry:
            where = start + entry["data_offsets"][0] + at
            shard.write_bytes(raw[:where] + change + raw[where + len(change) :])
            return directory
    raise AssertionError(name)


NAN_BF16, INF_BF16 = b"\xc0\x7f", b"\x80\x7f"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.layers.5.input_layernorm.weight", NAN_BF16, "layer 5: a router logit is not finite"),
        ("model.layers.7.block_sparse_moe.gate.weight", INF_BF16, "layer 7"),
        ("model.norm.weight", NAN_BF16, "an output logit is not finite"),
    ],
)
def test_a_nan_is_an_error_that_names_the_layer(tmp_path: Path, name: str, change: bytes, message: str) -> None:
    with lilliput.open(patched(tmp_path, name, change)) as engine, pytest.raises(NumericError, match=message):
        list(engine.generate(PROMPT))


def damaged(tmp_path: Path) -> tuple[Path, list[int]]:
    """tiny-a with two NaN scales in an expert, and the prompt whose first token needs it."""
    expected, routing = json.loads((TINY_A / "expected.json").read_text()), np.load(TINY_A / "routing.npz")
    expert = int(routing["idx"][2, 0, 0])  # of layer 3
    directory = patched(tmp_path, f"model.layers.3.block_sparse_moe.experts.{expert}.w2.weight_scale", b"\xff\xff")
    return directory, expected["prompt_ids"]


NAN_SCALES = ": 2 MXFP4 groups had the scale byte 255"


@pytest.mark.parametrize("expert_memory", [110_000, None])  # too little to keep any, and for all
def test_a_nan_scale_ends_the_run_with_content_error_after_the_output(tmp_path: Path, expert_memory: int | None) -> None:
    """A group is one, however many passes use it, from memory or read again."""
    directory, prompt = damaged(tmp_path)
    with Engine(Source(directory), budget=Budget(10**9, experts=expert_memory)) as engine:
        assert bool(engine.plan.expert_slots) == (expert_memory is None)
        tokens = engine.generate(prompt, max_tokens=2)
        assert [next(tokens).finish, next(tokens).finish] == [None, "length"]
        for _ in range(2):
            with pytest.raises(ContentError, match=NAN_SCALES):
                next(tokens, None) or engine.check_content()
            list(scheduler.run(engine.model, [scheduler.Work(State(engine.config), prompt, [])]))


def test_damage_is_reported_whichever_way_the_weights_are_used(tmp_path: Path) -> None:
    directory, prompt = damaged(tmp_path)
    with lilliput.open(directory) as engine:
        session = engine.session()
        session.append(prompt)
        with pytest.raises(ContentError, match=NAN_SCALES):
            session.logits()
    with lilliput.open(directory) as engine:
        tokens = engine.generate(prompt, max_tokens=9)
        next(tokens)
        tokens.close()  # type: ignore[attr-defined]  # a generator that is closed has nobody to tell
        session = engine.session()
        session.append(PROMPT[:1])
        uses = [session.logits, lambda: session.save(tmp_path / "s"), lambda: engine.generate(PROMPT), lambda: engine.logits(PROMPT)]
        for use in uses:
            with pytest.raises(ContentError, match=NAN_SCALES):
                use()
        assert not (tmp_path / "s").exists()
    assert run(["logits", str(directory), "--ids", ",".join(map(str, prompt)), "-o", str(tmp_path / "l.npy")]) == 4
    assert not (tmp_path / "l.npy").exists()


def test_nobody_changes_the_logits_of_a_session(engine: Engine, tmp_path: Path) -> None:
    """They are the session's own: changed, they would be saved with it, and the next token chosen from them."""
    session = engine.session()
    session.append(PROMPT)

    def spoil(logits: np.ndarray) -> None:
        with pytest.raises(ValueError, match="read-only"):
            logits[:] = np.nan

    list(engine.generate(session, max_tokens=2, on_logits=spoil))
    spoil(session.logits())
    session.save(tmp_path / "s")
    spoil(session.copy().logits())
    loaded = Session.load(engine, tmp_path / "s")
    spoil(loaded.logits())
    assert loaded.logits().tobytes() == session.logits().tobytes()


def test_a_shard_truncated_or_replaced_during_the_run_ends_it(tmp_path: Path) -> None:
    directory = shutil.copytree(TINY_A, tmp_path / "m")
    with lilliput.open(directory) as engine:
        shard = sorted(directory.glob("*.safetensors"))[-1]
        with shard.open("r+b") as file:
            file.truncate(shard.stat().st_size // 2)
        with pytest.raises(LilliputError, match=r"model-00003-of-000003.safetensors: .*(truncated|replaced) while in use"):
            list(engine.generate(PROMPT))


def test_prompts_longer_than_a_chunk_take_several_passes_with_the_same_result(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [(7 * i) % 300 for i in range(40)]
    want = ids_of(engine, ids, max_tokens=3)
    monkeypatch.setattr(engine, "chunk", 16)
    assert ids_of(engine, ids, max_tokens=3) == want
    assert scheduler.CHUNK == 512


def test_an_interrupted_prompt_keeps_its_complete_passes(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [(7 * i) % 300 for i in range(40)]
    want = ids_of(engine, ids, max_tokens=3)
    monkeypatch.setattr(engine, "chunk", 16)
    session = engine.session()
    session.append(ids)
    seen = []

    def interrupt(layer: int, _sum: object) -> None:
        seen.append(layer)
        if len(seen) == 20:  # in the second pass
            raise KeyboardInterrupt

    engine.weights.watch.on_layer.append(interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.logits()
    engine.weights.watch.on_layer.remove(interrupt)
    assert session.state.position == 16
    assert ids_of(engine, session, max_tokens=3) == want
