"""What the engine says and measures with the exported model: samples, routing, cache curves, the packed trunk."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from demo_training.conversations import Request
from lilliput.engine.engine import Engine
from lilliput.engine.packing import pack_model
from lilliput.engine.sampling import Sampling
from lilliput.engine.source import Source
from lilliput.simulate import simulate
from lilliput.text.chat import encode, render
from lilliput.text.wellformed import check_completion
from lilliput.trace import TraceWriter, read_trace
from lilliput.weights.experts import slot_bytes

TEMPERATURE, TOP_K = 0.7, 40
STORY_TOKENS, CHAT_TOKENS = 150, 400
OPENINGS = ("Once upon a time", "Once upon a time there was", "Long ago", "In a small village", "One morning")
CACHE_SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)  # of all experts


def stories(engine: Engine, count: int = 20) -> list[dict[str, Any]]:
    """Half of them begin "Once upon a time", the others take the openings in turn; the number is the seed."""
    made = []
    for seed in range(count):
        opening = OPENINGS[0] if seed % 2 == 0 else OPENINGS[seed // 2 % len(OPENINGS)]
        tokens = list(engine.generate(opening, max_tokens=STORY_TOKENS, sampling=Sampling(TEMPERATURE, top_k=TOP_K, seed=seed)))
        made.append({"seed": seed, "text": opening + "".join(t.text for t in tokens), "tokens": len(tokens), "finish": tokens[-1].finish})
    return made


def chats(engine: Engine, requests: Sequence[Request]) -> list[dict[str, Any]]:
    """The answer to each request as it came, and what is wrong with its form, "" if nothing."""
    made = []
    tokenizer = engine.tokenizer
    if tokenizer is None:
        raise ValueError(f"{engine.source.directory}: needed a checkpoint with tiktoken.model")
    for seed, request in enumerate(requests):
        prompt = encode(tokenizer, render(request.messages, tools=request.tools))
        new = [t.id for t in engine.generate(prompt, max_tokens=CHAT_TOKENS, sampling=Sampling(TEMPERATURE, top_k=TOP_K, seed=seed))]
        faults = check_completion(new, tokenizer)
        made.append(
            {
                "seed": seed,
                "messages": request.messages,
                "tools": [tool["function"]["name"] for tool in request.tools or ()],
                "ids": new,
                "text": tokenizer.decode(new),
                "problem": str(faults[0]) if faults else "",
            }
        )
    return made


def routing(path: Path, top_k: int, num_experts: int, expert_bytes: int) -> dict[str, Any]:
    """Expert usage of a trace by layer, and hit rates of caches that hold some of the experts, in percent."""
    trace = read_trace(path, top_k)
    uses = {layer: np.zeros(num_experts, np.int64) for layer in trace.layers}
    for request in trace:
        np.add.at(uses[request.layer], request.chosen.reshape(-1), 1)
    whole = len(trace.layers) * num_experts
    sizes = [round(share * whole) * expert_bytes for share in CACHE_SHARES]
    simulation = simulate(trace.unrolled(), sizes, expert_bytes)
    return {
        "tokens": trace.tokens,
        "layers": [
            {
                "layer": layer,
                "used": int((count > 0).sum()),
                "largest": float(count.max() / count.mean()),
                "smallest": float(count.min() / count.mean()),
                "entropy": _entropy(count),
                "shares": [round(float(share), 5) for share in count / count.sum()],
            }
            for layer, count in uses.items()
        ],
        "cache": [
            {"share": share, "experts": row.capacity, **{name: 100 * simulation.rate(hits) for name, hits in row.hits.items()}}
            | {"belady": 100 * simulation.rate(row.belady)}
            for share, row in zip(CACHE_SHARES, simulation.rows, strict=True)
        ],
    }


def _entropy(count: np.ndarray) -> float:
    """Of the choice, as a share of that of an even one."""
    p = count[count > 0] / count.sum()
    return float(-(p * np.log(p)).sum() / np.log(len(count)))


def packed_ratio(model: Path) -> float:
    """Bytes of the losslessly packed trunk, as a share of bf16."""
    with tempfile.TemporaryDirectory() as place:
        return float(pack_model(Source(model), Path(place) / "packed")["ratio"])


def measure(model: Path, requests: Sequence[Request]) -> dict[str, Any]:
    """Everything above; the routing is that of the samples."""
    with Engine.open(model) as engine, tempfile.TemporaryDirectory() as place:
        file, moe, experts = Path(place) / "trace", engine.config.moe, engine.source.layout.experts
        if experts is None:
            raise ValueError(f"{model}: needed a model with experts")
        with TraceWriter(file, top_k=moe.top_k, expert_bytes=slot_bytes(experts)) as trace:
            engine.weights.watch.on_route.append(trace.routed)
            told, answered = stories(engine), chats(engine, requests)
        return {
            "stories": told,
            "chats": answered,
            "routing": routing(file, moe.top_k, moe.num_experts, slot_bytes(experts)),
            "packed_ratio": packed_ratio(model),
        }


def dtypes(model: Path) -> Counter[str]:
    """Parameters of the checkpoint by how they are stored: trunk in BF16 or F32, experts in MXFP4."""
    wanted = Source(model).layout
    counts: Counter[str] = Counter()
    for tensor in wanted.trunk:
        counts[tensor.dtype] += tensor.parameters
    if wanted.experts is not None:
        counts["MXFP4"] = wanted.experts.count * 3 * wanted.experts.width * wanted.experts.latent
    return counts
