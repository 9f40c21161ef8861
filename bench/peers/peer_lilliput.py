"""Lilliput, through its public interface, with everything in memory that fits (--memory is the caller's)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import measured

import lilliput
from lilliput.errors import LilliputError


def main() -> None:
    given = measured.arguments()
    start = time.perf_counter()
    context = len(given.ids.split(",")) + given.tokens + 1
    memory = os.environ.get("PEERS_MEMORY")  # set by compare.py
    with lilliput.open(given.model, memory=memory, context=context, threads=given.threads) as engine:
        loaded = time.perf_counter() - start

        def generate(prompt: list[int], tokens: int) -> Iterator[int]:
            for token in engine.generate(prompt, max_tokens=tokens):
                yield token.id

        measured.report(given, generate, loaded, lilliput.__version__)


if __name__ == "__main__":
    try:
        main()
    except LilliputError as error:
        raise SystemExit(f"lilliput: {error}") from None
