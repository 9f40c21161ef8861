"""How files of a checkpoint that are missing or damaged are got again: the last line of many refusals."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from lilliput.machine.places import is_ours

REPOSITORY = "moonshotai/Kimi-K3"
OURS = "it belongs to the model in the box, so this installation is not sound: install lilliput again"
MOST_NAMED = 20


def fetch(directory: Path, what: str) -> str:
    """The step that gets files which are not there; `what` is "it", "them" or "the checkpoint"."""
    if is_ours(directory):
        return OURS
    return f"run `hf download {REPOSITORY} --local-dir {shlex.quote(str(directory))}` to fetch {what}"


def fetch_again(directory: Path, names: Sequence[str]) -> str:
    """The step that mends files which are there and damaged; `names` are their paths in `directory`.

    Without `--force-download` a file whose date has not changed would be taken for sound.
    """
    if is_ours(directory):
        return OURS
    few = 0 < len(names) <= MOST_NAMED
    command = shlex.join(["hf", "download", REPOSITORY, *(names if few else ["FILE"]), "--local-dir", str(directory), "--force-download"])
    return f"if this is a download, `{command}` fetches {'it' if len(names) == 1 else 'them' if few else 'one of these files'} again"
