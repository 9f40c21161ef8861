"""Make the embedded model, from its texts to its card. Needs the extra `train` (`pip install -e '.[train]'`) and one to two hours.

    python tools/make_demo.py                  # everything, or what is left of it
    python tools/make_demo.py export card      # only these steps, done again

Steps, in order:

    check      the network against the oracle, the hand-written gradients against autograd
    data       texts from their packages, the tokenizer, the rows of tokens
    train      ours to 2.25 million tokens, the plain transformer as far, then ours to the end
    export     the released file layout, rounded to bf16 and MXFP4, and what the rounding costs
    expected   logits and greedy ids by torch, for the tests
    measure    samples, routing, cache curves and the packed trunk, by the engine
    card       README.md and the picture of the curve; what notes.md in the work directory says about the run goes into it

Without steps, those are left out whose result is in the work directory already; training goes on where it was stopped.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import click
    import torch
except ModuleNotFoundError as missing:
    sys.exit(f"make_demo.py: needed the package {missing.name}, found none: `pip install -e '.[train]'` brings it")
from demo_training import card, check, export, measure, mixture, release
from demo_training.conversations import requests
from demo_training.network import Network
from demo_training.plain import Plain
from demo_training.shape import demo_config
from demo_training.train import Plan, StoppedError, bits_per_byte, train

from lilliput.text.chat import encode, render
from lilliput.text.tokenizer import Tokenizer

ROOT = Path(__file__).parent.parent
SEED = 0
CORPUS_TOKENS = 12_000_000  # rows made; training takes as many as it needs, from the first on
REQUEST_SEED = 77  # of the chat requests in the card: none of the training's
SHARES = {"prose": 0.40, "tales": 0.38, "conversations": 0.22}
COMPARED_AT = 2_250_000  # tokens the plain transformer gets: a quarter of the nine million that were planned first
PROMPTS = (  # more than are needed: where two continuations are nearly equal, a prompt pins nothing
    *("Once upon a time", "In the beginning", "Long ago there was a king", "The fox", "In a small village", "Emma was"),
    *("There once was a little frog", "One morning", "The king said", "Long ago, in a village by a river", "A wise old owl"),
)
CHAT_PROMPT = "Please tell me a tale about a fox and a well."


@dataclass
class Making:
    """The directories and numbers all steps share."""

    work: Path
    out: Path
    tests: Path
    tokens: int

    @property
    def plan(self) -> Plan:
        return Plan(self.tokens, seed=SEED)

    def corpus(self) -> mixture.Corpus:
        return mixture.build(self.work, seed=SEED, tokens=CORPUS_TOKENS, shares=SHARES)

    def network(self) -> Network:
        """Initialised as training begins."""
        torch.manual_seed(SEED)
        return Network(demo_config())

    def trained(self) -> Network:
        network = self.network()
        network.load_state_dict(torch.load(self.work / "ours.pt", weights_only=True)["model"])
        return network.eval()

    def result(self, step: str) -> Any:
        return json.loads((self.work / f"{step}.json").read_text())


def do_check(_making: Making) -> dict[str, Any]:
    oracles = {name: check.check_oracle(ROOT / "tests" / "oracle" / name) for name in ("tiny-b",)}
    return {
        "oracles": oracles,
        "gradients": check.check_gradients(),
        "processes": check.check_processes(),
        "resuming": check.check_resuming(),
    }


def do_data(making: Making) -> dict[str, Any]:
    corpus = making.corpus()
    return {"rows": len(corpus.rows), "heldout_rows": len(corpus.heldout), "heldout_bytes": corpus.heldout_bytes}


def do_train(making: Making) -> dict[str, Any]:
    corpus, plan, work = making.corpus(), making.plan, making.work
    network = making.network()
    counts = check.parameters(network)
    ours = train(network, corpus, plan, work, "ours", stop=COMPARED_AT)
    torch.manual_seed(SEED)
    plain_network = Plain(network.config.vocab_size, counts["all"])
    plain = train(plain_network, corpus, plan, work, "plain", stop=COMPARED_AT)
    print(f"at {COMPARED_AT:,} tokens: ours {ours:.4f}, plain {plain:.4f} held-out bits per byte", flush=True)
    final = train(network, corpus, plan, work, "ours")
    return {
        "parameters": counts,
        "plain_parameters": sum(p.numel() for p in plain_network.parameters()),
        "tokens": making.tokens,
        "compared": {"tokens": COMPARED_AT, "ours": ours, "plain": plain},
        "final": final,
    }


def do_export(making: Making) -> dict[str, Any]:
    corpus, network = making.corpus(), making.trained()
    files = export.export(network, corpus.tokenizer, making.out)

    def cost(variant: Network) -> float:
        return bits_per_byte(variant, corpus.heldout, corpus.heldout_bytes)

    return {
        "files": files,
        "bits_per_byte": {
            "float32": cost(network),
            "trunk in bf16": cost(release.rounded(network, experts=False)),
            "experts in MXFP4": cost(release.rounded(network, trunk=False)),
            "both, read back from the files": cost(release.load_release(making.out)),
        },
    }


def do_expected(making: Making) -> dict[str, Any]:
    tokenizer = Tokenizer.open(making.out, demo_config().vocab_size)
    chat = encode(tokenizer, render([{"role": "user", "content": CHAT_PROMPT}]))
    prompts = {PROMPTS[0]: tokenizer.encode(PROMPTS[0]), CHAT_PROMPT: chat} | {text: tokenizer.encode(text) for text in PROMPTS[1:]}
    heldout = making.corpus().heldout[0].tolist()
    return export.expected(making.out, making.tests, heldout, prompts)


def do_measure(making: Making) -> dict[str, Any]:
    return measure.measure(making.out, requests(random.Random(REQUEST_SEED), 20))


def do_card(making: Making) -> dict[str, Any]:
    lines = {name: [json.loads(line) for line in (making.work / f"{name}.jsonl").read_text().splitlines()] for name in ("ours", "plain")}
    results = {step: making.result(step) for step in ("train", "export", "measure")}
    notes = making.work / "notes.md"
    return card.write(making.out, making.plan, lines, results, SHARES, notes.read_text() if notes.exists() else "")


STEPS: dict[str, Callable[[Making], dict[str, Any]]] = {
    "check": do_check,
    "data": do_data,
    "train": do_train,
    "export": do_export,
    "expected": do_expected,
    "measure": do_measure,
    "card": do_card,
}


@click.command(help=__doc__.split("\n\n")[0])
@click.argument("steps", nargs=-1, type=click.Choice(list(STEPS)))
@click.option(
    "--work",
    type=click.Path(path_type=Path),
    default=ROOT / "build" / "demo",
    show_default="build/demo",
    help="Texts, checkpoints, results.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=ROOT / "src" / "lilliput" / "demo",
    show_default="src/lilliput/demo",
    help="The model.",
)
@click.option(
    "--tests", type=click.Path(path_type=Path), default=ROOT / "tests" / "demo", show_default="tests/demo", help="Expected outputs."
)
@click.option("--tokens", type=click.IntRange(min=1), default=10_000_000, show_default=True, help="Tokens to train on.")
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Of torch; another number rounds differently.")
def main(steps: tuple[str, ...], work: Path, out: Path, tests: Path, tokens: int, threads: int) -> None:
    torch.set_num_threads(threads)
    making = Making(work, out, tests, tokens)
    work.mkdir(parents=True, exist_ok=True)
    for name, step in STEPS.items():
        done = work / f"{name}.json"
        if name not in steps if steps else done.exists():
            continue
        print(f"--- {name}", flush=True)
        try:
            result = step(making)
        except StoppedError as stopped:
            sys.exit(str(stopped))
        done.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
