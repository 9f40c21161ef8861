"""The model card: `README.md` and `curve.png` beside the checkpoint. Every number in it comes from a result file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo_training.measure import CHAT_TOKENS, OPENINGS, STORY_TOKENS, TEMPERATURE, TOP_K, dtypes
from demo_training.shape import RANKS, SHAPE
from demo_training.train import Plan

VERSION = "1"
CARD, CURVE = "README.md", "curve.png"
Lines = Mapping[str, Sequence[Mapping[str, Any]]]


def write(out: Path, plan: Plan, lines: Lines, results: Mapping[str, Any], shares: Mapping[str, float], notes: str = "") -> dict[str, Any]:
    """Card and picture into `out`; which of the promises of the quality bar are kept. `notes` say how this very run went."""
    _draw(out / CURVE, lines)
    compared, chats = results["train"]["compared"], results["measure"]["chats"]
    well_formed = sum(not chat["problem"] for chat in chats)
    sections = [
        _head(results),
        _texts(shares),
        _size(out, results),
        _training(plan, lines, results, notes),
        _quantisation(results),
        _engine(results["measure"]),
        _stories(results["measure"]["stories"]),
        _chats(chats, well_formed),
    ]
    (out / CARD).write_text("\n\n".join(sections) + "\n")
    return {"against_plain": compared["ours"] / compared["plain"] - 1, "well_formed": well_formed, "requests": len(chats)}


def _draw(file: Path, lines: Lines) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.4), layout="constrained")
    for name, label, style in (("ours", "this model", "-"), ("plain", "plain transformer", "--")):
        axes.plot(
            [line["tokens"] / 1e6 for line in lines[name]], [line["bits_per_byte"] for line in lines[name]], style, marker=".", label=label
        )
    axes.set(xlabel="million tokens", ylabel="held-out bits per byte", xlim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=90, metadata={"Software": None})
    pyplot.close(figure)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The first column is text, the others are numbers."""
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)])


def _head(results: Mapping[str, Any]) -> str:
    counts = results["train"]["parameters"]
    return f"""# The model in the box, version {VERSION}

A very small language model of Kimi K3's architecture, made by `tools/make_demo.py` of this project: {counts["all"] / 1e6:.2f} million
parameters, {counts["active"] / 1e6:.2f} million of them used by each token. It is there to show, offline and in seconds, that the whole
machinery works on text: it tells short tales, continues prose, and speaks K3's message format. It knows nothing, and what it says about
anything but its tales is not to be believed. It has nothing of the released model but the architecture.

This page was written by the program that made the model; the numbers are its measurements."""


def _texts(shares: Mapping[str, float]) -> str:
    rows = [
        ("prose: the World English Bible, from the Debian package `sword-text-web`", "", "text in the public domain"),
        ("prose: six novels of Jane Austen, from the Debian package `r-cran-janeaustenr`", "", "packaging MIT, texts in the public domain"),
        ("prose together", f"{100 * shares['prose']:.0f} %", ""),
        ("tales from a grammar written for this project", f"{100 * shares['tales']:.0f} %", "this project's"),
        ("conversations around such tales, in K3's message format", f"{100 * shares['conversations']:.0f} %", "this project's"),
    ]
    return f"""## Texts and licences

{_table(("text", "share of the tokens", "licence"), rows)}

The name of the translation belongs to its makers and stands only for the unaltered text: what this model writes is not that text and must
not be called by its name. Every twentieth chapter of the prose was held out; "bits per byte" below are measured on those chapters alone.
The tokenizer was trained on the same mixture: {RANKS:,} byte-level ranks split by K3's pattern, then the release's 256 added tokens. The
weights are under this project's licence."""


def _size(out: Path, results: Mapping[str, Any]) -> str:
    shape, files, counts = SHAPE, results["export"]["files"], dtypes(out)
    rows = [
        ("hidden size", shape.hidden_size),
        ("layers", f"{shape.num_layers}: KDA, KDA, KDA, gated MLA, gated MLA"),
        ("attention residuals", f"a block every {shape.block_size} layers, three blocks"),
        ("dense MLP of layer 0", shape.intermediate_size),
        (
            "experts of layers 1 to 4",
            f"{shape.num_experts}, {shape.top_k} chosen by each token, latent {shape.latent_size}, width {shape.expert_width}, two shared",
        ),
        ("heads", f"{shape.num_heads} of 32 (KDA), {shape.num_heads} of 32 + 16 and 32 (MLA)"),
        ("ranks of MLA", f"{shape.q_lora_rank} (queries), {shape.kv_lora_rank} (keys and values)"),
        ("context", f"{shape.context:,} positions, trained on 384"),
    ]
    stored = ", ".join(f"{counts[kind]:,} in {kind}" for kind in ("BF16", "F32", "MXFP4"))
    weights = [size for name, size in files.items() if name.endswith(".safetensors")]
    return "\n\n".join(
        [
            "## Size",
            _table(("", "value"), rows).replace("---:", "---"),
            f"Parameters as stored: {stored}. {len(weights)} shards of together {sum(weights):,} bytes; "
            f"all files {sum(files.values()):,} bytes.",
        ]
    )


