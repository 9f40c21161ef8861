"""Files in the user's cache directory: what is kept there saves time the next time, and nothing depends on it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from lilliput.errors import InputError
from lilliput.machine.small_files import read_small


def keep(path: Path, parts: Sequence[bytes | memoryview]) -> None:
    """The whole file or none: written beside it and renamed. A cache that cannot be written is no fault.

    It is not synced to disk, so after a power cut it may hold anything: whoever reads it must be able to tell.
    """
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.name, suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.writelines(parts)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def kept(path: Path, most: int) -> bytes | None:
    """What `keep` wrote; None where there is nothing, or what `keep` would not have written: no regular file, or more than `most` bytes."""
    try:
        return read_small(path, most)
    except InputError:
        return None
