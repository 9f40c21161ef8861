"""Pictures, with the extra `plot`."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

from lilliput.errors import MissingExtraError, UsageError
from lilliput.machine.output import replacing


def pyplot(file: str) -> Any:
    """matplotlib, drawing to files only. Ask before the work, so that a missing extra is not found out after it, nor a `file` whose name
    ends in nothing that can be drawn.

    Raises MissingExtraError, UsageError.
    """
    try:
        importlib.import_module("matplotlib").use("Agg")
        canvas = importlib.import_module("matplotlib.backend_bases").FigureCanvasBase
        found = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise MissingExtraError("a picture (--plot)", "plot") from error
    known = sorted(canvas.get_supported_filetypes())
    if _format(file) not in known:
        raise UsageError(f"--plot: {file}: needed a name that ends in one of .{', .'.join(known)}")
    return found


def save(pyplot: Any, figure: Any, file: str) -> None:
    """The picture as the name of `file` says, whole or not at all; PNG where it says nothing."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=_format(file), dpi=150)
    pyplot.close(figure)
    with replacing(Path(file)) as out:
        out.write(drawn.getvalue())


def _format(file: str) -> str:
    return Path(file).suffix[1:].lower() or "png"
