"""Small files from strangers, read whole: never waiting for a pipe, never more than is plausible."""

from __future__ import annotations

import stat
from pathlib import Path

from lilliput.errors import InputError, Problem

LARGEST = 16 * 1024 * 1024  # a released config.json has 8 KB


def read_small(path: Path, most: int = LARGEST) -> bytes | None:
    """The bytes of a regular file, or None where nothing is there; InputError if it cannot be read or is implausibly large.

    A link to nothing is not nothing: it is what a hub snapshot has whose blob was deleted.
    """

    def refuse(needed: str, found: str) -> InputError:
        return InputError([Problem(path, "", needed, found)])

    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # before opening it: opening a pipe would wait for its writer
            raise refuse("a regular file", "a directory" if stat.S_ISDIR(status.st_mode) else "something that is not a file")
        if status.st_size > most:
            raise refuse(f"at most {most:,} bytes", f"{status.st_size:,} bytes")
        with path.open("rb") as file:
            return file.read(status.st_size)
    except FileNotFoundError:
        if path.is_symlink():
            raise refuse("a file", f"a link to {path.readlink()}, which does not exist") from None
        return None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise refuse("a readable file", getattr(error, "strerror", None) or str(error)) from None