def _training(plan: Plan, lines: Lines, results: Mapping[str, Any], notes: str) -> str:
    train = results["train"]
    compared = train["compared"]
    change = 100 * (compared["ours"] / compared["plain"] - 1)
    rates = ", ".join(f"{kind} {rate}" for kind, rate in plan.rates.items())
    plain = {line["tokens"]: line["bits_per_byte"] for line in lines["plain"]}
    rows = [
        (
            f"{line['tokens'] / 1e6:.2f}",
            f"{line['loss']:.3f}",
            f"{line['bits_per_byte']:.4f}",
            f"{plain[line['tokens']]:.4f}" if line["tokens"] in plain else "",
        )
        for line in lines["ours"]
    ]
    parts = [
        "## Training",
        f"{train['tokens'] / 1e6:.1f} million tokens in rows of 384, {plan.rows_per_step} rows a step, on two CPU cores. Muon for the "
        f"matrices, AdamW for the rest (rates: {rates}), {plan.warm_up} steps of warm-up, then a constant rate that falls to zero over "
        f"the last {100 * plan.decay:.0f} %. The routers' selection biases move by {plan.balance} a step towards even loads, less as "
        "the rate falls; there is no auxiliary loss.",
        f"![held-out bits per byte over the tokens]({CURVE})",
        _table(("million tokens", "training loss (nats)", "held-out bits per byte", "plain transformer"), rows),
        f"The plain transformer (pre-norm, RoPE, SwiGLU; {train['plain_parameters']:,} parameters against "
        f"{train['parameters']['all']:,}, all of them used by every token) was trained to {compared['tokens'] / 1e6:.2f} million "
        "tokens on the same rows with the same optimiser and rates, before any decay: "
        f"{100 * compared['tokens'] / train['tokens']:.1f} % of all tokens. There it has "
        f"{compared['plain']:.4f} bits per byte, this model {compared['ours']:.4f}: {abs(change):.1f} % "
        f"{'fewer' if change < 0 else 'more'}. This model then trained on to **{train['final']:.4f}**. (The curve in the table is of "
        "96 held-out rows; these figures are of all.) Each was trained once, from one seed: a small difference says no more than that "
        "neither is far behind.",
    ]
    return "\n\n".join([*parts, *([notes.strip()] if notes.strip() else [])])


def _quantisation(results: Mapping[str, Any]) -> str:
    costs = results["export"]["bits_per_byte"]
    base = costs["float32"]
    rows = [(name, f"{value:.4f}", f"{value - base:+.4f}") for name, value in costs.items()]
    return "\n\n".join(["## What rounding costs", _table(("weights", "held-out bits per byte", "change"), rows)])


def _engine(measured: Mapping[str, Any]) -> str:
    routing = measured["routing"]
    layers = [
        (
            row["layer"],
            f"{row['used']} of {len(row['shares'])}",
            f"{row['largest']:.2f}",
            f"{row['smallest']:.2f}",
            f"{100 * row['entropy']:.1f} %",
        )
        for row in routing["layers"]
    ]
    names = [name for name in routing["cache"][0] if name not in ("share", "experts")]
    cache = [(f"{100 * row['share']:.0f} %", row["experts"], *(f"{row[name]:.1f}" for name in names)) for row in routing["cache"]]
    return "\n\n".join(
        [
            "## What the engine measures on it",
            f"Routing of the {routing['tokens']:,} tokens of the samples below: how evenly each layer uses its experts "
            "(loads against an even share).",
            _table(("layer", "experts used", "largest load", "smallest load", "entropy of the choice"), layers),
            "Hits, in percent, of a cache that holds some of the experts, one token a pass (`lilliput simulate`; `belady` knows the "
            "future):",
            _table(("cache", "experts", *names), cache),
            f"`lilliput pack` stores the trunk without loss in {100 * measured['packed_ratio']:.1f} % of its bfloat16 bytes.",
        ]
    )


def _stories(stories: Sequence[Mapping[str, Any]]) -> str:
    head = (
        f"## Twenty stories\n\nAt most {STORY_TOKENS} tokens, temperature {TEMPERATURE}, top-k {TOP_K}; not chosen: "
        f"seeds 0 to {len(stories) - 1}. The first is what "
        f'`lilliput generate demo "{OPENINGS[0]}" --seed 0 -n {STORY_TOKENS}` says.'
    )
    return "\n\n".join([head, *(f"**{story['seed']}** ({story['finish']})\n\n{_quoted(story['text'])}" for story in stories)])


def _chats(chats: Sequence[Mapping[str, Any]], well_formed: int) -> str:
    head = (
        f"## Twenty chat requests\n\n{well_formed} of {len(chats)} answers are well-formed messages (strict check of the ids), at most "
        f"{CHAT_TOKENS} tokens, temperature {TEMPERATURE}, top-k {TOP_K}. The answer begins inside the think section, as K3's does. "
        "The form is right; the content often is not: the hero is usually another one than was asked for, and so are arguments of tools."
    )
    parts = [head]
    for chat in chats:
        asked = "\n".join(f"{message['role']}: {message.get('content') or ''}" for message in chat["messages"])
        notes = [f"tools {', '.join(chat['tools'])}"] if chat["tools"] else []
        verdict = f"not well-formed: {chat['problem']}" if chat["problem"] else "well-formed"
        parts.append(f"**{chat['seed']}** ({'; '.join([*notes, verdict])})\n\n{_quoted(asked)}\n\n```text\n{chat['text']}\n```")
    return "\n\n".join(parts)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.strip().splitlines())
