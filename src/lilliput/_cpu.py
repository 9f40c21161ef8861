"""A sentence instead of numpy's traceback on processors that numpy itself cannot run on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def explain_old_cpu() -> Iterator[None]:
    """Around the first import of numpy: its wheels need x86-64-v2 (SSE4.2, POPCNT), our own core does not."""
    try:
        yield
    except (ImportError, RuntimeError) as error:
        if "baseline" not in str(error).lower() and "X86_V2" not in str(error):
            raise
        raise ImportError(
            "this processor lacks SSE4.2, which numpy's wheels need (x86-64-v2): "
            "build numpy from source with `pip install --no-binary numpy numpy`"
        ) from error
