"""The model in the box: its files, torch's results on them, its bits, and what it says."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import ladder
import numpy as np
import pytest
from demo_training.conversations import requests
from demo_training.measure import chats, stories
from models import all_logits, build_model

from lilliput import _core
from lilliput.cli.main import run
from lilliput.engine import models
from lilliput.engine.engine import Engine
from lilliput.engine.models import DEMO, DEMO_SAMPLING, find_model
from lilliput.engine.source import Source
from lilliput.errors import UsageError
from lilliput.machine.memory import parse_size
from lilliput.machine.places import data_directory, packed_directory
from lilliput.machine.plan import Budget
from lilliput.model.config import read_config
from lilliput.weights.checkpoint import Checkpoint

RECORDED = Path(__file__).parent / "demo"
EXPECTED: dict[str, Any] = json.loads((RECORDED / "expected.json").read_text())
TORCH_NOISE = 1e-3  # logits reach 20; two float32 programs that add in other orders
REQUEST_SEED = 77  # of the twenty chat requests in the card


@pytest.fixture(autouse=True)
def _machine_settings_restored() -> Any:
    threads, isa = _core.threads(), _core.isa()
    yield
    _core.set_threads(threads)
    _core.use_isa(isa)


@pytest.fixture(scope="module")
def engine() -> Any:
    with Engine.open("demo", memory="2GB") as opened:
        yield opened


def test_has_every_mechanism_of_the_architecture() -> None:
    config = read_config(DEMO)
    layers = range(config.num_layers)
    assert [config.is_kda[i] for i in layers] == [(i + 1) % 4 != 0 and i < config.num_layers - 2 for i in layers]
    assert sum(i % (config.attn_res_block_size or 1) == 0 for i in layers) >= 3
    assert config.first_k_dense_replace == 1
    moe = config.moe
    assert moe.num_experts > moe.top_k > 1
    assert moe.latent_size is not None
    raw = json.loads((DEMO / "config.json").read_text())["text_config"]
    assert raw["linear_attn_config"]["gate_lower_bound"] == -5.0
    assert raw["num_shared_experts"] >= 1


def test_is_laid_out_as_the_release_and_small() -> None:
    index = json.loads((DEMO / "model.safetensors.index.json").read_text())
    shards = sorted(DEMO.glob("*.safetensors"))
    assert {path.name for path in shards} == set(index["weight_map"].values())
    assert len(shards) >= 2
    assert all(path.name == f"model-{i:05d}-of-{len(shards):06d}.safetensors" for i, path in enumerate(shards, 1))
    assert max(path.stat().st_size for path in shards) <= 2_400_000
    assert sum(path.stat().st_size for path in DEMO.rglob("*") if path.is_file()) <= 8_000_000
    source = Source("demo")
    assert source.tokenizer is not None
    assert len(source.tokenizer.special) == 256
    bias = "language_model.model.layers.1.block_sparse_moe.gate.e_score_correction_bias"
    assert index["weight_map"][bias]
    assert Checkpoint.open(DEMO, source.layout).tensors


def test_the_engine_agrees_with_torch() -> None:
    logits = all_logits(build_model(DEMO), EXPECTED["heldout_ids"])
    torch = np.load(RECORDED / "logits.npy")
    assert np.abs(logits - torch).max() <= TORCH_NOISE
    assert np.array_equal(logits.argmax(1), torch.argmax(1))


@pytest.mark.parametrize("prompt", EXPECTED["prompts"], ids=lambda prompt: prompt["name"][:20])
def test_greedy_ids_are_torchs_and_every_axis_gives_the_same_bits(prompt: dict[str, Any]) -> None:
    ids = [*prompt["prompt_ids"], *prompt["greedy_ids"]]
    variants = list(ladder.singles())
    want, *got = ladder.digests(DEMO, ids, [ladder.base(), *variants])
    assert not [variant for variant, digest in zip(variants, got, strict=True) if digest != want]
    chosen = all_logits(build_model(DEMO), ids).argmax(1)
    assert chosen[len(prompt["prompt_ids"]) - 1 : -1].tolist() == prompt["greedy_ids"]


@pytest.mark.parametrize("isa", _core.isas())
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("budget", ["everything", "a trickle"])
def test_greedy_ids_at_every_budget_instruction_set_and_thread_count(isa: str, threads: int, budget: str) -> None:
    given = Budget(2_000_000_000) if budget == "everything" else Budget(2_000_000_000, *least_memory())
    with Engine(Source("demo"), budget=given, context=512, prompt=200, threads=threads, isa=isa) as opened:
        for prompt in EXPECTED["prompts"]:
            new = [t.id for t in opened.generate(prompt["prompt_ids"], max_tokens=len(prompt["greedy_ids"]))]
            assert new == prompt["greedy_ids"]
        assert opened.weights.experts is not None
        assert (opened.weights.tape.stats.pass_bytes > 0) == (budget == "a trickle")


def least_memory() -> tuple[int, int]:
    """Bytes for trunk and experts below which the demo is refused: nothing is pinned, and one expert's window is kept."""
    least = []
    for name in ("trunk", "experts"):
        with pytest.raises(Exception, match="needed at least") as refused:
            Engine(Source("demo"), budget=Budget(2_000_000_000, **{name: 1}), context=512, prompt=200)
        number = str(refused.value).partition("needed at least ")[2].partition(",")[0]
        least.append(parse_size(number, ""))
    return least[0], least[1]


@pytest.mark.parametrize(
    ("given", "temp", "top_k"),
    [
        ([], 0.7, 40),
        (["--seed", "3"], 0.7, 40),
        (["--temp", "0.2"], 0.2, 40),
        (["--top-k", "5"], 0.7, 5),
        (["--greedy"], 0, 0),
    ],
)
def test_the_command_line_samples_as_the_card_says(given: list[str], temp: float, top_k: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate", "demo", "Once upon a time", "-n", "3", "--json", "-", *given]) == 0
    sampling = json.loads(capsys.readouterr().out)["sampling"]
    assert (sampling["temp"], sampling["top_k"]) == (temp, top_k)
    assert f"temperature {DEMO_SAMPLING['temp']}" in (DEMO / "README.md").read_text()


def test_tells_the_tales_that_its_card_shows(engine: Engine) -> None:
    card = (DEMO / "README.md").read_text()
    told = stories(engine)
    assert len(told) == 20
    for story in told:
        assert story["text"] in card
    assert sum(story["finish"] == "stop" for story in told) >= 15


def test_answers_in_the_message_format(engine: Engine) -> None:
    answered = chats(engine, requests(random.Random(REQUEST_SEED), 20))
    assert len(answered) == 20
    assert sum(not answer["problem"] for answer in answered) >= 18


def test_a_directory_named_demo_is_spelled_with_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_model("demo") == DEMO
    assert find_model("./demo") == Path("demo")


def test_an_installation_without_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "DEMO", tmp_path / "demo")
    with pytest.raises(UsageError, match="install lilliput again"):
        find_model("demo")


def test_its_packed_tape_lies_among_the_users_data() -> None:
    assert packed_directory(DEMO, sorted(DEMO.glob("*.safetensors"))).is_relative_to(data_directory())
