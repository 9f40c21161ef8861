#!/usr/bin/env python3
"""Expert policies on synthetic traces: prints the second table of docs/expert-cache.md.

    python tools/compare_policies.py [TOKENS]      120 by default; some minutes

The traces differ in what can be foretold: `zipf` draws experts independently with Zipf's frequencies (only frequency helps),
`sticky` keeps some of the last token's experts, more in deep layers (only recency helps, on top), `drift` deals the frequencies
anew every 100 tokens. `router` is the closest to a model: an expert's logit is a fixed part, a topic that drifts over some 150
tokens (or changes abruptly every 80), and a part that lasts a few tokens, longer in deep layers; the 16 highest are chosen.
"""

from __future__ import annotations

import sys

import numpy as np
import numpy.typing as npt

from lilliput.simulate import belady, replay
from lilliput.trace import Request, Trace
from lilliput.weights.policy import POLICIES, make_policy

EXPERTS, TOP_K, LAYERS = 896, 16, 24
SHARES = (0.1, 0.3, 0.62, 0.93, 1.25, 2.5)  # of the experts of one token
Chosen = npt.NDArray[np.int64]


def zipf(tokens: int, layers: int, seed: int, exponent: float, *, sticky: bool = False, drift: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    ranked = -exponent * np.log(np.arange(1, EXPERTS + 1))
    logits = np.stack([ranked[rng.permutation(EXPERTS)] for _ in range(layers)])
    kept = np.linspace(0.15, 0.45, layers) if sticky else np.zeros(layers)
    chosen = np.empty((tokens, layers, TOP_K), np.int64)
    for token in range(tokens):
        if drift and token and token % drift == 0:
            logits = rng.permuted(logits, axis=1)
        drawn = logits + rng.gumbel(size=logits.shape)
        if token:
            for layer in range(layers):
                drawn[layer, chosen[token - 1, layer][rng.random(TOP_K) < kept[layer]]] = np.inf
        chosen[token] = highest(drawn)
    return trace_of(chosen)


def router(tokens: int, layers: int, seed: int, *, base: float = 0.3, topic: float = 0.8, lasting: float = 150, switch: int = 0) -> Trace:
    rng = np.random.default_rng(seed)
    shape = (layers, EXPERTS)
    fixed, topics, short = base * rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=shape)
    slow, fast = np.exp(-1 / lasting), np.linspace(0.3, 0.75, layers)[:, None]
    chosen = np.empty((tokens, layers, TOP_K), np.int64)
    for token in range(tokens):
        topics = slow * topics + np.sqrt(1 - slow * slow) * rng.normal(size=shape)
        if switch and token and token % switch == 0:
            topics = rng.normal(size=shape)
        short = fast * short + np.sqrt(1 - fast * fast) * rng.normal(size=shape)
        chosen[token] = highest(fixed + topic * topics + short)
    return trace_of(chosen)


def highest(logits: npt.NDArray[np.float64]) -> Chosen:
    return np.sort(np.argpartition(-logits, TOP_K, axis=-1)[..., :TOP_K], axis=-1)


def trace_of(chosen: Chosen) -> Trace:
    """[tokens, layers, k] → one-token passes through layers 1, 2, ..."""
    return Trace([[Request(i + 1, ids[None].astype(np.int32)) for i, ids in enumerate(token)] for token in chosen])


def traces(tokens: int, layers: int = LAYERS) -> dict[str, Trace]:
    return {
        "zipf 0.6": zipf(tokens, layers, 1, 0.6),
        "zipf 1.0": zipf(tokens, layers, 2, 1.0),
        "zipf 0.8 sticky": zipf(tokens, layers, 3, 0.8, sticky=True),
        "zipf 1.0 drift": zipf(tokens, layers, 4, 1.0, drift=100),
        "zipf 1.0 sticky drift": zipf(tokens, layers, 5, 1.0, sticky=True, drift=100),
        "router": router(tokens, layers, 6),
        "router, strong topics": router(tokens, layers, 7, topic=1.2, lasting=60),
        "router, abrupt topics": router(tokens, layers, 8, switch=80),
        "router, weak topics": router(tokens, layers, 9, base=0.1, topic=0.3),
    }


def main() -> None:
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    names = list(POLICIES)
    print(f"| trace ({tokens} tokens, {LAYERS} layers) | share of a token's set | {' | '.join(names)} | belady |")
    print(f"|---|---:|{'---:|' * (len(names) + 1)}")
    sums = {share: np.zeros(len(names) + 1) for share in SHARES}
    made = traces(tokens)
    for title, trace in made.items():
        keys = trace.keys
        for share in SHARES:
            capacity = int(share * TOP_K * LAYERS)
            hits = [sum(replay(trace, make_policy(name, capacity, trace.layers, EXPERTS))) for name in names]
            rates = 100 * np.array([*hits, belady(keys, capacity)]) / len(keys)
            sums[share] += rates
            print(f"| {title} | {share} | {' | '.join(f'{rate:.1f}' for rate in rates)} |", flush=True)
    for share, rates in sums.items():
        print(f"| **mean** | {share} | {' | '.join(f'{rate:.1f}' for rate in rates / len(made))} |")


if __name__ == "__main__":
    main()
