"""mlx-lm on the CPU, through its own generation loop. `--dtype float32` widens what is not quantised: as exact as mlx can be."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import measured


def main() -> None:
    given = measured.arguments()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(given.threads)  # before mlx is imported
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    mx.set_default_device(mx.cpu)
    start = time.perf_counter()
    model, _ = load_model(Path(given.model))
    if given.dtype != "bfloat16":
        model.set_dtype(getattr(mx, given.dtype))
    mx.eval(model.parameters())
    loaded = time.perf_counter() - start

    def generate(prompt: list[int], tokens: int) -> Iterator[int]:
        for token, _ in generate_step(mx.array(prompt), model, max_tokens=tokens):
            yield int(token)

    measured.report(given, generate, loaded, f"mlx {version('mlx')}, mlx-lm {version('mlx-lm')}, {given.dtype}")


if __name__ == "__main__":
    main()
