"""Facts about a run, as every report tells them."""

from __future__ import annotations

import platform
import resource
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from lilliput import _core

if TYPE_CHECKING:
    from lilliput.engine.engine import Engine


def peak_rss() -> int:
    """The most memory this process ever had resident, in bytes, as the kernel counts it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def in_short(engine: Engine) -> str:
    """How a run was made, in one line."""
    f = facts(engine)
    return f"{f['checkpoint']}: {f['layers']} layers; {f['isa']}, {f['threads']} threads; {f['bytes_read'] / 1e9:.2f} GB read"


def facts(engine: Engine) -> dict[str, Any]:
    """What must be known to repeat a run: versions, machine settings, the checkpoint."""
    from lilliput import __version__

    return {
        "versions": {"lilliput": __version__, "python": platform.python_version(), "numpy": np.__version__},
        "isa": _core.isa(),
        "threads": _core.threads(),
        "layers": engine.config.num_layers,
        "checkpoint": str(engine.source.directory),
        "config_sha256": engine.source.config_hash,
        "bytes_read": engine.bytes_read,
        "peak_rss_bytes": peak_rss(),
    }
