"""A named pipe with somebody at its other end."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def read_pipe(pipe: Path) -> Iterator[list[bytes]]:
    """Make the pipe and read it. The block writes to it; behind the block the list holds what came, and the pipe must still be one."""
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    yield got
    reader.join()
    assert pipe.is_fifo()
