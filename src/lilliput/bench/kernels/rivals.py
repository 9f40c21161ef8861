"""numpy's float32 and torch's bf16 products, where they can be had with a known number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np


class Rivals:
    """`torch` is the module or None; `numpy` says whether numpy can be compared; `missing` why something cannot."""

    def __init__(self) -> None:
        self.missing: list[str] = []
        self.torch = self._load("torch", "torch bf16 is left out")
        pools = self._load("threadpoolctl", "numpy is left out, because the threads of its BLAS cannot be set")
        self._blas = pools.ThreadpoolController() if pools is not None else None
        self.numpy = self._blas is not None
        self.versions = {"numpy": np.__version__} | ({"torch": str(self.torch.__version__)} if self.torch is not None else {})

    def _load(self, name: str, otherwise: str) -> Any:
        try:
            return import_module(name)
        except (ImportError, OSError) as error:  # OSError: a library of its own does not load
            self.missing.append(f"{otherwise}: {error}")
            return None

    @contextmanager
    def threads(self, n: int) -> Iterator[None]:
        """Both use `n` threads inside the block."""
        if self.torch is not None:
            self.torch.set_num_threads(n)
        if self._blas is None:
            yield
            return
        with self._blas.limit(limits=n, user_api="blas"):
            yield
