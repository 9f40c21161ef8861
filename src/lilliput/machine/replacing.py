"""Files that are there complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of `path` when the block ends, synced to disk; after an error nothing is left of it.

    What is there and no regular file (`/dev/null`, a pipe) is written to as it is, and a link stays a link.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as out:
            yield out
        return
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
